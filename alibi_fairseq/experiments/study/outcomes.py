"""The finished cells of a study, read from their JSON."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...results.schema import load_document
from .description import Key
from .statistics import Sums

#: Folder of the speeds in the results, a document per corpus.
SPEEDS = "speeds"
#: Tokens per second in training, by corpus, method and training length: (R,) one per round.
Speeds = dict[tuple[str, str, int], np.ndarray]


@dataclass(frozen=True)
class Outcome:
    """A finished cell.

    Attributes:
        text: the name of the text in its results.
        sums: of each evaluation by (length, stride, whether with the options of its variant).
        positions: by length: (first, last + 1, bits per token) within the window, as trained.
        tokens_per_second, peak_memory_mb: of the training; None if not recorded.
        hours: of the training, with its validations.
        commit: of the code, shortened.
    """

    key: Key
    text: str
    sums: dict[tuple[int, int, bool], Sums]
    positions: dict[int, list[tuple[int, int, float]]]
    tokens_per_second: float | None
    peak_memory_mb: float | None
    hours: float
    updates: int
    commit: str

    def find(self, length: int, stride: int | None = None, variant: bool = False) -> Sums | None:
        """An evaluation, of windows that do not overlap without a stride; None if it was not made."""
        return self.sums.get((length, stride or length, variant))

    def at(self, length: int) -> Sums:
        """An evaluation that was made, of windows that do not overlap."""
        return self.sums[length, length, False]

    def lengths(self) -> list[int]:
        """Lengths of windows that do not overlap."""
        return sorted(a for a, stride, changed in self.sums if stride == a and not changed)


def load_outcomes(cells: Path, keys: list[Key]) -> dict[Key, Outcome]:
    """Those of a study's cells that are finished, in their order."""
    finished = [key for key in keys if (cells / key.name / "cell.json").is_file()]
    return {key: load_outcome(cells / key.name, key) for key in finished}


def load_speeds(results: Path) -> Speeds:
    """Those that were measured, see :mod:`.speeds`."""
    return {
        (path.stem, cell["position_method"], cell["train_length"]): cell["tokens"]
        / np.array(cell["round_seconds"])
        for path in sorted((results / SPEEDS).glob("*.json"))
        for cell in load_document(path)["cells"]
    }


def load_outcome(folder: Path, key: Key) -> Outcome:
    evaluation = load_document(folder / "evaluation.json")
    by_position = load_document(folder / "position_loss.json")
    last = load_document(folder / "training.json")["cells"][-1]
    trained = min(cell.get("model_overrides", "") for cell in evaluation["cells"])
    sums: dict[tuple[int, int, bool], Sums] = {}
    positions: dict[int, list] = {}
    for cell in evaluation["cells"]:
        case = (cell["length"], cell["stride"], cell.get("model_overrides", "") != trained)
        sums[case] = Sums(np.array(cell["document_bits"]), np.array(cell["document_tokens"]))
    for cell in by_position["cells"]:
        if cell.get("model_overrides", "") == trained:
            place = (cell["position_from"], cell["position_to"], cell["loss_bits"])
            positions.setdefault(cell["length"], []).append(place)
    return Outcome(
        key,
        evaluation["corpus"],
        sums,
        positions,
        last.get("tokens_per_second"),
        last.get("peak_memory_mb"),
        last["hours"],
        last["updates"],
        (evaluation["provenance"]["git_commit"] or "unknown")[:7],
    )
