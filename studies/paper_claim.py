"""The paper's numbers on the claim of its title."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache, partial

from alibi_fairseq.paper import published
from alibi_fairseq.paper.items import items
from alibi_fairseq.paper.speeds import MethodAndLength, printed_speeds
from alibi_fairseq.positions.display_names import method_name
from alibi_fairseq.reporting import markdown
from alibi_fairseq.reporting.line_styles import method_style
from alibi_fairseq.reporting.plots import Panel, PlotLine
from alibi_fairseq.reporting.table import Column, Table

from .estimates import percent
from .pages import section

#: Training length of Table 3, and its evaluation length nearest to four times that.
SHORT = 1024
NEAR_FOUR_TIMES = 4024

#: Names of the paper's texts.
TEXTS = {
    "wikitext-103": "WikiText-103",
    "bookcorpus": "BookCorpus",
    "cc100-roberta": "CC100+RoBERTa, 1.3B",
}
#: Tables with ALiBi trained short and long and sinusoidal embeddings trained long, and the column
#: of the perplexity on the validation split. With S = 1, each method has its own table.
SOURCES = (
    (("table05",), "perplexity"),
    (("table07",), "valid_perplexity"),
    (("table13", "table15"), "perplexity"),
    (("table08",), "perplexity"),
    (("table10",), "valid_perplexity"),
    (("table12",), "perplexity"),
    (("table11",), "perplexity"),
)


@dataclass(frozen=True)
class PaperPair:
    """ALiBi trained short and sinusoidal embeddings trained long, both evaluated at the latter.

    Attributes:
        tables: the tables with the perplexities.
        corpus: the paper's text.
        stride: tokens scored per window; equal to ``long`` without overlap.
        short: training length of the short ALiBi model.
        long: training length of the other models, and evaluation length of all.
        alibi_short: perplexity of ALiBi trained short.
        alibi_long: perplexity of ALiBi trained long; None if the paper has none.
        sinusoidal_long: perplexity of sinusoidal embeddings trained long.
    """

    tables: tuple[str, ...]
    corpus: str
    stride: int
    short: int
    long: int
    alibi_short: float
    alibi_long: float | None
    sinusoidal_long: float

    @property
    def cost(self) -> float | None:
        """What ALiBi loses by training short, in nats."""
        if self.alibi_long is None:
            return None
        return math.log(self.alibi_short / self.alibi_long)

    @property
    def lead(self) -> float | None:
        """What ALiBi gains over sinusoidal embeddings at equal length, in nats."""
        if self.alibi_long is None:
            return None
        return math.log(self.sinusoidal_long / self.alibi_long)

    @property
    def e6(self) -> float:
        """The change from sinusoidal embeddings trained long to ALiBi trained short, in nats."""
        return math.log(self.alibi_short / self.sinusoidal_long)

    @property
    def source(self) -> str:
        """Names of the tables, such as ``Tables 13 and 15``."""
        numbers = [str(int(table.removeprefix("table"))) for table in self.tables]
        return f"Table{'s' * (len(numbers) > 1)} {' and '.join(numbers)}"


@cache
def paper_pairs() -> tuple[PaperPair, ...]:
    """Return all pairs of a short and a longer training length in the paper's tables."""
    pairs = []
    for tables, column in SOURCES:
        perplexities = {}
        for table in tables:
            for row in published.rows(table):
                if row["length"] is not None:
                    model = (row["position_method"], row["train_length"], row["length"])
                    perplexities[model, row["stride"]] = row[column]
        for (model, stride), sinusoidal in perplexities.items():
            method, long, length = model
            if method != "sinusoidal" or length != long:
                continue
            for (other, other_stride), alibi in perplexities.items():
                other_method, short, other_length = other
                if (other_method, other_length, other_stride) != ("alibi", long, stride):
                    continue
                if short < long:
                    pair = PaperPair(
                        tables=tables,
                        corpus=items()[tables[0]].corpus,
                        stride=stride,
                        short=short,
                        long=long,
                        alibi_short=alibi,
                        alibi_long=perplexities.get((("alibi", long, long), stride)),
                        sinusoidal_long=sinusoidal,
                    )
                    pairs.append(pair)
    return tuple(sorted(pairs, key=lambda pair: (_source_order(pair), pair.short, pair.long)))


def _source_order(pair: PaperPair) -> int:
    return [tables for tables, _ in SOURCES].index(pair.tables)


def table5_pair(short: int, long: int) -> PaperPair | None:
    """Return a pair of Table 5, or None if the table does not have it."""
    for pair in paper_pairs():
        if (pair.tables, pair.short, pair.long) == (("table05",), short, long):
            return pair
    return None


def paper_claim_section() -> str:
    """Return the paper's models trained long, and its models trained short."""
    pairs = paper_pairs()
    return section(
        "paper-claim",
        pairs=pairs_table(_shown_pairs()),
        num_holding=sum(pair.e6 < 0 for pair in pairs),
        num_pairs=len(pairs),
        holding_by_table=_holding_by_table(),
        all_pairs=_all_pairs_table(),
        trained_short=_trained_short_table(),
    )


def perplexity(method: str, train_length: int, length: int) -> float:
    """Return a perplexity of Table 5."""
    for row in published.rows("table05"):
        found = row["position_method"], row["train_length"], row["length"]
        if found == (method, train_length, length):
            return row["perplexity"]
    raise KeyError((method, train_length, length))


