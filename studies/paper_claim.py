"""The paper's numbers on the claim of its title: sentences, tables, and a panel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from alibi_fairseq.paper import published
from alibi_fairseq.paper.items import items
from alibi_fairseq.paper.speeds import MethodAndLength, printed_speeds
from alibi_fairseq.positions.display_names import method_name
from alibi_fairseq.reporting import markdown
from alibi_fairseq.reporting.line_styles import method_style
from alibi_fairseq.reporting.plots import Panel, PlotLine

from .cost_and_lead import PaperPair, effect_cell, paper_pairs, table5_pair, table5_pairs
from .pages import section

#: Names of the paper's texts.
TEXTS = {
    "wikitext-103": "WikiText-103",
    "bookcorpus": "BookCorpus",
    "cc100-roberta": "CC100+RoBERTa, 1.3B",
}
#: Training length of Table 3, and its evaluation length nearest to four times that.
TABLE_3_LENGTHS = (1024, 4024)
#: Tables with the training memory of a table's models.
MEMORY_TABLES = {"table05": "table01", "table11": "table11", "table12": "table12"}
#: Columns of pairs of one table of the paper that are the same in all rows, and those of costs.
SAME_IN_A_TABLE = ("text", "source", "S")
COSTS = ("speed, short vs. sinusoidal long", "memory of these")


def paper_claim_section() -> str:
    """Return the paper's models trained long, and its models trained short."""
    pairs = paper_pairs()
    shown = []
    for pair in pairs:
        # Of Table 5, only L and 4 L, and the pair of the paper's text.
        is_shown = pair.long == 4 * pair.short or (pair.short, pair.long) == (512, 3072)
        if is_shown or pair.tables != ("table05",):
            shown.append(pair)
    return section(
        "paper-claim",
        pairs=pairs_table(shown),
        num_holding=sum(pair.e6 < 0 for pair in pairs),
        num_pairs=len(pairs),
        holding_by_table=_holding_by_table(),
        all_pairs=_all_pairs_table(),
        trained_short=_trained_short_table(),
    )


def pairs_table(pairs: Sequence[PaperPair], left_out: Collection[str] = ()) -> str:
    """Write the perplexities and effects of pairs, and what their trainings cost.

    Args:
        pairs: the rows.
        left_out: titles of columns to leave out.
    """
    headers = [*SAME_IN_A_TABLE, "trained short and long"]
    headers += ["ALiBi, short", "ALiBi, long", "sinusoidal, long", "cost", "lead", "short vs. long"]
    headers += COSTS
    shown = [index for index, header in enumerate(headers) if header not in left_out]
    rows = []
    for pair in pairs:
        stride = markdown.NOTHING if pair.stride == pair.long else str(pair.stride)
        row = [TEXTS[pair.corpus], pair.source, stride, f"{pair.short} and {pair.long}"]
        for value in (pair.alibi_short, pair.alibi_long, pair.sinusoidal_long):
            row.append(markdown.NOTHING if value is None else markdown.perplexity(value))
        row += [effect_cell(effect) for effect in (pair.cost, pair.lead, pair.e6)]
        row += [_speeds(pair), _memories(pair)]
        rows.append([row[index] for index in shown])
    left = 0 if "text" in left_out else 2
    return markdown.table([headers[index] for index in shown], rows, left)


def _holding_by_table() -> str:
    """Return in how many of the paper's pairs the claim holds, by table."""
    totals: Counter = Counter()
    holding: Counter = Counter()
    for pair in paper_pairs():
        name = f"{TEXTS[pair.corpus]}, {pair.source}"
        if pair.stride != pair.long:
            name += ", sliding windows"
        totals[name] += 1
        holding[name] += pair.e6 < 0
    return "; ".join(f"{holding[name]} of {total} ({name})" for name, total in totals.items())


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


def _speeds(pair: PaperPair) -> str:
    """Return the training speeds of the short and the long model; a dash except in Table 5."""
    if pair.tables != ("table05",):
        return markdown.NOTHING
    speeds = printed_speeds(items()["figure07"])
    cells = []
    for model in (MethodAndLength("alibi", pair.short), MethodAndLength("sinusoidal", pair.long)):
        speed = speeds.get(model)
        if speed is None or speed.train is None:
            cells.append(markdown.NOTHING)
        else:
            cells.append(markdown.thousands(speed.train))
    return " vs. ".join(cells)


def _memories(pair: PaperPair) -> str:
    """Return the training memory of the short and the long model; a dash without both."""
    table = MEMORY_TABLES.get(pair.tables[0])
    if table is None:
        return markdown.NOTHING
    memories = {}
    for row in published.rows(table):
        model = (row["position_method"], row["train_length"])
        memories[model] = f"{row['train_memory_gb']} GB"
    short = memories.get(("alibi", pair.short), markdown.NOTHING)
    return f"{short} vs. {memories.get(('sinusoidal', pair.long), markdown.NOTHING)}"


def _trained_short_table() -> str:
    """Write the perplexities of Table 3 at the training length and near four times that."""
    perplexities = {}
    for printed in published.rows("table03"):
        perplexities[printed["position_method"], printed["length"]] = printed["perplexity"]
    rows = []
    for method in ("sinusoidal", "rotary", "t5", "alibi"):
        row = [method_name(method)]
        for length in TABLE_3_LENGTHS:
            row.append(markdown.perplexity(perplexities[method, length]))
        rows.append(row)
    return markdown.table(["evaluated at →", *map(str, TABLE_3_LENGTHS)], rows)


def trained_long_panel(short: int) -> Panel:
    """Create the panel of Table 5, at the training length of a study.

    Args:
        short: training length L of the study. Without it in the paper, L is 512.
    """
    if table5_pair(short, 4 * short) is None:
        short = 512
    long = 4 * short
    lines = []
    for method, train_length in (("alibi", short), ("alibi", long), ("sinusoidal", long)):
        x = []
        y = []
        for row in published.rows("table05"):
            found = row["position_method"], row["train_length"]
            if found == (method, train_length) and row["length"] <= long:
                x.append(row["length"])
                y.append(row["perplexity"])
        label = f"{method_name(method)}, L = {train_length}"
        style = method_style(method_name(method), train_length, (short, long))
        lines.append(PlotLine(label, x, y, style, hollow=True))
    return Panel("The paper (Table 5)", lines, trained_at=short, end_labels=True)
