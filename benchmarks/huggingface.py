"""Memory of ALiBi in transformers' models: ``python -m benchmarks.huggingface [--quick]``.

Compares BLOOM, MPT, and Falcon with and without ``attn_implementation="alibi_fairseq"``
(:mod:`alibi_fairseq.huggingface.attention`). Each model has 2 layers, d=512, 8 heads, and 1,024
words, so that attention and not the output layer takes the memory. The memory is the peak of one
forward and backward pass (``train``), or of a forward pass without gradients (``evaluate``), of one
row, beyond the weights, in a separate process. No time is measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib import metadata

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from alibi_fairseq.huggingface import attention
from alibi_fairseq.peak_memory import PeakMemory

from . import common

WIDTH = 512
HEADS = 8
LAYERS = 2
WORDS = 1024
LENGTHS = (512, 1024, 2048, 4096)
#: Attention of transformers that ours is compared with. Eager Falcon adds ALiBi twice.
BASELINES = {"bloom": "eager", "mpt": "eager", "falcon": "sdpa"}
#: Names of the sizes in each configuration, and further options.
SIZES = {
    "bloom": dict(hidden_size=WIDTH, n_layer=LAYERS, n_head=HEADS),
    "mpt": dict(d_model=WIDTH, n_layers=LAYERS, n_heads=HEADS, max_seq_len=max(LENGTHS)),
    "falcon": dict(
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        alibi=True,
        multi_query=False,
    ),
}


def main() -> None:
    common.run(__doc__, "huggingface", measure)


def measure(args: argparse.Namespace) -> Iterator[dict]:
    """Yield one result record per phase, model, length, and attention implementation."""
    lengths = LENGTHS[:2] if args.quick else LENGTHS
    for phase in ("train", "evaluate"):
        for name, baseline in BASELINES.items():
            for length in lengths:
                megabytes = {}
                for variant in (baseline, attention.NAME):
                    megabytes[variant] = common.run_in_new_process(
                        peak_memory, name, variant, length, phase
                    )
                for variant, peak in megabytes.items():
                    ratio = peak / megabytes[baseline]
                    print(f"{phase}, {name}, {length}, {variant}: {peak:.0f} MB, {ratio:.3f}")
                    yield {
                        "name": f"memory of transformers' {name}, {variant}",
                        "variant": variant,
                        "model": name,
                        "phase": phase,
                        "length": length,
                        "batch": 1,
                        "version": f"transformers {metadata.version('transformers')}",
                        "baseline": baseline,
                        "ratio": None,  # no time is measured
                        "peak_memory_mb": round(peak, 1),
                        "memory_ratio": round(ratio, 3),
                    }


def peak_memory(name: str, variant: str, length: int, phase: str) -> float:
    """Return the peak memory of one pass of a model beyond its weights and gradients, in MB."""
    attention.register()
    device = common.device()
    config = AutoConfig.for_model(name, vocab_size=WORDS, **SIZES[name])
    model = AutoModelForCausalLM.from_config(config, attn_implementation=variant)
    model.to(device, common.precision(device)).train(phase == "train")
    tokens = torch.randint(WORDS, (1, length), device=device)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    compute(model, tokens[:, :32], phase)  # libraries allocate buffers in the first pass
    resident = PeakMemory(device).mb()
    peak = PeakMemory(device)
    compute(model, tokens, phase)
    return peak.mb() - resident


def compute(model: torch.nn.Module, tokens: torch.Tensor, phase: str) -> None:
    """Compute the loss of a row, and in training its gradients."""
    with torch.set_grad_enabled(phase == "train"):
        loss = model(tokens, labels=tokens, use_cache=False).loss
    if phase == "train":
        loss.backward()


if __name__ == "__main__":
    main()
