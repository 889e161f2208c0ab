"""Requirements of every position method, as one function per check.

Each compares the scores of a small random model that must be equal, or nearly so. The difference of
two results is relative to the largest of the expected numbers.

Shapes: B batch, H heads, T queries, S keys, D head size, C model width, n queries of a block.
"""

from __future__ import annotations

import copy
import functools
import math
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ..attention import BACKENDS, FutureMask
from ..errors import UserInputError
from ..positions import ScoreBias
from .attention_call import AttentionCall, attention_calls
from .candidate import HEADS, LONG, TRAIN_LENGTH, Candidate

#: Largest difference in fp32. Rounding causes differences near 1e-6.
MAX_DIFFERENCE = 1e-4
#: Largest difference between bf16 and fp32.
MAX_DIFFERENCE_IN_BF16 = 0.02
#: Tokens in the check of bf16, which rounds absolute positions from 256 on.
BF16_LENGTH = 512
PAD = 1
EOS = 2
#: Queries of a block, an odd number.
BLOCK_SIZE = 7
#: Phases of a model, and True if it is trained.
PHASES = {"training": True, "evaluation": False}
#: Cell of a check that does not apply.
NOTHING = "–"


@dataclass(frozen=True)
class Outcome:
    """Outcome of a check.

    Attributes:
        cell: result in the table.
        passed: False if the method is wrong.
        note: sentence on a check that failed or that does not apply.
    """

    cell: str
    passed: bool = True
    note: str = ""


def difference(actual: Tensor, expected: Tensor) -> float:
    """Return the largest difference relative to the largest expected number.

    Infinite numbers at the same places are equal. With NaN, the difference is infinite.
    """
    finite = expected.isfinite()
    if expected.isnan().any() or not torch.equal(finite, actual.isfinite()):
        return math.inf
    expected = expected[finite].double()
    actual = actual[finite].double()
    if expected.numel() == 0:
        return 0.0
    largest = expected.abs().max().clamp(min=1e-30)
    return ((actual - expected).abs().max() / largest).item()


def judge(measured: float, note: str, limit: float = MAX_DIFFERENCE) -> Outcome:
    """Return the outcome for a difference.

    Args:
        measured: result of :func:`difference`.
        note: subject and verb of the sentence on a failure.
        limit: largest difference.
    """
    number = f"{measured:.0e}" if measured else "0"
    if measured <= limit:
        return Outcome(number)
    sentence = f"{note} by {measured:.2g} of the largest number; at most {limit:g} is rounding."
    return Outcome(f"FAILS ({number})", passed=False, note=sentence)


def compare_lengths(check: Callable[[Candidate], Outcome]) -> Callable[[Candidate], Outcome]:
    """Decorate a check that compares passes over different numbers of keys.

    It does not apply to a method whose scores depend on that number.
    """

    @functools.wraps(check)
    @torch.no_grad()
    def check_unless_length_matters(candidate: Candidate) -> Outcome:
        if candidate.model.decoder.embed_positions.depends_on_key_count:
            return Outcome(NOTHING, note="Its scores depend on the number of keys.")
        return check(candidate)

    return check_unless_length_matters


@compare_lengths
def check_cached_decoding(candidate: Candidate) -> Outcome:
    """Check that decoding with cached keys, token by token, equals the full pass."""
    model = candidate.model
    length = candidate.length
    tokens = candidate.random_tokens(2, length)
    expected = model(tokens)[0]
    prompt = length // 2
    state: dict = {}
    parts = []
    for end in range(prompt, length + 1):
        parts.append(model.decoder(tokens[:, :end], incremental_state=state)[0])
    measured = difference(torch.cat(parts, dim=1), expected)
    carried = state_difference(candidate)
    if carried > MAX_DIFFERENCE:
        return judge(carried, "A segment after the state of the first differs from the full pass")
    return judge(measured, "Decoding with cached keys differs from the full pass")


def state_difference(candidate: Candidate) -> float:
    """Return the difference between a segment after the state of the first and the full pass."""
    method = candidate.model.decoder.embed_positions
    model = candidate.model
    if hasattr(method.options, "mem_len"):
        model = candidate.build("--mem-len", str(TRAIN_LENGTH))
    memory_length = model.decoder.embed_positions.memory_length
    if not memory_length:
        return 0.0
    segment = min(memory_length, TRAIN_LENGTH)
    tokens = candidate.random_tokens(2, 2 * segment)
    expected = model(tokens)[0][:, segment:]
    state = model.decoder(tokens[:, :segment])[1]["state"]
    scores = model.decoder(tokens[:, segment:], state=state)[0]
    return difference(scores, expected)


