"""Tables and figures of the studies' pages."""

from __future__ import annotations

import math
import statistics
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from alibi_fairseq.files import atomic_write
from alibi_fairseq.positions.spec import method_name
from alibi_fairseq.reporting import markdown, plots
from alibi_fairseq.reporting.line_styles import LineStyle, method_style
from alibi_fairseq.reporting.plots import Panel, PlotLine
from alibi_fairseq.reporting.training_costs import processor_name

from .estimates import Estimate, percent
from .losses import ArticleLosses, Losses, TrainingOrigin, ValidationCurves
from .primary_tests import (
    BASELINE_NOT_TRAINED,
    LARGEST_LEAD,
    SEEDS,
    SMALLEST_SHARE,
    Condition,
    PrimaryTest,
    StudiedModels,
    recovered_gain,
    run_tests,
)

NOTATION = """\
- L is the training length in tokens. "At 4 L" means in evaluation windows of 4 L tokens.
- S is the stride: the number of tokens scored in each window. Windows do not overlap unless S is
  given.
- "A vs. B" is the perplexity of A divided by that of B, minus 1. A negative change means that A has
  the lower perplexity.
- Perplexities are geometric means over seeds and test documents: exp of the mean loss.
- Intervals are 95% confidence intervals over seeds and test documents. They are not corrected for
  multiple comparisons.
- Bands in the figures are ± one standard deviation over seeds."""

TESTS_HELP = """\
The p value of a test is the largest among its conditions, after Holm's correction for six tests.
The outcomes mean:

- **Supported:** the p value is below 0.05. E6 also needs a trained baseline (below).
- **Not supported:** in a test with k conditions, the interval of at least one condition at the
  level 1 - 0.05 / k lies entirely outside its range. This includes results in which ALiBi does
  better than the range allows; the outcome then says so. For E4 and E5, such a result is not a
  failure of extrapolation, which E1 tests.
- **Inconclusive:** neither of these. A large p value is not evidence against a statement."""

TESTS_CHANGES = """\
The changes in parentheses are those that the outcome rests on. {baseline}"""

#: When E6's baseline counts as trained, by the rule of the study.
BASELINE_RULES = {
    "lead": "The baseline of E6 counts as trained if the 95% interval of ALiBi's lead over it, "
    f"both trained at 4 L, ends at +{LARGEST_LEAD}% or below. This is the largest published lead "
    "without overlap.",
    "share": "The baseline of E6 counts as trained if sinusoidal embeddings recover at least "
    f"{SMALLEST_SHARE:.0%} of ALiBi's gain over no positions, all trained at 4 L.",
}

CONDITIONS_HELP = """\
The ranges come from the protocol, not from the paper. The table shows the 95% interval. The
location is that of the interval at the level 1 - 0.05 / k, relative to the range. For a test that
was not run, the conditions are shown for information only.

- E1 does not show that ALiBi uses longer context. Longer windows also leave fewer tokens with
  little context (the early-token curse, Appendix B of the paper).
- E4 removes this effect with a small stride, so only longer context changes the perplexity. A
  change below the range means that longer context helps ALiBi.
- E5 compares limited with unlimited attention. A change above the range means that attention to
  tokens more than L positions back helps ALiBi. Even with limited attention, a model can receive
  information from further back through its layers."""

#: Second page of a study, with what only those need who judge or repeat it.
DISCLOSURE_PAGE = "disclosure.md"

#: Abbreviations by which readers know position methods.
ABBREVIATIONS = {"rotary": "RoPE", "none": "NoPE"}

#: Evaluation length -> losses, by position method.
MethodLosses = Mapping[str, Mapping[int, ArticleLosses]]


def wrap(paragraph: str) -> str:
    """Break the lines of a paragraph again after numbers were filled in."""
    return textwrap.fill(paragraph, 100, break_long_words=False, break_on_hyphens=False)


def known_name(method: str) -> str:
    """Return the name of a position method with its abbreviation, if readers know it by one."""
    if method not in ABBREVIATIONS:
        return method_name(method)
    return f"{method_name(method)} ({ABBREVIATIONS[method]})"


def estimate_cells(estimate: Estimate | None) -> list[str]:
    """Return the table cells of an estimate: change, interval, seeds."""
    if estimate is None:
        return [markdown.NOTHING] * 3
    low, high = estimate.interval()
    seeds = " and ".join(str(count) for count in dict.fromkeys(estimate.seeds))
    return [percent(estimate.value), f"{percent(low)} … {percent(high)}", seeds]


def write_page(folder: Path, sections: Iterable[str], name: str = "README.md") -> Path:
    """Write the sections that are not empty to a page, and return its path."""
    path = folder / name
    with atomic_write(path) as stream:
        stream.write("\n\n".join(section.rstrip() for section in sections if section) + "\n")
    return path


# The six tests


