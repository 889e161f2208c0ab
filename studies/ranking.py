"""The ranking of methods at their training length, which no test decides."""

from __future__ import annotations

import statistics
from pathlib import Path

from alibi_fairseq.paper import published
from alibi_fairseq.positions.spec import method_name
from alibi_fairseq.reporting import plots
from alibi_fairseq.reporting.line_styles import method_style
from alibi_fairseq.reporting.plots import Panel, PlotLine

from .losses import ValidationCurves
from .tables import training_gaps_table

FIGURE = "ranking"
#: Tokens per update of the paper's models on WikiText-103, by the published flags.
PAPER_TOKENS_PER_UPDATE = 73_728

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
    lines = []
    tokens = 0
    for (trained_on, method, length), curve in sorted(curves.items()):
        if (trained_on, length) != (corpus, train_length):
            continue
        points = [curve[updates] for updates in sorted(curve)]
        perplexities = [[2**bits for bits in point.bits] for point in points]
        lines.append(
            PlotLine(
                label=method_name(method),
                x=[point.tokens / 1e6 for point in points],
                y=[statistics.mean(of_seeds) for of_seeds in perplexities],
                style=method_style(method_name(method)),
                spread=[_spread(of_seeds) for of_seeds in perplexities],
            )
        )
        tokens = max(tokens, points[-1].tokens)
    panel = Panel(
        f"Validation at L = {train_length} during training",
        lines,
        x="Tokens read (millions)",
        over_length=False,
    )
    plots.draw("", [panel], folder / f"{FIGURE}.png", folder / f"{FIGURE}.svg")
    return [
        "### The ranking at the training length",
        NOT_TESTED,
        gaps,
        f"![Validation perplexity by tokens read]({FIGURE}.png)",
        BUDGET.format(tokens=tokens / 1e6, paper=_paper_tokens() / 1e9),
    ]


def _spread(perplexities: list[float]) -> float:
    """Return the standard deviation over seeds; 0 for one seed."""
    return statistics.stdev(perplexities) if len(perplexities) > 1 else 0.0


def _paper_tokens() -> int:
    """Return the tokens that the paper's models on WikiText-103 read."""
    setting = published.setting_of("wikitext-103")
    assert setting is not None
    return setting["updates"] * PAPER_TOKENS_PER_UPDATE
