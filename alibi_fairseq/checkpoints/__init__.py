"""Checkpoints of others: reading them safely, and turning the authors' released ones into ours."""

from .loading import read_checkpoint
from .released import Import, import_released

__all__ = ["Import", "import_released", "read_checkpoint"]