def tests_sections(losses: Losses, models: StudiedModels) -> list[str]:
    """Return the outcomes and conditions of the tests, and how well E6's baseline is trained."""
    tests = run_tests(losses, models)
    changes = wrap(TESTS_CHANGES.format(baseline=BASELINE_RULES[models.baseline]))
    sections = [_tests_table(tests), TESTS_HELP, changes, *_missing_models_section(tests)]
    sections += ["### Changes of perplexity in the tests", _conditions_table(tests)]
    sections.append(CONDITIONS_HELP)
    recovered = recovered_gain(losses, models)
    if recovered is not None and models.baseline == "share":
        sections.append(
            f"At L = {4 * models.train_length}, sinusoidal embeddings recover "
            f"{recovered_percentage(recovered)} of ALiBi's gain over no positions."
        )
    return sections


def recovered_percentage(recovered: float) -> str:
    """Return the recovered fraction of a gain in percent, or ``none`` for a loss."""
    return f"{100 * recovered:.0f}%" if recovered > 0 else "none"


def outcomes_list(tests: Iterable[PrimaryTest]) -> str:
    """Return the outcome of each test, with a link to their table."""
    lines = ["The [six tests](#the-six-tests) and their outcomes (L is the training length):\n"]
    lines += [f"- **{test.title}:** {test.verdict}" for test in tests]
    return "\n".join(lines)


def _tests_table(tests: Sequence[PrimaryTest]) -> str:
    """Write the statement, p value, and outcome of each test."""
    rows = []
    for test in tests:
        p = markdown.NOTHING
        if test.adjusted_p is not None and test.outcome != BASELINE_NOT_TRAINED:
            p = _p_value(test.adjusted_p)
        rows.append([test.title, test.statement, p, test.verdict])
    return markdown.table(["test", "statement", "p (Holm)", "outcome"], rows, left=2)


def _missing_models_section(tests: Sequence[PrimaryTest]) -> list[str]:
    """Return the models that the tests still need, or nothing if all models have all seeds."""
    lines = []
    for test in tests:
        if test.missing:
            lines.append(f"- {test.title}: {'; '.join(test.missing)}")
    if not lines:
        return []
    return [
        f"A test is run when {SEEDS} seeds of each of its models are trained. These are missing:",
        "\n".join(lines),
    ]


def _conditions_table(tests: Sequence[PrimaryTest]) -> str:
    """Write the estimated change of each condition of each test, as far as it is known."""
    rows = []
    for test in tests:
        for condition in test.conditions:
            if condition.estimate is None:
                continue
            bounds = _range(condition.low, condition.high)
            change, interval, seeds = estimate_cells(condition.estimate)
            location = location_cell(test, condition)
            row = [test.name, condition.description, bounds, change, interval, location, seeds]
            rows.append(row)
    headers = ["", "condition", "range", "change", "95% interval", "location", "seeds"]
    return markdown.table(headers, rows, left=2)


def location_cell(test: PrimaryTest, condition: Condition) -> str:
    """Return where a condition's interval lies; a dash without one, or with an untrained baseline.

    Next to an untrained baseline, the word "inside" would read as if the test was passed.
    """
    if condition.estimate is None or not test.baseline_trained:
        return markdown.NOTHING
    return test.location(condition)


