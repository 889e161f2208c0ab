"""What one model of a comparison costs, as a function of its updates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .cell import Cell, save_interval


@dataclass(frozen=True)
class Cost:
    """Seconds that one model takes.

    Attributes:
        start: of both of its commands: imports, loading data and model.
        update: one update.
        validation: one pass over the validation split.
        evaluation: all lengths and strides.
    """

    start: float
    update: float
    validation: float
    evaluation: float

    def seconds(self, updates: int, epoch: float) -> float:
        """Of training and evaluation.

        Args:
            epoch: updates per epoch.
        """
        validations = updates / save_interval(updates) + updates / epoch + 1
        return self.start + updates * self.update + validations * self.validation + self.evaluation


def model_of(cell: Cell) -> tuple[str, str, int]:
    """What determines the cost of a cell; its seed does not."""
    return (cell.corpus.name, cell.method, cell.train_length)


def epoch_of(cell: Cell) -> float:
    """Updates per epoch."""
    return max(1.0, tokens_in(cell.data, "train") / cell.comparison.tokens_per_update)


def tokens_in(data: Path, split: str) -> int:
    """Tokens of a split, from the size of its file: two bytes each in a small vocabulary."""
    words = (data / "dict.txt").read_bytes().count(b"\n")
    return (data / f"{split}.bin").stat().st_size // (2 if words < 65_000 else 4)
