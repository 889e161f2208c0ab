"""Criterions registered with fairseq."""

from .chunked_adaptive_loss import ChunkedAdaptiveLoss
from .chunked_cross_entropy import ChunkedCrossEntropy

__all__ = ["ChunkedAdaptiveLoss", "ChunkedCrossEntropy"]
