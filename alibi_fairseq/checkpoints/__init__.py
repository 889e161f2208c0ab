"""Checkpoints of others: reading them safely, and turning the authors' released ones into ours."""

from .loading import read_checkpoint

__all__ = ["read_checkpoint"]
