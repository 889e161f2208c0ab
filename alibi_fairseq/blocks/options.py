"""Parts of a transformer block that can be chosen separately."""

from __future__ import annotations

from dataclasses import dataclass

from .normalization import EPS


@dataclass(frozen=True)
class BlockOptions:
    """Parts of a block, by default as in the ALiBi paper.

    Attributes:
        normalization: ``layer`` or ``rms``, before each part.
        ffn: ``mlp`` (two layers with a ReLU between them) or ``swiglu``.
        normalize_queries_keys: RMSNorm of each query and key head, before positions act on them.
        linear_biases: biases of the linear layers of attention and feed-forward network.
        rms_norm_eps: term added to the mean square of an RMSNorm.
    """

    normalization: str = "layer"
    ffn: str = "mlp"
    normalize_queries_keys: bool = False
    linear_biases: bool = True
    rms_norm_eps: float = EPS
