"""Tables of cost, lead, and short vs. long, of our models and of the paper's."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from alibi_fairseq.reporting import markdown

from ..analysis.cost_and_lead import CostAndLead, PaperPair
from ..analysis.estimates import Estimate
from .changes import percent_cell, with_interval

#: Names of the paper's texts.
PAPER_TEXTS = {
    "wikitext-103": "WikiText-103",
    "bookcorpus": "BookCorpus",
    "cc100-roberta": "CC100+RoBERTa, 1.3B",
}
#: Columns of pairs of one table of the paper that are the same in all rows.
SAME_IN_A_TABLE = ("corpus", "source")


class EffectsRow(NamedTuple):
    """Row of a table of cost, lead, and short vs. long.

    Attributes:
        names: texts of the first columns.
        effects: estimates, or the paper's numbers.
    """

    names: Sequence[str]
    effects: CostAndLead | PaperPair


def cost_and_lead_table(headers: Sequence[str], rows: Sequence[EffectsRow]) -> str:
    """Write a table of cost, lead, and short vs. long, with 95% intervals of our models.

    It is empty without rows.

    Args:
        headers: headers of the first columns.
        rows: the rows.
    """
    if not rows:
        return ""
    cells = []
    for names, effects in rows:
        row = [*names, effect_cell(effects.cost), effect_cell(effects.lead)]
        cells.append([*row, effect_cell(effects.short_vs_long)])
    return markdown.table([*headers, "cost", "lead", "short vs. long"], cells, left=len(headers))


def effect_cell(effect: Estimate | float | None) -> str:
    """Return an effect, with its interval if it is estimated; a dash if the paper lacks it."""
    return with_interval(effect) if isinstance(effect, Estimate) else percent_cell(effect)


def pairs_table(pairs: Sequence[PaperPair], left_out: Collection[str] = ()) -> str:
    """Write the perplexities and effects of pairs.

    Args:
        pairs: the rows.
        left_out: titles of columns to leave out.
    """
    headers = [*SAME_IN_A_TABLE, "trained on"]
    headers += ["ALiBi, short", "ALiBi, long", "sinusoidal, long", "cost", "lead", "short vs. long"]
    shown = [index for index, header in enumerate(headers) if header not in left_out]
    rows = []
    for pair in pairs:
        source = pair.source
        if pair.stride != pair.long:
            source += f", stride {pair.stride}"
        row = [PAPER_TEXTS[pair.corpus], source, f"{pair.short} and {pair.long}"]
        for value in (pair.alibi_short, pair.alibi_long, pair.sinusoidal_long):
            row.append(markdown.NOTHING if value is None else markdown.perplexity(value))
        row += [effect_cell(effect) for effect in (pair.cost, pair.lead, pair.short_vs_long)]
        rows.append([row[index] for index in shown])
    left = 0 if "corpus" in left_out else 2
    return markdown.table([headers[index] for index in shown], rows, left)