def _shown_pairs() -> list[PaperPair]:
    """Return the pairs of the table: of Table 5, L and 4 L only, and the pair of the text."""
    pairs = []
    for pair in paper_pairs():
        is_shown = pair.long == 4 * pair.short or (pair.short, pair.long) == (512, 3072)
        if is_shown or pair.tables != ("table05",):
            pairs.append(pair)
    return pairs


#: Columns of pairs of one table of the paper that are the same in all rows, and those of costs.
SAME_IN_A_TABLE = ("text", "source", "S")
COSTS = ("speed, short vs. sinusoidal long", "memory of these")


def pairs_table(pairs: Sequence[PaperPair], left_out: Collection[str] = ()) -> str:
    """Write the perplexities and effects of pairs, and what their trainings cost.

    Args:
        pairs: the rows.
        left_out: titles of columns to leave out.
    """
    columns = [
        Column[PaperPair]("text", lambda pair: TEXTS[pair.corpus]),
        Column[PaperPair]("source", lambda pair: pair.source),
        Column[PaperPair]("S", _stride_cell),
        Column[PaperPair]("trained short and long", lambda pair: f"{pair.short} and {pair.long}"),
        Column[PaperPair]("ALiBi, short", lambda pair: markdown.perplexity(pair.alibi_short)),
        Column[PaperPair]("ALiBi, long", _alibi_long_cell),
        Column[PaperPair](
            "sinusoidal, long", lambda pair: markdown.perplexity(pair.sinusoidal_long)
        ),
        Column[PaperPair]("cost", lambda pair: _change_cell(pair.cost)),
        Column[PaperPair]("lead", lambda pair: _change_cell(pair.lead)),
        Column[PaperPair]("short vs. long", lambda pair: _change_cell(pair.e6)),
        Column[PaperPair](COSTS[0], _speeds),
        Column[PaperPair](COSTS[1], _memories),
    ]
    shown = [column for column in columns if column.title not in left_out]
    return markdown.to_markdown([Table(shown, pairs, left=0 if "text" in left_out else 2)])


def _stride_cell(pair: PaperPair) -> str:
    return markdown.NOTHING if pair.stride == pair.long else str(pair.stride)


def _alibi_long_cell(pair: PaperPair) -> str:
    return markdown.NOTHING if pair.alibi_long is None else markdown.perplexity(pair.alibi_long)


def _change_cell(change: float | None) -> str:
    return markdown.NOTHING if change is None else percent(change)


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
    pairs = [pair for pair in paper_pairs() if pair.tables == ("table05",)]
    shorts: list[int | None] = sorted({pair.short for pair in pairs})
    columns = [
        Column[int | None](
            "ALiBi ↓ sinusoidal →", lambda short: "lead" if short is None else str(short)
        )
    ]
    for long in sorted({pair.long for pair in pairs}):
        columns.append(Column(str(long), partial(_pair_cell, long)))
    return markdown.to_markdown([Table(columns, [*shorts, None])])


def _pair_cell(long: int, short: int | None) -> str:
    """Return E6 of a pair of Table 5, or the lead at the longer length if ``short`` is None."""
    if short is None:
        pairs = [pair for pair in paper_pairs() if pair.tables == ("table05",)]
        (lead,) = {pair.lead for pair in pairs if pair.long == long}
        return _change_cell(lead)
    pair = table5_pair(short, long)
    return markdown.NOTHING if pair is None else percent(pair.e6)


def _speeds(pair: PaperPair) -> str:
    """Return the training speeds of the short and the long model; a dash except in Table 5."""
    if pair.tables != ("table05",):
        return markdown.NOTHING
    return f"{_speed('alibi', pair.short)} vs. {_speed('sinusoidal', pair.long)}"


def _speed(method: str, train_length: int) -> str:
    speed = printed_speeds(items()["figure07"]).get(MethodAndLength(method, train_length))
    if speed is None or speed.train is None:
        return markdown.NOTHING
    return markdown.thousands(speed.train)


def _memories(pair: PaperPair) -> str:
    """Return the training memory of the short and the long model; a dash without both."""
    table = pair.tables[0] if pair.tables[0] in ("table11", "table12") else "table01"
    if pair.tables not in (("table05",), ("table11",), ("table12",)):
        return markdown.NOTHING
    short = _memory(table, "alibi", pair.short)
    return f"{short} vs. {_memory(table, 'sinusoidal', pair.long)}"


def _memory(table: str, method: str, train_length: int) -> str:
    for row in published.rows(table):
        if (row["position_method"], row["train_length"]) == (method, train_length):
            return f"{row['train_memory_gb']} GB"
    return markdown.NOTHING


def _trained_short_table() -> str:
    """Write the perplexities of Table 3 at the training length and near four times that."""
    columns = [Column[str]("evaluated at →", method_name)]
    for length in (SHORT, NEAR_FOUR_TIMES):
        columns.append(Column(str(length), partial(_table_3_cell, length)))
    return markdown.to_markdown([Table(columns, ("sinusoidal", "rotary", "t5", "alibi"))])


def _table_3_cell(length: int, method: str) -> str:
    """Return a perplexity of Table 3."""
    for row in published.rows("table03"):
        if (row["position_method"], row["length"]) == (method, length):
            return markdown.perplexity(row["perplexity"])
    return markdown.NOTHING


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
