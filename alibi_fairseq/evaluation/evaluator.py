"""Evaluator of a sweep: what measures the cases of a text or of a probe."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ..results.case import Case
from ..results.values import Cost, ProbeValues, TextSummary, TextValues
from .device import find_device
from .sweep import Sweep

if TYPE_CHECKING:
    from .checkpoint import LoadedModel


class Measured(NamedTuple):
    """Values of a case, and what it cost to compute them."""

    values: TextValues | ProbeValues
    cost: Cost


class Evaluator(ABC):
    """Evaluator of checkpoints, which measures the same cases for all checkpoints.

    Attributes:
        sweep: what is measured.
        text: tokenizer and sizes of the data.
        device: where it is computed.
    """

    def __init__(self, sweep: Sweep, text: TextSummary):
        self.sweep = sweep
        self.text = text
        self.device = find_device(sweep.config.device)

    @abstractmethod
    def num_inputs(self, case: Case) -> int:
        """Return the number of inputs of a case, for the progress bar."""

    @abstractmethod
    def measure(
        self, model: LoadedModel, case: Case, progress: Callable[[int], object]
    ) -> Measured:
        """Measure a case.

        Args:
            model: the model.
            case: a case of the sweep.
            progress: called with the number of inputs computed since its last call.

        Raises:
            UserInputError: the model cannot compute the case.
        """
