"""Criterions registered with fairseq."""

from .chunked_losses import ChunkedAdaptiveLoss, ChunkedCrossEntropy

__all__ = ["ChunkedAdaptiveLoss", "ChunkedCrossEntropy"]
