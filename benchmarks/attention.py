"""Attention alone, forward and backward: ``python -m benchmarks.attention [--quick]``.

Compares every backend on ALiBi with three baselines, in alternation: stock fairseq's (T, T) float
mask, the authors' (B·H, T, T) mask, and torch's causal kernel without any bias as the ideal. With
``--path`` and ``--data``, the queries and keys of a trained checkpoint are measured too, all layers
in one call, since the fraction that can be skipped depends on their size.
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
from alibi_fairseq.evaluation.split import load_dictionary, load_split
from alibi_fairseq.models import self_attention
from alibi_fairseq.positions.alibi import LinearBias, is_linear
from alibi_fairseq.results.data_folder import DataFolder

from . import common

#: Number of heads, head size, and tokens per call: a small model on the CPU, the paper's on a GPU.
SHAPES = {"cpu": (8, 64, 3072), "cuda": (8, 128, 16_384)}
IDEAL = "causal kernel, no bias"
#: The (B·H, T, T) mask and the eager backend need too much memory at greater lengths.
MAX_MASK_LENGTH = 8192
MAX_EAGER_LENGTH = 3072


def main() -> None:
    common.run(
        __doc__,
        "attention",
        measure,
        lengths={"type": int, "nargs": "+", "help": "sequence lengths in tokens"},
        path={"type": Path, "help": "checkpoint of a trained ALiBi model"},
        data={"type": Path, "help": "data folder of the checkpoint"},
    )


def default_lengths(device: torch.device, quick: bool) -> list[int]:
    """Return the sequence lengths to measure."""
    lengths = [512, 1024, 3072]
    if device.type == "cuda":
        lengths += [16_384, 32_768]
    elif not quick:
        lengths += [8192]
    return lengths


def measure(args) -> Iterator[dict]:
    """Yield one result record per length, kind of weights, and variant."""
    device = common.device()
    heads, head_size, tokens = SHAPES[device.type]
    for length in args.lengths or default_lengths(device, args.quick):
        shape = (max(1, tokens // length), heads, length, head_size)
        # Size of queries and keys under fairseq's initialization.
        scale = 0.5**0.5
        q = scale * torch.randn(shape)
        k = scale * torch.randn(shape)
        v = scale * torch.randn(shape)
        yield from measure_layers(args, [(q, k, v)], "random")
        if args.path:
            layers, bias = capture_layers(args.path, args.data, "valid", length)
            if not is_linear(bias):
                raise UserInputError(f"{args.path} is not an ALiBi model. Pass one with --path.")
            yield from measure_layers(args, layers, "trained")


def make_variants(layers: list, device: torch.device) -> dict[str, Callable[[], None]]:
    """Return functions that compute attention of every layer, forward and backward, by name."""
    dtype = common.precision(device)
    leaves = [[x.to(device, dtype).requires_grad_() for x in layer] for layer in layers]
    batch, heads, length, _ = leaves[0][0].shape
    grad = torch.randn_like(leaves[0][0])
    causal = torch.full((length, length), -torch.inf, device=device, dtype=dtype).triu_(1)

    def forward_and_backward(function):
        def run_layers():
            for q, k, v in leaves:
                torch.autograd.grad(function(q, k, v), (q, k, v), grad)

        return run_layers

    def with_mask(mask):
        return forward_and_backward(
            lambda q, k, v: scaled_dot_product_attention(q, k, v, attn_mask=mask)
        )

    def with_backend(name):
        def function(q, k, v):
            mask = FutureMask(LinearBias(heads), length, length)
            return attend(q, k, v, mask, backend=name)[0]

        return forward_and_backward(function)

    variants = {
        IDEAL: forward_and_backward(
            lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=True)
        ),
        "stock: (T, T) mask, no bias": with_mask(causal),
    }
    if length <= MAX_MASK_LENGTH:
        slopes = LinearBias(heads).slopes(device).to(dtype).view(-1, 1, 1)  # (H, 1, 1)
        keys = torch.arange(length, device=device, dtype=dtype)
        bias = causal + slopes * keys  # (H, T, T)
        mask = bias.repeat(batch, 1, 1).view(batch, heads, length, length)
        variants["materialised: (B·H, T, T) mask"] = with_mask(mask)
    for name, backend in BACKENDS.items():
        if name == "eager" and length > MAX_EAGER_LENGTH:
            continue
        mask = FutureMask(LinearBias(heads), length, length)
        if backend.unsupported_reason(*leaves[0], mask, 0.0) is None:
            variants[name] = with_backend(name)
    return variants


def measure_layers(args, layers: list, weights: str) -> list[dict]:
    """Return one result record per variant."""
    batch, heads, length, head_size = layers[0][0].shape
    bias = LinearBias(heads)
    mean_kept_fraction = statistics.mean(kept_fraction(q, k, bias) for q, k, _ in layers)
    return common.compare(
        make_variants(layers, common.device()),
        args.rounds,
        "attention",
        IDEAL,
        weights=weights,
        length=length,
        batch=batch,
        heads=heads,
        head_size=head_size,
        layers=len(layers),
        kept_share=round(mean_kept_fraction, 3),
    )


def capture_layers(path: Path, data: Path, split: str, length: int) -> tuple[list, object]:
    """Run a checkpoint on the first ``length`` tokens of a split.

    Returns:
        One (q, k, v) per layer, each (1, H, T, D) with rotations applied, and the score bias of the
        position method.
    """
    loaded = load_checkpoint(path, data)
    tokens = load_split(DataFolder.open(data), split, load_dictionary(data))
    inputs = tokens.tensors(length, torch.device("cpu")).inputs[:length]
    layers: list[tuple[Tensor, Tensor, Tensor]] = []
    biases = []
    attend = self_attention.attend

    def recording_attend(q, k, v, mask, **options):
        layers.append((q.detach(), k.detach(), v.detach()))
        biases.append(mask.bias)
        return attend(q, k, v, mask, **options)

    with mock.patch.object(self_attention, "attend", recording_attend), torch.no_grad():
        loaded.decoder.extract_features(inputs[None].long())
    return layers, biases[0]


def kept_fraction(q: Tensor, k: Tensor, bias: LinearBias) -> float:
    """Return the fraction of causal scores within the certified windows."""
    length = q.shape[2]
    windows = certify(q, k, bias.slopes(q.device)).windows.amax(dim=0)  # (H,)
    outside = (length - 1 - windows).clamp(min=0)
    skipped = outside * (outside + 1) / (length * (length + 1))
    return float(1 - skipped.mean())


if __name__ == "__main__":
    main()
