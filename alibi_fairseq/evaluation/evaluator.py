"""Interface of the evaluators of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..results.record import AnyMeasurement
from ..results.result import Result, Wanted

if TYPE_CHECKING:
    from .checkpoint import LoadedModel


class Evaluator(Protocol):
    """Evaluator of a sweep, which measures the same cases for all checkpoints.

    A case is the settings of one measurement, such as split, length, and stride.

    Attributes:
        kind: kind of the results file.
        subsets: splits whose hash the results file records.
        corpus: name of the corpus in the results file.
        cases: settings of each measurement, by their keys in its record.
    """

    kind: str
    subsets: Sequence[str]
    corpus: str
    cases: list[dict]

    def wanted(self, case: dict, trained: Result) -> Wanted:
        """Return the result of a case that a checkpoint should have.

        Args:
            trained: any result of the checkpoint, which says how it was trained.
        """

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
        earlier: list[Any],
        progress: Callable[[int], object],
    ) -> AnyMeasurement:
        """Measure a case.

        Args:
            model: the model.
            case: an entry of ``cases``.
            earlier: records of the model on the same text, in windows of any length and stride.
            progress: called with the number of inputs computed since its last call.

        Raises:
            UserInputError: the model cannot compute the case.
        """
