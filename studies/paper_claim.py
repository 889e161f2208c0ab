"""The page with the paper's own results on the claim of its title, and a panel of a figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from alibi_fairseq.paper import published
from alibi_fairseq.positions.display_names import method_name
from alibi_fairseq.reporting import markdown
from alibi_fairseq.reporting.line_styles import method_style
from alibi_fairseq.reporting.plots import Panel, PlotLine

from .cost_and_lead import PaperPair, effect_cell, paper_pairs, table5_pair, table5_pairs
from .pages import section, write_page
from .published_gaps import published_gap_slots

PAGE = "title-claim.md"
TEMPLATE = Path(__file__).with_name("paper-claim.md")
#: Names of the paper's texts.
TEXTS = {
    "wikitext-103": "WikiText-103",
    "bookcorpus": "BookCorpus",
    "cc100-roberta": "CC100+RoBERTa, 1.3B",
}
#: Columns of pairs of one table of the paper that are the same in all rows.
SAME_IN_A_TABLE = ("corpus", "source")


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
        num_holding=sum(pair.e6 < 0 for pair in pairs),
        num_pairs=len(pairs),
        **_lengths_in_table5(),
        holding=_holding_table(),
        cost_and_lead=section("cost-and-lead"),
        pairs=pairs_table(shown),
        all_pairs=_all_pairs_table(),
        **published_gap_slots(),
    )


def _lengths_in_table5() -> dict[str, int]:
    """Return from which training length on the claim always holds, and up to which it never does.

    Between them, it depends on the length of the sinusoidal model.
    """
    failing = [pair.short for pair in table5_pairs() if pair.e6 >= 0]
    holding = [pair.short for pair in table5_pairs() if pair.e6 < 0]
    return {
        "always_from": min(short for short in holding if short > max(failing)),
        "never_to": max(short for short in failing if short < min(holding)),
    }


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
        row = [TEXTS[pair.corpus], source, f"{pair.short} and {pair.long}"]
        for value in (pair.alibi_short, pair.alibi_long, pair.sinusoidal_long):
            row.append(markdown.NOTHING if value is None else markdown.perplexity(value))
        row += [effect_cell(effect) for effect in (pair.cost, pair.lead, pair.e6)]
        rows.append([row[index] for index in shown])
    left = 0 if "corpus" in left_out else 2
    return markdown.table([headers[index] for index in shown], rows, left)


def _holding_table() -> str:
    """Write in how many of the pairs of each source the claim holds."""
    totals: Counter = Counter()
    holding: Counter = Counter()
    for pair in paper_pairs():
        windows = "no overlap" if pair.stride == pair.long else f"stride {pair.stride}"
        source = (TEXTS[pair.corpus], pair.source, windows)
        totals[source] += 1
        holding[source] += pair.e6 < 0
    rows = [[*source, f"{holding[source]} of {total}"] for source, total in totals.items()]
    return markdown.table(["corpus", "source", "windows", "claim holds in"], rows, left=3)


def _all_pairs_table() -> str:
    """Write E6 of all pairs of Table 5, and the lead at each longer length."""
    pairs = table5_pairs()
    longs = sorted({pair.long for pair in pairs})
    leads = {pair.long: effect_cell(pair.lead) for pair in pairs}
    rows = []
    for short in sorted({pair.short for pair in pairs}):
        row = [str(short)]
        for long in longs:
            pair = table5_pair(short, long)
            row.append(effect_cell(None if pair is None else pair.e6))
        rows.append(row)
    rows.append(["lead", *(leads[long] for long in longs)])
    return markdown.table(["ALiBi ↓ sinusoidal →", *map(str, longs)], rows)


def trained_long_panel(short: int) -> Panel:
    """Create the panel of Table 5, at the training length of a study.

    Args:
        short: training length L of the study. Without it in the paper, L is 512.
    """
    if table5_pair(short, 4 * short) is None:
        short = 512
    long = 4 * short
    lines = []
    for method, train_length in (("alibi", long), ("sinusoidal", long), ("alibi", short)):
        x = []
        y = []
        for row in published.rows("table05"):
            found = row["position_method"], row["train_length"]
            if found == (method, train_length) and row["length"] <= long:
                x.append(row["length"])
                y.append(row["perplexity"])
        label = f"{method_name(method)}, L = {train_length:,}"
        style = method_style(method_name(method), train_length, (short, long))
        lines.append(PlotLine(label, x, y, style))
    return Panel("The paper (Table 5)", lines, trained_at=short)
