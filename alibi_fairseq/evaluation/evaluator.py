"""Interface of the evaluators of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..results.result import Cost, ProbeValues, Result, TextSummary, TextValues, Wanted
from .weights import Weights

if TYPE_CHECKING:
    from .checkpoint import LoadedModel


class Measured(NamedTuple):
    """Values of a case, and what it cost to compute them."""

    values: TextValues | ProbeValues
    cost: Cost


class Evaluator(Protocol):
    """Evaluator of checkpoints, which measures the same cases for all checkpoints.

    A case is the settings of one measurement, such as split, length, and stride.

    Attributes:
        kind: kind of its cases, as in :class:`..results.case.Case`.
        subsets: splits whose hash the results file records.
        cases: settings of each measurement, by name.
        text: tokenizer and sizes of the data.
    """

    kind: str
    subsets: Sequence[str]
    cases: list[dict]
    text: TextSummary

    def wanted(self, case: dict, weights: Weights) -> Wanted:
        """Return the result of a case that a checkpoint should have."""

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
        earlier: list[Result],
        progress: Callable[[int], object],
    ) -> Measured:
        """Measure a case.

        Args:
            model: the model.
            case: an entry of ``cases``.
            earlier: results of the model on the same text, in windows of any length and stride.
            progress: called with the number of inputs computed since its last call.

        Raises:
            UserInputError: the model cannot compute the case.
        """
