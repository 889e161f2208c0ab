"""The page with the paper's own results on the claim of its title."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from alibi_fairseq.reporting import markdown

from ..analysis.cost_and_lead import paper_pairs, table5_pair, table5_pairs
from ..analysis.estimates import percent
from ..analysis.published_gaps import published_gap_range, published_models
from ..sections.cost_and_lead import PAPER_TEXTS, effect_cell, pairs_table
from ..sections.templates import section, write_page

PAGE = "title-claim.md"
TEMPLATE = Path(__file__).with_name("paper_page.md")


def write_paper_page(folder: Path) -> Path:
    """Write how often the claim holds in the paper's tables, and published leads of ALiBi.

    Args:
        folder: folder with the paper's numbers.

    Returns:
        The path of the page.
    """
    pairs = paper_pairs()
    shown = []
    for pair in pairs:
        # Of Table 5, only L and 4 L, and the pair of the paper's text.
        is_shown = pair.long == 4 * pair.short or (pair.short, pair.long) == (512, 3072)
        if is_shown or pair.tables != ("table05",):
            shown.append(pair)
    return write_page(
        folder,
        TEMPLATE,
        PAGE,
        num_holding=sum(pair.short_vs_long < 0 for pair in pairs),
        num_pairs=len(pairs),
        **_lengths_in_table5(),
        holding=_holding_table(),
        cost_and_lead=section("cost_and_lead"),
        pairs=pairs_table(shown),
        all_pairs=_all_pairs_table(),
        **_published_gap_slots(),
    )


def _lengths_in_table5() -> dict[str, int]:
    """Return from which training length on the claim always holds, and up to which it never does.

    Between them, it depends on the length of the sinusoidal model.
    """
    failing = [pair.short for pair in table5_pairs() if pair.short_vs_long >= 0]
    holding = [pair.short for pair in table5_pairs() if pair.short_vs_long < 0]
    return {
        "always_from": min(short for short in holding if short > max(failing)),
        "never_to": max(short for short in failing if short < min(holding)),
    }


def _holding_table() -> str:
    """Write in how many of the pairs of each source the claim holds."""
    totals: Counter = Counter()
    holding: Counter = Counter()
    for pair in paper_pairs():
        windows = "no overlap" if pair.stride == pair.long else f"stride {pair.stride}"
        source = (PAPER_TEXTS[pair.corpus], pair.source, windows)
        totals[source] += 1
        holding[source] += pair.short_vs_long < 0
    rows = [[*source, f"{holding[source]} of {total}"] for source, total in totals.items()]
    return markdown.table(["corpus", "source", "windows", "claim holds in"], rows, left=3)


def _all_pairs_table() -> str:
    """Write short vs. long of all pairs of Table 5, and the lead at each longer length."""
    pairs = table5_pairs()
    longs = sorted({pair.long for pair in pairs})
    leads = {pair.long: effect_cell(pair.lead) for pair in pairs}
    rows = []
    for short in sorted({pair.short for pair in pairs}):
        row = [str(short)]
        for long in longs:
            pair = table5_pair(short, long)
            row.append(effect_cell(None if pair is None else pair.short_vs_long))
        rows.append(row)
    rows.append(["lead", *(leads[long] for long in longs)])
    return markdown.table(["ALiBi ↓ sinusoidal →", *map(str, longs)], rows)


def _published_gap_slots() -> dict[str, str]:
    """Return the published perplexities, and the range of their leads and recovered shares."""
    lowest, highest = published_gap_range()
    all_shares = [models.recovered for models in published_models()]
    shares = [share for share in all_shares if share is not None]
    return {
        "gaps": _gaps_table(),
        "lowest": percent(lowest),
        "highest": percent(highest),
        "low_share": f"{100 * min(shares):.0f}%",
        "high_share": f"{100 * max(shares):.0f}%",
    }


def _gaps_table() -> str:
    """Write the published perplexities, their differences from ALiBi, and recovered shares."""
    headers = ["dataset", "parameters", "L", "ALiBi", "sinusoidal", "rotary", "T5 bias"]
    headers += ["no positions", "recovered"]
    rows = []
    for models in published_models():
        row = [models.text, models.parameters, str(models.train_length)]
        row.append(markdown.perplexity(models.perplexity["alibi"]))
        for method in ("sinusoidal", "rotary", "t5", "none"):
            gap = models.gap(method)
            cell = markdown.NOTHING
            if gap is not None:
                cell = f"{markdown.perplexity(models.perplexity[method])} ({percent(gap)})"
            row.append(cell)
        share = models.recovered
        rows.append([*row, markdown.NOTHING if share is None else f"{100 * share:.0f}%"])
    return markdown.table(headers, rows)
