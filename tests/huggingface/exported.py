"""Random models and their conversion to Hugging Face formats."""

from __future__ import annotations

import torch
from conftest import small_model

from alibi_fairseq.huggingface.conversion import Converted, convert_decoder

BLOOM = "--layernorm-embedding --activation-fn gelu_accurate"
ADAPTIVE = (
    "--adaptive-input --adaptive-input-cutoff 20,40 --adaptive-input-factor 2 "
    "--adaptive-softmax-cutoff 20,40 --adaptive-softmax-factor 2 --criterion adaptive_loss "
    "--no-share-decoder-input-output-embed"
)
#: LongRoPE factors for heads of 8 features, as in :func:`perturbed`.
LONGROPE = "--longrope-short-factors 1,1,1.5,2 --longrope-long-factors 1,2,3,4"
TIED = f"{ADAPTIVE} --tie-adaptive-weights --tie-adaptive-proj"

#: Llama's block, and Qwen3's.
LLAMA = "--normalization rms --ffn swiglu --no-linear-biases --rms-norm-eps 1e-4"
QWEN3 = f"{LLAMA} --normalize-queries-keys"


def perturbed(method: str, flags: str = "", heads: int = 8, length: int = 32, noise: float = 0.1):
    """Return a random model with norms and biases different from their initial values."""
    options = flags.split()
    if "gelu_accurate" in options:
        options += ["--decoder-ffn-embed-dim", str(32 * heads)]  # BLOOM's is four times the width
    model = small_model(method, *options, heads=heads, tokens_per_sample=length)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(noise * torch.randn_like(parameter))
    return model


def converted(model, method: str, length: int = 32) -> Converted:
    return convert_decoder(model.decoder, method, length)
