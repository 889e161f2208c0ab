"""Criterions registered with fairseq."""

import fairseq  # noqa: F401  (registers this package)

from .chunked_losses import ChunkedAdaptiveLoss, ChunkedCrossEntropy

__all__ = ["ChunkedAdaptiveLoss", "ChunkedCrossEntropy"]
