"""Cost and lead: the two effects whose difference decides the claim of the paper's title.

Three models are evaluated at 4 L: ALiBi trained at L, ALiBi trained at 4 L, and sinusoidal
embeddings trained at 4 L. In log perplexity, E6 = cost - lead:

- cost: from ALiBi trained at 4 L to ALiBi trained at L. What does training short cost?
- lead: from ALiBi to sinusoidal embeddings, both trained at 4 L. What does ALiBi gain at equal
  length?
- E6: from sinusoidal embeddings trained at 4 L to ALiBi trained at L. Does the claim hold?
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from alibi_fairseq.reporting import markdown
from alibi_fairseq.reporting.table import Column, Table

from .estimates import Estimate, change_between, percent
from .losses import EvaluationKey, Losses
from .paper_claim import PaperPair
from .primary_tests import StudiedModels


class ClaimKeys(NamedTuple):
    """Evaluations of the three models of the claim, in the same windows of 4 L tokens."""

    alibi_short: EvaluationKey
    alibi_long: EvaluationKey
    sinusoidal_long: EvaluationKey


class CostAndLead(NamedTuple):
    """The two effects and their difference."""

    cost: Estimate
    lead: Estimate
    e6: Estimate


def claim_keys(models: StudiedModels, stride: int | None = None) -> ClaimKeys:
    """Return the evaluations at 4 L of the models of E6.

    Args:
        models: models of the six tests.
        stride: tokens scored per window. None: no overlap.
    """
    return ClaimKeys(
        alibi_short=models.key("alibi", 4, stride),
        alibi_long=models.key("alibi", 4, stride, trained_multiple=4),
        sinusoidal_long=models.key("sinusoidal", 4, stride, trained_multiple=4),
    )


def estimate_cost_and_lead(losses: Losses, keys: ClaimKeys) -> CostAndLead | None:
    """Estimate cost, lead, and E6; None while a model is missing or has fewer than two seeds."""
    cost = change_between(losses, keys.alibi_short, keys.alibi_long)
    lead = change_between(losses, keys.sinusoidal_long, keys.alibi_long)
    e6 = change_between(losses, keys.alibi_short, keys.sinusoidal_long)
    if cost is None or lead is None or e6 is None:
        return None
    return CostAndLead(cost, lead, e6)


def with_interval(estimate: Estimate) -> str:
    """Return an estimated change with its 95% interval in parentheses."""
    low, high = estimate.interval()
    return f"{percent(estimate.value)} ({percent(low)} … {percent(high)})"


class EffectsRow(NamedTuple):
    """Row of a table of cost, lead, and E6.

    Attributes:
        names: texts of the first columns.
        effects: estimates, or the paper's numbers.
    """

    names: Sequence[str]
    effects: CostAndLead | PaperPair


def cost_and_lead_table(headers: Sequence[str], rows: Sequence[EffectsRow]) -> str:
    """Write a table of cost, lead, and E6, with 95% intervals of our models.

    Args:
        headers: headers of the first columns.
        rows: the rows.
    """
    columns = []
    for index, header in enumerate(headers):
        columns.append(Column[EffectsRow](header, partial(_name_cell, index)))
    for title, name in (("cost", "cost"), ("lead", "lead"), ("short vs. long", "e6")):
        columns.append(Column[EffectsRow](title, partial(_effect_cell, name)))
    return markdown.to_markdown([Table(columns, rows, left=len(headers))])


def _name_cell(index: int, row: EffectsRow) -> str:
    return row.names[index]


def _effect_cell(name: str, row: EffectsRow) -> str:
    """Return an effect, with its interval if it is estimated; a dash if the paper lacks it."""
    effect = getattr(row.effects, name)
    if effect is None:
        return markdown.NOTHING
    return with_interval(effect) if isinstance(effect, Estimate) else percent(effect)
