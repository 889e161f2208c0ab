"""Attention alone, forward and backward: ``python -m benchmarks.attention [--quick]``.

Compares every backend on ALiBi with three baselines, in alternation: stock fairseq's (T, T) float
mask, the authors' (B·H, T, T) mask, and torch's causal kernel without any bias as the ideal. On a
GPU, torch's FlexAttention compiled for one length is measured too. As in a model, the layers of
one call share a mask that is built in this call. With ``--path`` and ``--data``, the queries and
keys of a trained checkpoint are measured as well, since the fraction that can be skipped depends on
their size.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from alibi_fairseq.attention import BACKENDS, FutureMask, attend, repeat_heads
from alibi_fairseq.attention.skipping import certify
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.evaluation.checkpoint import load_checkpoint
from alibi_fairseq.evaluation.split import load_dictionary, load_split
from alibi_fairseq.models import self_attention
from alibi_fairseq.positions.alibi import LinearBias, is_linear
from alibi_fairseq.results.data_folder import DataFolder

from . import common

#: Number of layers and tokens per call: a small model on the CPU, the paper's on a GPU.
LAYERS = {"cpu": 1, "cuda": 8}
TOKENS = {"cpu": 3072, "cuda": 16_384}
IDEAL = "causal kernel, no bias"
#: The (B·H, T, T) mask and the eager backend need too much memory at greater lengths.
MAX_MASK_LENGTH = 8192
MAX_EAGER_LENGTH = {"cpu": 3072, "cuda": 512}


def main() -> None:
    common.run(
        __doc__,
        "attention",
        measure,
        lengths={"type": int, "nargs": "+", "help": "sequence lengths in tokens"},
        path={"type": Path, "help": "checkpoint of a trained ALiBi model"},
        data={"type": Path, "help": "data folder of the checkpoint"},
    )


def default_shapes(device: torch.device, quick: bool) -> list[tuple[int, int, int]]:
    """Return the number of heads, head size, and sequence length of each measurement."""
    if device.type == "cuda":
        paper = [(8, 128, length) for length in (512, 1024, 3072, 8192, 16_384, 32_768)]
        return [*paper, (16, 64, 3072)]
    lengths = [512, 1024, 3072] if quick else [512, 1024, 3072, 8192]
    return [(8, 64, length) for length in lengths]


def measure(args) -> Iterator[dict]:
    """Yield one result record per shape, kind of weights, and variant."""
    device = common.device()
    shapes = default_shapes(device, args.quick)
    if args.lengths:
        heads, head_size, _ = shapes[0]
        shapes = [(heads, head_size, length) for length in args.lengths]
    trained_lengths = set()  # the checkpoint has one shape
    for heads, head_size, length in shapes:
        shape = (max(1, TOKENS[device.type] // length), heads, length, head_size)
        yield from measure_layers(args, random_layers(shape, device), "random")
        if args.path and length not in trained_lengths:
            trained_lengths.add(length)
            layers, bias = capture_layers(args.path, args.data, "valid", length)
            if not is_linear(bias):
                raise UserInputError(f"{args.path} is not an ALiBi model. Pass one with --path.")
            yield from measure_layers(args, layers, "trained")


def random_layers(shape: tuple[int, ...], device: torch.device) -> list:
    """Return q, k, and v of each layer, with the sizes that fairseq's initialization gives."""
    layers = []
    for _ in range(LAYERS[device.type]):
        q, k, v = torch.randn(3, *shape, device=device).mul(0.5**0.5)
        layers.append((q, k, v))
    return layers


def make_variants(layers: list, device: torch.device) -> dict[str, Callable[[], None]]:
    """Return functions that compute attention of every layer, forward and backward, by name."""
    dtype = common.precision(device)
    leaves = [[x.to(device, dtype).requires_grad_() for x in layer] for layer in layers]
    batch, heads, length, _ = leaves[0][0].shape
    grad = torch.randn_like(leaves[0][0])
    causal = torch.full((length, length), -torch.inf, device=device, dtype=dtype).triu_(1)

    def forward_and_backward(function):
        def run_layers():
            mask = FutureMask(LinearBias(heads), length, length)
            for q, k, v in leaves:
                torch.autograd.grad(function(q, k, v, mask), (q, k, v), grad)

        return run_layers

    def with_mask(tensor):
        return forward_and_backward(
            lambda q, k, v, mask: scaled_dot_product_attention(q, k, v, attn_mask=tensor)
        )

    def with_backend(name):
        return forward_and_backward(lambda q, k, v, mask: attend(q, k, v, mask, backend=name)[0])

    variants = {
        IDEAL: forward_and_backward(
            lambda q, k, v, mask: scaled_dot_product_attention(q, k, v, is_causal=True)
        ),
        "stock: (T, T) mask, no bias": with_mask(causal),
    }
    if length <= MAX_MASK_LENGTH:
        slopes = LinearBias(heads).slopes(device).to(dtype).view(-1, 1, 1)  # (H, 1, 1)
        keys = torch.arange(length, device=device, dtype=dtype)
        bias = causal + slopes * keys  # (H, T, T)
        mask = bias.repeat(batch, 1, 1).view(batch, heads, length, length)
        variants["materialised: (B·H, T, T) mask"] = with_mask(mask)
    if device.type == "cuda":
        variants["torch's flex_attention for one length"] = forward_and_backward(
            flex_for_one_length(LinearBias(heads).slopes(device), length)
        )
    for name, backend in BACKENDS.items():
        if name == "eager" and length > MAX_EAGER_LENGTH[device.type]:
            continue
        mask = FutureMask(LinearBias(heads), length, length)
        if backend.unsupported_reason(*leaves[0], mask, 0.0) is None:
            variants[name] = with_backend(name)
    return variants


def flex_for_one_length(slopes: Tensor, length: int) -> Callable[..., Tensor]:
    """Return FlexAttention with ALiBi as PyTorch's documentation writes it, compiled anew."""

    def causal(batch, head, query, key):
        return query >= key

    def alibi(score, batch, head, query, key):
        return score - slopes[head] * (query - key)

    blocks = create_block_mask(causal, None, None, length, length, device=slopes.device)

    @torch.compile(dynamic=False, fullgraph=True)
    def compiled(q, k, v):
        return flex_attention(q, k, v, score_mod=alibi, block_mask=blocks)

    return lambda q, k, v, mask: compiled(q, k, v)


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
        heads = q.shape[1]
        keys = repeat_heads(k.detach(), heads)
        layers.append((q.detach(), keys, repeat_heads(v.detach(), heads)))
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
