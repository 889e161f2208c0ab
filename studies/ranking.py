"""The ranking of methods at their training length, which no test decides."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

from alibi_fairseq.paper import published
from alibi_fairseq.positions.spec import method_name
from alibi_fairseq.reporting import plots
from alibi_fairseq.reporting.line_styles import method_style
from alibi_fairseq.reporting.plots import Panel, PlotLine

from .estimates import nats_to_percent
from .losses import ValidationCurves
from .tables import known_name, training_gaps_table

FIGURE = "ranking"
#: Tokens per update of the paper's models on WikiText-103, by the published flags.
PAPER_TOKENS_PER_UPDATE = 73_728

ALT = "Difference of each method's validation perplexity from ALiBi's, by tokens read"

NOT_TESTED = """\
No test compares methods at L, because the ranking there depends on the number of training tokens.
The figure and the table show validation losses at L, without overlap, as means over seeds. Only the
last point is the end of a training. Before it, the learning rate is still high, so the other points
are not the results of models trained on fewer tokens."""

BUDGET = """\
These models were trained on {tokens:.1f}M tokens, and the paper's models on WikiText-103 on
{paper:.1f}B. A test of the ranking needs complete trainings with at least two budgets, one with
twice the tokens of the other. The budgets are large enough if doubling the tokens changes the
difference between two methods by less than the interval of that difference over seeds."""


def ranking_sections(
    folder: Path, curves: ValidationCurves, corpus: str, train_length: int
) -> list[str]:
    """Return the differences between methods at L during training, and draw their figure.

    Args:
        folder: folder of the page. The figure is written here.
        curves: losses on the split ``valid`` during training.
        corpus: text that the models were trained on.
        train_length: training length L of the models.

    Returns:
        No section without validations, or without ALiBi and another method.
    """
    gaps = training_gaps_table(curves, corpus, train_length)
    if not gaps:
        return []
    alibi = curves[corpus, "alibi", train_length]
    lines = []
    for (trained_on, method, length), curve in sorted(curves.items()):
        if (trained_on, length) != (corpus, train_length):
            continue
        x = []
        y = []
        for updates in sorted(curve):
            if updates in alibi:
                bits = statistics.mean(curve[updates].bits) - statistics.mean(alibi[updates].bits)
                x.append(curve[updates].tokens / 1e6)
                y.append(nats_to_percent(bits * math.log(2)))
        lines.append(PlotLine(known_name(method), x, y, method_style(method_name(method))))
    changes = [change for line in lines for change in line.y]
    margin = 0.05 * (max(changes) - min(changes))
    panel = Panel(
        f"Validation at L = {train_length} during training",
        lines,
        x="Tokens read (millions)",
        y="Perplexity compared with ALiBi (%)",
        over_length=False,
        end_labels=True,
        y_limits=(min(changes) - margin, max(changes) + margin),
    )
    plots.draw("", [panel], folder / f"{FIGURE}.svg")
    tokens = alibi[max(alibi)].tokens
    return [
        "### The ranking at the training length",
        NOT_TESTED,
        gaps,
        f"![{ALT}]({FIGURE}.svg)",
        BUDGET.format(tokens=tokens / 1e6, paper=_paper_tokens() / 1e9),
    ]


def _paper_tokens() -> int:
    """Return the tokens that the paper's models on WikiText-103 read."""
    setting = published.setting_of("wikitext-103")
    assert setting is not None
    return setting["updates"] * PAPER_TOKENS_PER_UPDATE