def _p_value(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _range(low: float | None, high: float | None) -> str:
    if low is None:
        return f"below {percent(high)}" if high else "below 0%"
    if high is None:
        return f"above {percent(low)}"
    return f"{percent(low)} … {percent(high)}"


def divergence_section(names: Sequence[str]) -> list[str]:
    """Return a sentence about the models whose training diverged, or nothing without any."""
    if not names:
        return []
    models = ", ".join(f"`{name}`" for name in names)
    return [f"The training of these models diverged. They are not replaced: {models}."]


# Perplexity


def at_train_length(
    losses: Losses, corpus: str, train_length: int, tested_on: str | None = None
) -> MethodLosses:
    """Return the evaluations without overlap and variant of the models of a training length.

    Args:
        corpus: the text that the models were trained on.
        tested_on: the text of the test split (default: ``corpus``).
    """
    by_method: dict[str, dict[int, ArticleLosses]] = defaultdict(dict)
    wanted = (corpus, tested_on or corpus, train_length)
    for key, article_losses in losses.items():
        if key.stride != key.length or key.variant:
            continue
        if (key.corpus, key.tested_on, key.train_length) == wanted:
            by_method[key.method][key.length] = article_losses
    return dict(sorted(by_method.items()))


def perplexity_table(models: MethodLosses, lengths: Sequence[int]) -> str:
    """Write perplexity by method and evaluation length; the mean of the seeds."""
    rows = []
    for method, losses_by_length in models.items():
        cells = []
        for length in lengths:
            cell = markdown.NOTHING
            if length in losses_by_length:
                cell = markdown.perplexity(losses_by_length[length].perplexity)
            cells.append(cell)
        seeds = max(len(losses.seeds) for losses in losses_by_length.values())
        rows.append([method_name(method), *cells, str(seeds)])
    return markdown.table(["evaluated at →", *map(str, lengths), "seeds"], rows)


def draw_method_lengths(
    models: MethodLosses, lengths: Sequence[int], train_length: int, *paths: Path
) -> None:
    """Draw perplexity by evaluation length, a line per method with its standard deviation."""
    lines = []
    for method, losses_by_length in models.items():
        shown = {n: losses_by_length[n] for n in lengths if n in losses_by_length}
        lines.append(model_line(known_name(method), shown, method_style(method_name(method))))
    title = f"Trained at L = {train_length}"
    plots.draw("", [Panel(title, lines, trained_at=train_length, end_labels=True)], *paths)


def lengths_alt(models: MethodLosses, lengths: Sequence[int]) -> str:
    """Return what :func:`draw_method_lengths` shows, for readers who do not see it."""
    changes = []
    for method, losses_by_length in models.items():
        shown = [length for length in lengths if length in losses_by_length]
        first = markdown.perplexity(losses_by_length[shown[0]].perplexity)
        last = markdown.perplexity(losses_by_length[shown[-1]].perplexity)
        changes.append(
            f"{method_name(method)} from {first} at {shown[0]} tokens to {last} at {shown[-1]:,}"
        )
    return f"Perplexity by evaluation length: {'; '.join(changes)}"


def model_line(
    label: str, losses_by_length: Mapping[int, ArticleLosses], style: LineStyle
) -> PlotLine:
    """Create the line of perplexity by evaluation length, with its standard deviation."""
    x = sorted(losses_by_length)
    y = [losses_by_length[length].perplexity for length in x]
    spread = [_spread(losses_by_length[length]) for length in x]
    return PlotLine(label, x, y, style, spread)


def _spread(losses: ArticleLosses) -> float:
    """Return the standard deviation of perplexity over seeds."""
    if len(losses.seeds) < 2:
        return 0.0
    return losses.perplexity * float(losses.nats.mean(axis=1).std(ddof=1))


# Differences between methods during training


def training_gaps_table(curves: ValidationCurves, corpus: str, train_length: int) -> str:
    """Write how far each method is from ALiBi in validation perplexity during training.

    The columns are an eighth, a quarter, half, and all of the updates, where ALiBi
    was validated then. The text is empty without ALiBi or without another method.
    """
    alibi = curves.get((corpus, "alibi", train_length))
    if not alibi:
        return ""
    last = max(alibi)
    updates = [count for count in (last // 8, last // 4, last // 2, last) if count in alibi]
    rows = []
    for (trained_on, method, length), curve in sorted(curves.items()):
        if (trained_on, length) != (corpus, train_length) or method == "alibi":
            continue
        cells = []
        for count in updates:
            if count not in curve:
                cells.append(markdown.NOTHING)
                continue
            bits = statistics.mean(curve[count].bits) - statistics.mean(alibi[count].bits)
            cells.append(percent(bits * math.log(2)))
        rows.append([method_name(method), *cells])
    if not rows:
        return ""
    budgets = [f"{alibi[count].tokens / 1e6:.1f}M" for count in updates]
    return markdown.table(["vs. ALiBi, tokens →", *budgets], rows)


# Provenance


def origins_table(origins: Mapping[str, TrainingOrigin]) -> str:
    """Write which models were trained on each processor at each commit, and their hours."""
    names_by_origin: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, origin in origins.items():
        commit = origin.provenance.git_commit or "unknown"
        processor = processor_name(origin.provenance.hardware)
        names_by_origin[processor, commit[:7]].append(name)
    rows = []
    for (processor, commit), names in sorted(names_by_origin.items()):
        hours = sum(origins[name].hours for name in names)
        rows.append([processor, commit, seeds_by_model(names), str(len(names)), f"{hours:.1f}"])
    headers = ["processor", "commit", "models (seeds)", "number", "hours of training (sum)"]
    return markdown.table(headers, rows, left=3)


def seeds_by_model(names: Iterable[str]) -> str:
    """Return ``wikipedia-alibi-128 (1, 2)`` for names such as ``wikipedia-alibi-128-seed1``."""
    seeds: dict[str, list[str]] = defaultdict(list)
    for name in names:
        model, seed = name.rsplit("-seed", 1)
        seeds[model].append(seed)
    return ", ".join(f"{model} ({', '.join(of_model)})" for model, of_model in seeds.items())


def trials_table(tuning: Mapping[str, dict]) -> str:
    """Write the perplexity of each trial, and the learning rate with the lowest loss."""
    rates = sorted({trial["lr"] for outcome in tuning.values() for trial in outcome["trials"]})
    rows = []
    for name, outcome in tuning.items():
        losses = {trial["lr"]: trial["loss_bits"] for trial in outcome["trials"]}
        cells = []
        for rate in rates:
            if rate not in losses:
                cells.append(markdown.NOTHING)
            elif losses[rate] is None:
                cells.append("diverged")
            else:
                cells.append(markdown.perplexity(2 ** losses[rate]))
        edge = " (edge of the grid)" if outcome["at_edge"] else ""
        rows.append([name, *cells, f"{outcome['lr']:g}{edge}"])
    headers = ["perplexity after the trial", *(f"{rate:g}" for rate in rates), "best"]
    return markdown.table(headers, rows)
