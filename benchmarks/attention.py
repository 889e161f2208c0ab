"""Attention alone, forward and backward: ``python -m benchmarks.attention [--quick]``.

Every backend of this project on ALiBi, beside what stock fairseq does (a (T, T) mask of floats), the
authors' (B·H, T, T) mask, and torch's causal kernel without any bias as the ideal, in turns. With
``--path`` and ``--data`` also on the queries and keys of a trained checkpoint, layer by layer in
one pass, since what can be skipped depends on how large they are.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from alibi_fairseq.attention import BACKENDS, FutureMask, attend
from alibi_fairseq.attention.skipping import certify
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.evaluation.checkpoint import load_checkpoint
from alibi_fairseq.evaluation.data import load_dictionary, load_split
from alibi_fairseq.models import self_attention
from alibi_fairseq.positions.alibi import LinearBias
from alibi_fairseq.results.data_folder import DataFolder

from . import common

#: Heads and head size of the small model, and of the paper's.
SHAPES = {"cpu": (8, 64, 3072), "cuda": (8, 128, 16_384)}
IDEAL = "causal kernel, no bias"


def main() -> None:
    common.run(
        __doc__,
        "attention",
        measure,
        lengths={"type": int, "nargs": "+"},
        path={"type": Path, "help": "checkpoint of a trained ALiBi model"},
        data={"type": Path, "help": "its data folder"},
    )


def measure(args) -> Iterator[dict]:
    """One cell per length, kind of weights and candidate."""
    where = common.device()
    on_gpu = where.type == "cuda"
    long = [16_384, 32_768] if on_gpu else [] if args.quick else [8192]
    for length in args.lengths or [512, 1024, 3072, *long]:
        heads, width, tokens = SHAPES[where.type]
        shape = (max(1, tokens // length), heads, length, width)
        # The size of queries and keys under fairseq's initialisation.
        q, k, v = (0.5**0.5 * torch.randn(shape) for _ in range(3))
        yield from measure_layers(args, [(q, k, v)], "random")
        if args.path:
            layers, bias = capture(args.path, args.data, "valid", length)
            if not isinstance(bias, LinearBias):
                raise UserInputError(f"{args.path} is not an ALiBi model.")
            yield from measure_layers(args, layers, "trained")


def candidates(layers: list, where: torch.device) -> dict[str, Callable[[], None]]:
    """Functions that compute attention of every layer, forward and backward."""
    dtype = common.precision(where)
    leaves = [[x.to(where, dtype).requires_grad_() for x in layer] for layer in layers]
    batch, heads, length, _ = leaves[0][0].shape
    grad = torch.randn_like(leaves[0][0])
    causal = torch.full((length, length), -torch.inf, device=where, dtype=dtype).triu_(1)
    slopes = LinearBias(heads).slopes(where).to(dtype).view(-1, 1, 1)

    def run(function):
        def once():
            for q, k, v in leaves:
                torch.autograd.grad(function(q, k, v), (q, k, v), grad)

        return once

    def masked(mask):
        return run(lambda q, k, v: scaled_dot_product_attention(q, k, v, attn_mask=mask))

    made = {
        IDEAL: run(lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=True)),
        "stock: (T, T) mask, no bias": masked(causal),
    }
    if length <= 8192:
        keys = torch.arange(length, device=where, dtype=dtype)
        mask = (causal + slopes * keys).repeat(batch, 1, 1).view(batch, heads, length, length)
        made["materialised: (B·H, T, T) mask"] = masked(mask)
    for name, backend in BACKENDS.items():
        mask = FutureMask(LinearBias(heads), length, length)
        reason = backend.unsupported_reason(*leaves[0], mask, 0.0)
        if reason is None and not (name == "eager" and length > 3072):
            made[name] = run(
                lambda q, k, v, name=name: attend(
                    q, k, v, FutureMask(LinearBias(heads), length, length), backend=name
                )[0]
            )
    return made


def measure_layers(args, layers: list, weights: str) -> list[dict]:
    """One cell per candidate."""
    batch, heads, length, width = layers[0][0].shape
    case = {"weights": weights, "length": length, "batch": batch, "heads": heads}
    kept = statistics.mean(kept_share(q, k, LinearBias(heads)) for q, k, _ in layers)
    case |= {"head_size": width, "layers": len(layers), "kept_share": round(kept, 3)}
    functions = candidates(layers, common.device())
    return common.compare(functions, args.rounds, "attention", IDEAL, **case)


def capture(path: Path, data: Path, subset: str, length: int) -> tuple[list, object]:
    """Run a checkpoint over the first ``length`` tokens of a split.

    Returns:
        One (q, k, v) per layer, each (1, H, T, D) with rotations applied; and the method's bias.
    """
    loaded = load_checkpoint(path, data)
    split = load_split(DataFolder.open(data), subset, load_dictionary(data))
    inputs = split.tensors(length, torch.device("cpu")).inputs[:length]
    layers: list[tuple[Tensor, Tensor, Tensor]] = []
    biases = []
    attend = self_attention.attend

    def recording(q, k, v, mask, **options):
        layers.append((q.detach(), k.detach(), v.detach()))
        biases.append(mask.bias)
        return attend(q, k, v, mask, **options)

    with mock.patch.object(self_attention, "attend", recording), torch.no_grad():
        loaded.decoder.extract_features(inputs[None].long())
    return layers, biases[0]


def kept_share(q: Tensor, k: Tensor, bias: LinearBias) -> float:
    """Share of the scores of the causal triangle that lie within the certified windows."""
    length = q.shape[2]
    windows = certify(q, k, bias.slopes(q.device)).windows.amax(dim=0)  # (H,)
    outside = (length - 1 - windows).clamp(min=0)
    return float(1 - (outside * (outside + 1) / (length * (length + 1))).mean())


if __name__ == "__main__":
    main()
