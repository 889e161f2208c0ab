"""The finished cells of a study, read from their JSON, and intervals over their documents.

Documents are drawn with replacement, and the loss of a draw is the sum of the bits of its documents
over the sum of their tokens. Two models are compared on the same draws, since they saw the same text:
most of the spread between documents cancels.

Shapes: D documents, R draws (rounds in speeds).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...results.schema import load_document
from .description import Key

#: Folder of the speeds in the results, a document per corpus.
SPEEDS = "speeds"
#: Tokens per second in training, by corpus, method and training length: (R,) one per round.
Speeds = dict[tuple[str, str, int], np.ndarray]
DRAWS = 4000
#: Of a two-sided interval.
LEVEL = 0.95


@dataclass(frozen=True)
class Sums:
    """Of one evaluation, by document.

    Attributes:
        bits: (D,) losses.
        tokens: (D,).
    """

    bits: np.ndarray
    tokens: np.ndarray

    @property
    def loss(self) -> float:
        """Bits per token."""
        return float(self.bits.sum() / self.tokens.sum())

    @property
    def perplexity(self) -> float:
        return 2.0**self.loss


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


@dataclass(frozen=True)
class Interval:
    """A number with its interval."""

    value: float
    low: float
    high: float


def draws(documents: int, seed: int = 1) -> np.ndarray:
    """(R, D) how often each draw takes each document."""
    generator = np.random.default_rng(seed)
    return generator.multinomial(documents, np.full(documents, 1 / documents), size=DRAWS)


def perplexity(one: Sums) -> Interval:
    """A perplexity with its interval."""
    drawn = 2.0 ** _losses(one, draws(len(one.bits)))
    return _interval(one.perplexity, drawn)


def change(one: Sums, other: Sums) -> Interval:
    """Perplexity of ``one`` relative to ``other`` minus 1: −0.1 is 10 % lower.

    Both must be of the same documents.
    """
    if not np.array_equal(one.tokens, other.tokens):
        raise ValueError("The two evaluations are not of the same tokens.")
    times = draws(len(one.bits))
    drawn = 2.0 ** (_losses(one, times) - _losses(other, times)) - 1
    return _interval(2.0 ** (one.loss - other.loss) - 1, drawn)


def speed_up(one: np.ndarray, other: np.ndarray) -> Interval:
    """The speed of ``one`` relative to ``other`` minus 1: 0.1 is 10 % faster.

    The median over rounds of the ratio within a round; the interval is over the choice of rounds.

    Args:
        one, other: (R,) speeds measured in the same rounds.
    """
    ratios = one / other
    taken = np.random.default_rng(1).integers(len(ratios), size=(DRAWS, len(ratios)))
    return _interval(float(np.median(ratios)) - 1, np.median(ratios[taken], axis=1) - 1)


def _losses(one: Sums, times: np.ndarray) -> np.ndarray:
    return (times @ one.bits) / (times @ one.tokens)  # (R,)


def _interval(value: float, drawn: np.ndarray) -> Interval:
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(value, float(low), float(high))
