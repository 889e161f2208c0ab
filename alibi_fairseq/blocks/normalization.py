"""Layer norm and RMSNorm.

RMSNorm divides a vector by its root mean square, √(mean(x²) + eps), and multiplies it by a learned
weight (Zhang & Sennrich 2019, https://arxiv.org/abs/1910.07467). Unlike layer norm, it subtracts no
mean and adds no bias. eps is 1e-6 as in Llama 1 and Qwen3; Llama 2 and 3 have 1e-5.
"""

from __future__ import annotations

from torch import nn

#: Values of ``--normalization``.
NORMALIZATIONS = ("layer", "rms")
#: Default of ``--rms-norm-eps``.
EPS = 1e-6


def build_norm(kind: str, width: int, eps: float = EPS) -> nn.Module:
    """Return a layer norm or, if ``kind`` is ``rms``, an RMSNorm with this eps."""
    return nn.RMSNorm(width, eps) if kind == "rms" else nn.LayerNorm(width)


def replace_layer_norms(module: nn.Module, eps: float) -> None:
    """Replace the layer norms among the direct children of a module by RMSNorms."""
    for name, child in list(module.named_children()):
        # fairseq's class depends on the installation: torch.nn.LayerNorm or apex's FusedLayerNorm.
        if type(child).__name__.endswith("LayerNorm"):
            setattr(module, name, nn.RMSNorm(child.normalized_shape, eps))
