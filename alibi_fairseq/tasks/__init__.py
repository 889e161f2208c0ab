"""Registered tasks."""

from .segment_language_modeling import SegmentLanguageModelingTask

__all__ = ["SegmentLanguageModelingTask"]
