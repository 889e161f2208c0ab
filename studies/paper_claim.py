"""The paper's numbers on the claim of its title."""

from __future__ import annotations

import math

from alibi_fairseq.paper import published
from alibi_fairseq.positions.spec import method_name
from alibi_fairseq.reporting import markdown
from alibi_fairseq.reporting.line_styles import method_style
from alibi_fairseq.reporting.plots import Panel, PlotLine

from .tables import percent

#: Pairs of training lengths of the paper: the title's claim at 4 L, and the pair of its text.
PAIRS = ((64, 256), (128, 512), (256, 1024), (512, 2048), (512, 3072))
#: Training length of Table 3, and its evaluation length nearest to four times that.
SHORT = 1024
NEAR_FOUR_TIMES = 4024

TRAINED_LONG = """\
This table makes the same comparison with the paper's numbers (Table 5, WikiText-103, validation
split, 247M parameters). Speeds are training speeds in words per second on one V100 (Figure 7,
digitized). Memory is that of training (Table 1, in which the batch is split at 3,072 tokens). A
dash marks a value that the paper does not state."""

BEHIND = """\
At L = {lengths}, the paper's own ALiBi models are behind sinusoidal embeddings trained at the
longer length. The title's claim does not hold there for the paper's models either."""

TRAINED_SHORT = """\
Perplexity of the paper's models trained at 1,024 tokens (Table 3, drawn in Figure 1):"""


def paper_claim_sections() -> list[str]:
    """Return the paper's models trained long, and its models trained short."""
    sections = [TRAINED_LONG, _trained_long_table()]
    behind = [short for short, long in PAIRS if _change(short, long) > 0]
    if behind:
        sections.append(BEHIND.format(lengths=" and ".join(map(str, behind))))
    return [*sections, TRAINED_SHORT, _trained_short_table()]


def perplexity(method: str, train_length: int, length: int) -> float:
    """Return a perplexity of Table 5."""
    for row in published.rows("table05"):
        found = row["position_method"], row["train_length"], row["length"]
        if found == (method, train_length, length):
            return row["perplexity"]
    raise KeyError((method, train_length, length))


def _change(short: int, long: int) -> float:
    """Return the log perplexity of ALiBi trained short minus that of sinusoidal trained long."""
    return math.log(perplexity("alibi", short, long) / perplexity("sinusoidal", long, long))


def _trained_long_table() -> str:
    """Write perplexity and cost of ALiBi trained short and sinusoidal embeddings trained long."""
    rows = []
    for short, long in PAIRS:
        row = [f"{short} and {long}"]
        for method, train_length in (("alibi", short), ("alibi", long), ("sinusoidal", long)):
            row.append(markdown.perplexity(perplexity(method, train_length, long)))
        row.append(percent(_change(short, long)))
        row.append(f"{_speed('alibi', short)} vs. {_speed('sinusoidal', long)}")
        row.append(f"{_memory('alibi', short)} vs. {_memory('sinusoidal', long)}")
        rows.append(row)
    headers = ["trained short and long", "ALiBi, short", "ALiBi, long", "sinusoidal, long"]
    headers += ["ALiBi, short vs. sinusoidal, long", "speeds of these", "memory of these"]
    return markdown.table(headers, rows)


def _speed(method: str, train_length: int) -> str:
    for row in published.rows("figure07"):
        if (row["position_method"], row["train_length"]) == (method, train_length):
            return markdown.thousands(row["train_words_per_second"])
    return markdown.NOTHING


def _memory(method: str, train_length: int) -> str:
    for row in published.rows("table01"):
        if (row["position_method"], row["train_length"]) == (method, train_length):
            return f"{row['train_memory_gb']} GB"
    return markdown.NOTHING


def _trained_short_table() -> str:
    """Write the perplexities of Table 3 at the training length and near four times that."""
    by_length = {row["length"]: row for row in published.rows("table03")}
    rows = []
    for method in ("sinusoidal", "rotary", "t5", "alibi"):
        row = [method_name(method)]
        for length in (SHORT, NEAR_FOUR_TIMES):
            row.append(markdown.perplexity(by_length[length][f"{method}_perplexity"]))
        rows.append(row)
    return markdown.table(["evaluated at →", str(SHORT), str(NEAR_FOUR_TIMES)], rows)


def trained_long_panel(short: int) -> Panel:
    """Create the panel of Table 5, at the training length of a study.

    Args:
        short: training length L of the study. Without it in the paper, L is 512.
    """
    if (short, 4 * short) not in PAIRS:
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
    return Panel("Paper, Table 5", lines, trained_at=short)


def trained_short_panel() -> Panel:
    """Create the panel of Table 3, one half of Figure 1."""
    lines = []
    for method in ("sinusoidal", "rotary", "t5", "alibi"):
        x = []
        y = []
        for row in published.rows("table03"):
            value = row[f"{method}_perplexity"]
            if value != published.OUT_OF_MEMORY:
                x.append(row["length"])
                y.append(value)
        label = f"{method_name(method)}, L = {SHORT}"
        lines.append(PlotLine(label, x, y, method_style(method_name(method)), hollow=True))
    return Panel("Paper, Figure 1 (Table 3)", lines, trained_at=SHORT)
