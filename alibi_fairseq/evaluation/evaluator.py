"""Interface of the evaluators of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from .checkpoint import LoadedModel


class Evaluator(Protocol):
    """Evaluator of a sweep, which measures the same cases for all checkpoints.

    A case is the settings of one measurement, such as split, length, and stride.

    Attributes:
        kind: kind of the results file.
        subsets: splits whose hash the results file records.
        corpus: name of the corpus in the results file.
        cases: settings of each measurement, by their keys in result records.
        documents_sha256: hash of the positions where documents begin; None if they do not matter.
    """

    kind: str
    subsets: Sequence[str]
    corpus: str
    cases: list[dict]
    documents_sha256: str | None = None

    def num_inputs(self, case: dict) -> int:
        """Return the number of inputs of a case, for the progress bar."""

    def check(self, model: LoadedModel, case: dict) -> None:
        """Check that a model can compute a case, before the first case is measured.

        Raises:
            UserInputError: it cannot.
        """

    def measure(
        self,
        model: LoadedModel,
        case: dict,
        earlier: list[dict],
        progress: Callable[[int], object],
    ) -> dict:
        """Measure a case.

        Args:
            model: the model.
            case: an entry of ``cases``.
            earlier: result records of the model.
            progress: called with the number of inputs computed since its last call.

        Returns:
            Measured values, by their keys in the result record.

        Raises:
            UserInputError: the model cannot compute the case.
        """