@torch.no_grad()
def check_blocks(candidate: Candidate) -> Outcome:
    """Check that the bias of a block of queries is a part of the bias of all queries.

    The features of a block of tokens must also be a part of the features of all tokens.
    """
    of_biases = []
    of_features = []
    for call in attention_calls(candidate):
        bias = call.mask().bias
        if bias is not None:
            of_biases.append(bias_difference(call, bias))
        features = call.method.token_features(call.number, call.x)  # (B, heads, T, F)
        if features is not None:
            of_features.append(features_difference(call, features))
    if not of_biases and not of_features:
        return Outcome(NOTHING)
    features_note = "The features of a block of tokens differ from those of all tokens"
    outcome = judge(max(of_features, default=0.0), features_note)
    if not outcome.passed:
        return outcome
    bias_note = "The bias of a block of queries differs from that of all queries"
    return judge(max(of_biases + of_features), bias_note)


def query_slices(length: int) -> Iterator[slice]:
    """Yield consecutive blocks of queries."""
    for start in range(0, length, BLOCK_SIZE):
        yield slice(start, min(start + BLOCK_SIZE, length))


def bias_difference(call: AttentionCall, bias: ScoreBias) -> float:
    """Return the largest difference between the bias of blocks and of all queries."""

    def compute_block(queries: slice) -> Tensor:
        # A new mask, which has no band of an earlier block.
        mask = FutureMask(bias, call.length, call.length)
        q = call.q[:, :, queries]
        k = call.k[:, :, : queries.stop]
        block = mask.block(q, k, queries.start, torch.float32)
        return block.expand(*q.shape[:3], queries.stop)  # (B, H, n, K)

    whole = compute_block(slice(0, call.length))  # (B, H, T, T)
    differences = []
    for queries in query_slices(call.length):
        expected = whole[:, :, queries, : queries.stop]
        differences.append(difference(compute_block(queries), expected))
    return max(differences)


def features_difference(call: AttentionCall, whole: Tensor) -> float:
    """Return the largest difference between the features of blocks and those of all tokens.

    Args:
        whole: (B, heads, T, F) features of all tokens.
    """
    differences = []
    for tokens in query_slices(call.length):
        features = call.method.token_features(call.number, call.x[tokens])
        assert features is not None, "the features of all tokens are not None"
        differences.append(difference(features, whole[:, :, tokens]))
    return max(differences)


@torch.no_grad()
def check_bf16(candidate: Candidate) -> Outcome:
    """Check that scores in bf16 are close to fp32 for a text of :data:`BF16_LENGTH` tokens."""
    model = candidate.build(train_length=BF16_LENGTH)
    tokens = candidate.random_tokens(1, BF16_LENGTH)
    expected = model(tokens)[0]
    half = copy.deepcopy(model).bfloat16()
    measured = difference(half(tokens)[0].float(), expected)
    return judge(measured, "Scores in bf16 differ from fp32", MAX_DIFFERENCE_IN_BF16)


def check_gradients(candidate: Candidate) -> Outcome:
    """Check that all gradients are finite, and that every parameter of the method has one.

    A bias with parameters must also say so, because layers share any other bias, and backends
    compute no gradient of it.
    """
    if has_undeclared_parameters(candidate):
        note = "The bias has learned parameters, but its needs_grad is not True."
        return Outcome("FAILS", passed=False, note=note)
    for dtype in (torch.float32, torch.bfloat16):
        model = copy.deepcopy(candidate.model).to(dtype)
        tokens = candidate.random_tokens(2, TRAIN_LENGTH + 1)
        scores = model(tokens[:, :-1])[0]
        cross_entropy(scores.flatten(0, 1).float(), tokens[:, 1:].flatten()).backward()
        for name, parameter in model.named_parameters():
            name = name.removeprefix("decoder.")
            if parameter.grad is None and name.startswith("embed_positions."):
                note = f"{name} has no gradient, which training on several GPUs rejects."
                return Outcome("FAILS", passed=False, note=note)
            if parameter.grad is not None and not parameter.grad.isfinite().all():
                precision = str(dtype).removeprefix("torch.")
                note = f"The gradient of {name} is not finite in {precision}."
                return Outcome("FAILS", passed=False, note=note)
    return Outcome("finite")


def has_undeclared_parameters(candidate: Candidate) -> bool:
    """Return True if a bias without ``needs_grad`` is computed from parameters."""
    for call in attention_calls(candidate):
        mask = call.mask()
        if mask.bias is None or mask.bias.needs_grad:
            continue
        if mask.block(call.q, call.k, 0, torch.float32).requires_grad:
            return True
    return False


