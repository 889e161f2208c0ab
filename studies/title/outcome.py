"""The outcome of the title test, by the rules of ``protocol.md``."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..analysis.baseline import is_published_lead
from ..analysis.compared_models import ComparedLosses, ComparedModels
from ..analysis.cost_and_lead import CostAndLead, estimate_cost_and_lead
from ..analysis.estimates import Estimate, estimate_step
from ..analysis.losses import Measurement, check_same_documents
from ..analysis.six_tests import missing_models
from ..analysis.study_results import StudyResults

#: Configurations of the budgets, in ascending order; also the names of their folders of results.
BUDGETS = ("3M", "12M", "49M")
#: Evaluations at 4 L of the three kinds of models.
KINDS = ("alibi-1@4", "alibi-4@4", "sinusoidal-4@4")
#: The line through the last two budgets is extended to this multiple of the largest one.
EXTENSION = 4

SUPPORTED = "supported"
CONTRADICTED = "contradicted"
INCONCLUSIVE = "inconclusive"
BASELINE_NOT_TRAINED = "baseline not trained"

RISES = "rises"
FALLS = "falls"
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Budget:
    """The models of one number of training tokens.

    Attributes:
        name: name of the configuration.
        study: results of the models.
        losses: losses of the finished models.
        tokens: tokens that the finished models were trained on, as a mean; 0 without any.
    """

    name: str
    study: StudyResults
    losses: ComparedLosses
    tokens: float

    @property
    def missing(self) -> tuple[str, ...]:
        """The kinds of models without all seeds, with the seeds that are finished."""
        return missing_models(self.losses, KINDS)

    def effects(self, stride: str = "") -> CostAndLead:
        """Return cost, lead, and short vs. long of a complete budget.

        Args:
            stride: :data:`~studies.analysis.compared_models.SLIDING`, or empty without overlap.
        """
        effects = estimate_cost_and_lead(self.losses, stride=stride)
        assert effects is not None, f"{self.name} is not complete"
        return effects


def load_budgets(folder: Path, models: ComparedModels) -> list[Budget]:
    """Read the results of all budgets, with or without finished models.

    Args:
        folder: holds a folder per budget.
        models: text and training length L.

    Raises:
        UserInputError: models of two budgets were tested on different text.
    """
    budgets = []
    measurements: list[Measurement] = []
    for name in BUDGETS:
        study = StudyResults.load(folder / name)
        tokens = []
        for model in study.models:
            tokens.append(model.last_validation.cost.trained_tokens or 0)
            measurements += model.measurements()
        mean_tokens = statistics.mean(tokens) if tokens else 0.0
        budgets.append(Budget(name, study, ComparedLosses(models, study.losses), mean_tokens))
    check_same_documents(measurements)
    return budgets


@dataclass(frozen=True)
class TitleOutcome:
    """The outcome at the largest complete budget, and the direction of the curve.

    Attributes:
        complete: budgets with all seeds of all kinds of models, in ascending order.
    """

    complete: Sequence[Budget]

    @property
    def budget(self) -> Budget:
        """The largest complete budget."""
        return self.complete[-1]

    @property
    def effects(self) -> CostAndLead:
        """Its cost, lead, and short vs. long."""
        return self.budget.effects()

    @property
    def lead_is_published(self) -> bool:
        """True if the 95% interval of its lead ends at the largest published lead or below."""
        return is_published_lead(self.effects.lead)

    @property
    def lead_falls(self) -> bool | None:
        """True if its lead is smaller than at the next smaller budget; None without one."""
        if len(self.complete) < 2:
            return None
        return self.effects.lead.value < self.complete[-2].effects().lead.value

    @property
    def baseline_is_trained(self) -> bool:
        """True if both conditions of the protocol hold."""
        return self.lead_is_published and self.lead_falls is True

    @property
    def outcome(self) -> str:
        """One of the four outcomes of the protocol."""
        if not self.baseline_is_trained:
            return BASELINE_NOT_TRAINED
        low, high = self.effects.short_vs_long.interval()
        if high < 0:
            return SUPPORTED
        if low > 0:
            return CONTRADICTED
        return INCONCLUSIVE

    @property
    def verdict(self) -> str:
        """The outcome, with the words for a line that crosses zero soon."""
        return self.outcome if self.crossing is None else f"{self.outcome} at this budget"

    @property
    def steps(self) -> list[Estimate]:
        """Change of short vs. long (E6) from each complete budget to the next."""
        steps = []
        for budgets in zip(self.complete, self.complete[1:]):
            sides = []
            for budget in budgets:
                short = budget.losses.find("alibi-1@4")
                long = budget.losses.find("sinusoidal-4@4")
                assert short is not None, "the budget is complete"
                assert long is not None, "the budget is complete"
                sides.append((short, long))
            step = estimate_step(*sides)
            assert step is not None, "a complete budget has all seeds"
            steps.append(step)
        return steps

    @property
    def direction(self) -> str:
        """Whether short vs. long rises or falls with training, or that this is unknown."""
        intervals = [step.interval() for step in self.steps]
        if intervals and all(low > 0 for low, _ in intervals):
            return RISES
        if intervals and all(high < 0 for _, high in intervals):
            return FALLS
        return UNKNOWN

    @property
    def crossing(self) -> float | None:
        """Tokens at which short vs. long crosses zero on the line through its last two values.

        None if it doesn't.

        The line is over log tokens, and its part from the largest budget to :data:`EXTENSION` times
        that counts.
        """
        if len(self.complete) < 2:
            return None
        before, after = self.complete[-2:]
        last = after.effects().short_vs_long.value
        rise = last - before.effects().short_vs_long.value
        if rise == 0:
            return None
        per_log_token = rise / math.log(after.tokens / before.tokens)
        distance = -last / per_log_token
        if not 0 <= distance <= math.log(EXTENSION):
            return None
        return after.tokens * math.exp(distance)


def title_outcome(budgets: Sequence[Budget]) -> TitleOutcome | None:
    """Return the outcome of the title test, or None while no budget is complete."""
    complete = [budget for budget in budgets if not budget.missing]
    return TitleOutcome(complete) if complete else None
