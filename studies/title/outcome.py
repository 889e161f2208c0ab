"""The outcome of the title test, by the rules of ``protocol.md``."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from alibi_fairseq.positions.display_names import method_name

from ..cost_and_lead import ClaimKeys, CostAndLead, claim_keys, estimate_cost_and_lead
from ..estimates import Estimate, estimate_step, percent_to_nats
from ..losses import Evaluation, Losses, check_same_articles
from ..primary_tests import LARGEST_LEAD, SEEDS, StudiedModels
from ..study_results import StudyResults

#: Configurations of the budgets, in ascending order; also the names of their folders of results.
BUDGETS = ("3M", "12M", "49M")
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
        models: text and training length L.
        losses: losses of the finished models; empty without any.
        tokens: tokens that the finished models were trained on, as a mean; None without any.
    """

    name: str
    study: StudyResults
    models: StudiedModels
    losses: Losses
    tokens: float | None

    @property
    def keys(self) -> ClaimKeys:
        """The evaluations of the primary test, without overlap."""
        return claim_keys(self.models)

    @property
    def missing(self) -> list[str]:
        """The kinds of models without all seeds, with the seeds that are finished."""
        kinds = []
        for key in self.keys:
            seeds = self.losses[key].seeds if key in self.losses else ()
            if len(seeds) < SEEDS:
                found = f"{len(seeds)} of {SEEDS} seeds"
                kinds.append(f"{method_name(key.method)}, L = {key.train_length} ({found})")
        return kinds

    @property
    def is_complete(self) -> bool:
        """True if all kinds have all seeds."""
        return not self.missing

    def effects(self, stride: int | None = None) -> CostAndLead:
        """Return cost, lead, and E6 of a complete budget.

        Args:
            stride: tokens scored per window. None: no overlap.
        """
        effects = estimate_cost_and_lead(self.losses, claim_keys(self.models, stride))
        assert effects is not None, f"{self.name} is not complete"
        return effects


def load_budgets(folder: Path, models: StudiedModels) -> list[Budget]:
    """Read the results of all budgets, with or without finished models.

    Args:
        folder: holds a folder per budget.
        models: text and training length L.

    Raises:
        UserInputError: models of two budgets were tested on different text.
    """
    budgets = []
    evaluations: list[Evaluation] = []
    for name in BUDGETS:
        study = StudyResults.load(folder / name)
        tokens = []
        for model in study.models:
            tokens.append(model.last_validation.cost.trained_tokens or 0)
            evaluations += model.measurements()
        mean_tokens = statistics.mean(tokens) if tokens else None
        budgets.append(Budget(name, study, models, study.losses, mean_tokens))
    check_same_articles(evaluations)
    return budgets


@dataclass(frozen=True)
class TitleOutcome:
    """The outcome at the largest complete budget, and the direction of the curve.

    Attributes:
        budget: the largest complete budget.
        effects: its cost, lead, and E6.
        lead_is_published: True if the 95% interval of its lead ends at the largest published lead
            or below.
        lead_falls: True if its lead is smaller than at the next smaller complete budget; None
            without one.
        steps: changes of E6 from each complete budget to the next.
        crossing: tokens at which the line through E6 at the last two budgets crosses zero; None if
            it does not, up to :data:`EXTENSION` times the largest budget.
    """

    budget: Budget
    effects: CostAndLead
    lead_is_published: bool
    lead_falls: bool | None
    steps: tuple[Estimate, ...]
    crossing: float | None

    @property
    def baseline_is_trained(self) -> bool:
        """True if both conditions of the protocol hold."""
        return self.lead_is_published and self.lead_falls is True

    @property
    def outcome(self) -> str:
        """One of the four outcomes of the protocol."""
        if not self.baseline_is_trained:
            return BASELINE_NOT_TRAINED
        low, high = self.effects.e6.interval()
        if high < 0:
            return SUPPORTED
        if low > 0:
            return CONTRADICTED
        return INCONCLUSIVE

    @property
    def verdict(self) -> str:
        """The outcome, with the words for a line that crosses zero soon."""
        if self.crossing is None:
            return self.outcome
        return f"{self.outcome} at this budget"

    @property
    def direction(self) -> str:
        """Whether E6 rises or falls with training, or that this is unknown."""
        intervals = [step.interval() for step in self.steps]
        if intervals and all(low > 0 for low, _ in intervals):
            return RISES
        if intervals and all(high < 0 for _, high in intervals):
            return FALLS
        return UNKNOWN


def title_outcome(budgets: Sequence[Budget]) -> TitleOutcome | None:
    """Return the outcome of the title test, or None while no budget is complete."""
    complete = [budget for budget in budgets if budget.is_complete]
    if not complete:
        return None
    largest = complete[-1]
    effects = largest.effects()
    _, high = effects.lead.interval()
    lead_falls = None
    if len(complete) > 1:
        lead_falls = effects.lead.value < complete[-2].effects().lead.value
    return TitleOutcome(
        budget=largest,
        effects=effects,
        lead_is_published=high <= percent_to_nats(LARGEST_LEAD),
        lead_falls=lead_falls,
        steps=tuple(_e6_steps(complete)),
        crossing=_zero_crossing(complete),
    )


def _e6_steps(complete: Sequence[Budget]) -> list[Estimate]:
    """Return the change of E6 from each complete budget to the next."""
    steps = []
    for before, after in zip(complete, complete[1:]):
        sides = []
        for budget in (before, after):
            keys = budget.keys
            sides.append((budget.losses[keys.alibi_short], budget.losses[keys.sinusoidal_long]))
        step = estimate_step(*sides)
        assert step is not None, "a complete budget has all seeds"
        steps.append(step)
    return steps


def _zero_crossing(complete: Sequence[Budget]) -> float | None:
    """Return where the line through the last two values of E6 crosses zero, in tokens.

    The line is over log tokens, and its part from the largest budget to :data:`EXTENSION` times
    that counts.
    """
    if len(complete) < 2:
        return None
    before, after = complete[-2:]
    assert before.tokens is not None, "the budget is complete"
    assert after.tokens is not None, "the budget is complete"
    last = after.effects().e6.value
    rise = last - before.effects().e6.value
    if rise == 0:
        return None
    per_log_token = rise / math.log(after.tokens / before.tokens)
    distance = -last / per_log_token
    if not 0 <= distance <= math.log(EXTENSION):
        return None
    return after.tokens * math.exp(distance)
