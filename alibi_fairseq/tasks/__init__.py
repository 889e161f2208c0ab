"""Registered tasks."""

import fairseq  # noqa: F401  (registers this package)

from .segment_language_modeling import SegmentLanguageModelingTask

__all__ = ["SegmentLanguageModelingTask"]