@compare_lengths
def check_left_padding(candidate: Candidate) -> Outcome:
    """Check that rows of different lengths, padded on the left, have the scores of each alone."""
    model = candidate.model
    length = candidate.length
    rows = [candidate.random_tokens(1, n) for n in (length, length - 5, length // 2, 2)]
    padded = torch.full((len(rows), length), PAD, device=candidate.device)
    for index, row in enumerate(rows):
        padded[index, length - row.shape[1] :] = row
    scores = model(padded)[0]
    largest = 0.0
    for index, row in enumerate(rows):
        expected = model(row)[0][0]
        largest = max(largest, difference(scores[index, -row.shape[1] :], expected))
    return judge(largest, "The scores of a row with padding differ from those of the row alone")


@compare_lengths
def check_documents(candidate: Candidate) -> Outcome:
    """Check that documents of one window have the scores of each alone (``--block-diagonal``)."""
    if getattr(candidate.model.decoder.embed_positions.options, "mem_len", 0):
        return Outcome(NOTHING, note="--mem-len can't be combined with --block-diagonal.")
    model = candidate.build("--block-diagonal", "eos")
    length = candidate.length
    tokens = candidate.random_tokens(2, length)
    starts = [0, length // 4, length // 4 + 2, length // 2]
    tokens[:, starts] = EOS
    scores = model(tokens)[0]
    largest = 0.0
    for start, stop in zip(starts, [*starts[1:], length]):
        expected = model(tokens[:, start:stop])[0]
        largest = max(largest, difference(scores[:, start:stop], expected))
    return judge(
        largest, "The scores of a document in a window differ from those of the document alone"
    )


@torch.no_grad()
def check_grouped_heads(candidate: Candidate) -> Outcome:
    """Check that the method works if several query heads share a key and value head."""
    model = candidate.build("--key-value-heads", str(HEADS // 2))
    scores = model(candidate.random_tokens(2, candidate.length))[0]
    if scores.isfinite().all():
        return Outcome("works")
    note = "Scores with grouped key and value heads are not finite."
    return Outcome("FAILS", passed=False, note=note)


def check_long_text(candidate: Candidate) -> Outcome:
    """Check that a text beyond the training length has finite scores, or is rejected clearly."""
    scores = candidate.long_scores
    if isinstance(scores, UserInputError):
        first_sentence = str(scores).split(". ")[0].rstrip(".")
        return Outcome("rejected", note=f"{first_sentence}.")
    if isinstance(scores, Exception):
        raise scores
    if scores.isfinite().all():
        return Outcome("works")
    note = f"A text of {LONG} tokens has scores that are not finite."
    return Outcome("FAILS", passed=False, note=note)


def check_backends(candidate: Candidate) -> Outcome:
    """Check that every backend that supports the method agrees with ``eager`` in training.

    The cell lists the backends that train the method, and then those that only evaluate it.
    """
    calls = list(attention_calls(candidate))
    expected = [call.attend("eager", training=True) for call in calls]
    trains = []
    only_evaluates = []
    for name in BACKENDS:
        phases = [phase for phase in PHASES if supports_all(name, calls, phase)]
        for phase in phases:
            for call, expected_parts in zip(calls, expected, strict=True):
                parts = call.attend(name, PHASES[phase])
                measured = max(map(difference, parts, expected_parts))
                outcome = judge(measured, f"{name} in {phase} differs from eager in training")
                if not outcome.passed:
                    return outcome
        if "training" in phases:
            trains.append(name)
        elif phases:
            only_evaluates.append(name)
    cell = ", ".join(trains)
    if only_evaluates:
        cell += f"; evaluation: {', '.join(only_evaluates)}"
    return Outcome(cell)


def supports_all(backend: str, calls: list[AttentionCall], phase: str) -> bool:
    """Return True if a backend supports the attention of every layer."""
    return all(call.unsupported_reason(backend, PHASES[phase]) is None for call in calls)


#: Checks by their column in the table.
CHECKS: dict[str, Callable[[Candidate], Outcome]] = {
    "cached decoding": check_cached_decoding,
    "blocks": check_blocks,
    "bf16": check_bf16,
    "gradients": check_gradients,
    "left padding": check_left_padding,
    "documents": check_documents,
    "grouped heads": check_grouped_heads,
    f"{LONG // TRAIN_LENGTH} × training length": check_long_text,
    "backends": check_backends,
}


def run_checks(
    candidate: Candidate, progress: Callable[[], object] = lambda: None
) -> dict[str, Outcome]:
    """Return the outcome of each check; an exception in the code of the method is a failure.

    Args:
        progress: called after each check.
    """
    outcomes = {}
    for column, check in CHECKS.items():
        torch.manual_seed(2)
        try:
            outcomes[column] = check(candidate)
        except Exception as error:
            outcomes[column] = Outcome("FAILS", passed=False, note=describe(error))
        progress()
    return outcomes


def describe(error: Exception) -> str:
    """Return a sentence with the type, place, and message of an error."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = "/".join(Path(frame.filename).parts[-2:])
    return f"{type(error).__name__} in line {frame.lineno} of {place}: {error}"
