"""Loss by position compared with a naive loop over tokens and windows."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from fairseq import checkpoint_utils

from alibi_fairseq.evaluation.scoring import (
    LossByPosition,
    SplitTensors,
    bucket_end,
    score_batches,
    sum_losses,
)
from alibi_fairseq.evaluation.text_evaluator import TextEvaluator
from alibi_fairseq.evaluation.windows import make_batches, plan_windows, select_spans

#: Powers of two, and the numbers halfway between them.
BUCKET_ENDS = sorted({2**n for n in range(14)} | {3 * 2**n for n in range(13)})


def buckets_of(record: dict) -> dict[int, tuple[int, float]]:
    """Return tokens and bits of a record by the last position of each bucket."""
    values = zip(record.values.position_tokens, record.values.position_bits, strict=True)
    return dict(zip(record.values.position_ends, values, strict=True))


def expected_buckets(positions: Counter, nats: Counter) -> dict[int, tuple[int, float]]:
    """Sum tokens and losses by position into buckets, trying all ends in order."""
    longest = max(positions)
    buckets: dict[int, tuple[int, float]] = {}
    begin = 1
    for end in BUCKET_ENDS:
        members = range(begin, min(end, longest) + 1)
        tokens = sum(positions[position] for position in members)
        bits = math.fsum(nats[position] for position in members) / math.log(2)
        buckets[min(end, longest)] = (tokens, bits)
        begin = end + 1
        if begin > longest:
            break
    return buckets


@pytest.mark.parametrize("position", [*range(1, 100), 511, 512, 513, 768, 769, 3072, 3073])
def test_bucket_end_is_power_of_two_or_halfway(position):
    assert bucket_end(position) == min(end for end in BUCKET_ENDS if end >= position)


@pytest.mark.parametrize(
    ("name", "length", "stride", "changes"),
    [
        ("alibi", 48, 48, {}),
        ("alibi", 48, 5, {}),
        ("alibi", 13, 1, {}),
        ("rotary", 5000, 5000, {}),  # one window of all tokens
        ("alibi", 48, 20, {"score_from": 30, "score_to": 200}),
        ("alibi", 50, 20, {"overrides": {"alibi_scale": "dynamic"}}),
        ("rotary", 48, 48, {"overrides": {"rotary_scaling": "ntk:dynamic"}, "memory_gb": 1e-9}),
    ],
)
def test_buckets_match_naive_loop(sweep, trained, name, length, stride, changes):
    (record,) = sweep(name, lengths=[length], strides=[stride], **changes)
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(trained(name))], arg_overrides=changes.get("overrides", {})
    )
    task.load_dataset("valid")
    tokens = torch.cat([line["target"] for line in task.dataset("valid")])
    inputs = torch.cat([torch.tensor([task.dictionary.eos()]), tokens[:-1]])
    positions: Counter = Counter()
    nats: Counter = Counter()
    stop_all = min(changes.get("score_to", len(tokens)), len(tokens))
    for first in range(changes.get("score_from", 0), stop_all, stride):
        start = max(0, first - length + stride)
        stop = min(first + stride, stop_all)
        with torch.no_grad():
            scores = model.eval()(inputs[None, start:stop])[0][0].double().log_softmax(1)
        for token in range(first, stop):
            position = token - start + 1
            positions[position] += 1
            nats[position] -= scores[token - start, tokens[token]].item()
    expected = expected_buckets(positions, nats)
    buckets = buckets_of(record)
    assert list(buckets) == list(expected)
    for end, (count, bits) in expected.items():
        assert buckets[end][0] == count
        assert buckets[end][1] == pytest.approx(bits, rel=1e-5)


@pytest.mark.parametrize("length", [16, 48])
def test_standard_errors_match_independent_formula(sweep, trained, length):
    """The oracle is the sandwich estimator of a regression on a constant, clustered by window.

    With n / (n - 1), it is that of a ratio of means, in which a window has one observation.
    """
    (record,) = sweep("alibi", lengths=[length])
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(trained("alibi"))])
    task.load_dataset("valid")
    tokens = torch.cat([line["target"] for line in task.dataset("valid")])
    inputs = torch.cat([torch.tensor([task.dictionary.eos()]), tokens[:-1]])
    losses = []  # by window
    for start in range(0, len(tokens), length):
        stop = min(start + length, len(tokens))
        with torch.no_grad():
            scores = model.eval()(inputs[None, start:stop])[0][0].double().log_softmax(1)
        losses.append(-scores.gather(1, tokens[start:stop, None])[:, 0] / math.log(2))
    begin = 0
    for end, error in zip(record.values.position_ends, record.values.position_errors, strict=True):
        clusters = [window[begin:end] for window in losses if len(window) > begin]
        begin = end
        mean = torch.cat(clusters).mean()
        count = sum(map(len, clusters))
        meat = sum((cluster - mean).sum() ** 2 for cluster in clusters)
        expected = (meat * len(clusters) / (len(clusters) - 1)).sqrt() / count
        assert error == pytest.approx(expected.item(), rel=1e-4)
        if len({len(cluster) for cluster in clusters}) == 1:
            means = torch.stack([cluster.mean() for cluster in clusters])
            assert error == pytest.approx((means.std() / len(means) ** 0.5).item(), rel=1e-4)


@pytest.mark.parametrize("batch_size", [1, 4, 32])
def test_standard_errors_do_not_depend_on_the_batch(batch_size):
    """The losses are correlated over many tokens; windows of a batch contain different edges."""
    random = torch.Generator().manual_seed(1)
    waves = torch.randn(64, generator=random).repeat_interleave(50).double()
    losses = (waves + torch.rand(3200, generator=random).double()).abs()
    tensors = SplitTensors(torch.arange(3200), torch.arange(3200), "valid")
    starts = [0, 210, 577, 801, 1130, 1402, 1777, 2090, 2391, 2802, 3001]
    spans = select_spans(3200, starts, None, None)
    length = 128
    batches = make_batches(plan_windows(3200, length, length), batch_size)
    by_position = LossByPosition()
    scored = score_batches(lambda _, targets: losses[targets], tensors, batches)
    sum_losses(scored, spans, by_position)
    fields = by_position.fields()
    document = torch.bucketize(torch.arange(3200), torch.tensor(starts), right=True)
    begin = 0
    for end, error in zip(fields["position_ends"], fields["position_errors"], strict=True):
        clusters = []
        for window in range(0, 3200, length):
            part = slice(window + begin, window + end)
            for article in document[part].unique():
                clusters.append(losses[part][document[part] == article])
        begin = end
        mean = torch.cat(clusters).mean()
        meat = sum((cluster - mean).sum() ** 2 for cluster in clusters)
        expected = (meat * len(clusters) / (len(clusters) - 1)).sqrt() / sum(map(len, clusters))
        assert error == pytest.approx(expected.item() / math.log(2), rel=1e-9)


def test_one_window_has_no_standard_errors(sweep):
    (record,) = sweep("alibi", lengths=[5000])
    assert record.values.position_errors == (None,) * len(record.values.position_ends)


@pytest.mark.parametrize("stride", ["full", 7])
def test_buckets_add_up_to_total_loss(sweep, stride):
    (record,) = sweep(lengths=[48], strides=[stride])
    assert sum(record.values.position_tokens) == record.values.tokens
    total = record.values.loss_bits * record.values.tokens
    assert math.fsum(record.values.position_bits) == pytest.approx(total, rel=1e-14)


def test_memory_of_all_tokens_equals_one_window(sweep):
    def buckets_at(length):
        overrides = {"mem_len": 5000}
        (record,) = sweep("transformer-xl", str(length), lengths=[length], overrides=overrides)
        return buckets_of(record)

    segments = buckets_at(16)
    window = buckets_at(5000)
    assert list(segments) == list(window)
    for end, (tokens, bits) in window.items():
        assert segments[end] == (tokens, pytest.approx(bits, rel=1e-4))


def test_position_includes_memory(sweep):
    (record,) = sweep("transformer-xl", lengths=[16])
    positions: Counter = Counter()
    for token in range(record.values.tokens):
        in_memory = min(token // 16 * 16, 24)
        in_segment = token % 16 + 1
        positions[in_memory + in_segment] += 1
    expected = expected_buckets(positions, Counter())
    assert record.values.position_ends == tuple(expected)
    assert record.values.position_tokens == tuple(tokens for tokens, _ in expected.values())


@pytest.mark.ci
def test_interrupted_sweep_has_same_buckets(sweep, monkeypatch):
    case = {"lengths": [8, 16], "strides": ["full", 3]}
    uninterrupted = sweep(**case, out="uninterrupted")
    measure = TextEvaluator.measure

    def interrupt_second_length(cases, model, measured, *arguments):
        if measured.length == 16:
            raise KeyboardInterrupt
        return measure(cases, model, measured, *arguments)

    monkeypatch.setattr(TextEvaluator, "measure", interrupt_second_length)
    with pytest.raises(KeyboardInterrupt):
        sweep(**case)
    monkeypatch.setattr(TextEvaluator, "measure", measure)
    resumed = sweep(**case)
    for record, expected in zip(resumed, uninterrupted, strict=True):
        for key in ("position_ends", "position_tokens", "position_bits", "position_errors"):
            assert getattr(record.values, key) == getattr(expected.values, key)


def test_length_past_the_end_repeats_buckets(sweep):
    shorter, longer = sweep(lengths=[5000, 7000])
    assert longer.values.position_bits == shorter.values.position_bits
    values = shorter.values
    assert values.position_ends[-1] == values.longest_window == values.tokens


def test_attention_within_documents_has_no_positions(sweep):
    (record,) = sweep("alibi", overrides={"block_diagonal": "eos"})
    assert record.values.perplexity
    assert record.values.position_ends == record.values.position_bits == ()
    assert record.values.min_context is None
    assert record.values.mean_context is None
