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
from typing import NamedTuple

from alibi_fairseq.reporting import markdown

from .estimates import Estimate, estimate_change, percent
from .losses import ArticleLosses, EvaluationKey, Losses
from .paper_claim import PaperPair
from .primary_tests import StudiedModels

HELP = """\
In log perplexity, E6 is the difference of two effects, all measured at the longer length:

- **Cost** is what ALiBi loses by training short: ALiBi trained short vs. ALiBi trained long.
- **Lead** is what it gains at equal length: sinusoidal vs. ALiBi, both trained long.
- **E6** is ALiBi trained short vs. sinusoidal trained long. The title's claim holds where it is
  below zero."""


class ClaimModels(NamedTuple):
    """Losses of the three models of the claim, all evaluated in the same windows of 4 L tokens."""

    alibi_short: ArticleLosses
    alibi_long: ArticleLosses
    sinusoidal_long: ArticleLosses


class ClaimKeys(NamedTuple):
    """Evaluations of the three models, in the same order."""

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


def claim_models(losses: Losses, keys: ClaimKeys) -> ClaimModels | None:
    """Return the losses of the three models, or None while one of them is missing."""
    if any(key not in losses for key in keys):
        return None
    return ClaimModels(*(losses[key] for key in keys))


def estimate_cost_and_lead(models: ClaimModels | None) -> CostAndLead | None:
    """Estimate cost, lead, and E6; None while a model is missing or has fewer than two seeds."""
    if models is None:
        return None
    cost = estimate_change(models.alibi_short, models.alibi_long)
    lead = estimate_change(models.sinusoidal_long, models.alibi_long)
    e6 = estimate_change(models.alibi_short, models.sinusoidal_long)
    if cost is None or lead is None or e6 is None:
        return None
    return CostAndLead(cost, lead, e6)


def with_interval(estimate: Estimate) -> str:
    """Return an estimated change with its 95% interval in parentheses."""
    low, high = estimate.interval()
    return f"{percent(estimate.value)} ({percent(low)} … {percent(high)})"


def cost_and_lead_table(
    headers: Sequence[str], rows: Sequence[tuple[Sequence[str], CostAndLead | PaperPair | None]]
) -> str:
    """Write a table of cost, lead, and E6, with 95% intervals of our models.

    Args:
        headers: headers of the first columns.
        rows: first columns, and estimates or the paper's numbers, of each row; None: a dash in each
            column.
    """
    cells = []
    for first, effects in rows:
        row = list(first)
        for name in CostAndLead._fields:
            effect = getattr(effects, name, None)
            if effect is None:
                row.append(markdown.NOTHING)
            elif isinstance(effect, Estimate):
                row.append(with_interval(effect))
            else:
                row.append(percent(effect))
        cells.append(row)
    return markdown.table([*headers, "cost", "lead", "E6"], cells, left=len(headers))
