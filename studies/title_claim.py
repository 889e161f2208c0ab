"""The claim of the paper's title: a model that is trained short, tested long.

ALiBi trained at L is compared with models trained at 4 L. All are evaluated at 4 L.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from pathlib import Path

from alibi_fairseq.positions.spec import METHOD_NAMES, method_name
from alibi_fairseq.reporting import markdown, plots
from alibi_fairseq.reporting.line_styles import method_style
from alibi_fairseq.reporting.plots import Panel
from alibi_fairseq.reporting.training_costs import (
    COST_HEADERS,
    TrainingCost,
    cost_cells,
    processor_name,
    read_training_cost,
    trainings_at_a_time,
)
from alibi_fairseq.results.files import load_results_file
from alibi_fairseq.results.results_file import BenchmarkFile

from .cost_and_lead import (
    HELP,
    CostAndLead,
    claim_keys,
    claim_models,
    cost_and_lead_table,
    estimate_cost_and_lead,
    with_interval,
)
from .estimates import estimate_change, percent, percent_to_nats
from .losses import EvaluationKey, Losses, ValidationCurves, finished_models, load_curves
from .paper_claim import (
    paper_claim_sections,
    table5_pair,
    trained_long_panel,
)
from .primary_tests import LARGEST_LEAD, StudiedModels, recovered_gain, run_tests
from .published_gaps import published_gap_range
from .tables import at_train_length, estimate_cells, model_line, recovered_percentage, wrap

#: Benchmark of single trainings in a study's folder, as ``python -m benchmarks.methods`` writes it.
BENCHMARK_FILE = "benchmark.json"
FIGURE = "title-claim"

INTRODUCTION = """\
The paper's title claims that a model can be trained short and tested long. This table compares
ALiBi trained at L = {short} with models trained at 4 L = {long}. All of them are evaluated at
{long} tokens. Only for the first row is this longer than the training sequences. Test E6 decides
about sinusoidal embeddings; the other rows have no outcome."""

SUMMARY = """\
**The claim of the title.** At {long} tokens, the perplexity of sinusoidal embeddings trained at
{long} differs from that of ALiBi trained at {long} by {lead}. Published differences at equal length
lie between {lowest} and {highest}, so {baseline}. From ALiBi trained at {long} to ALiBi trained at
{short} tokens, the perplexity changes by {cost}{in_paper}."""

NOT_TRAINED = """\
this baseline has not learned to use its positions, and a comparison with it says nothing about the
paper"""

TRAINED = """\
this baseline is no further behind than published ones"""

COST_WITHOUT_BASELINE = """\
The cost needs no baseline. In the paper, it is {paper} for these lengths (Table 5)."""

SMALLER_COST = """\
Here, the whole interval is below that: these models profit less from longer training sequences than
the paper's, probably because they are too young."""

SHARE_RULE = """ \
Sinusoidal embeddings trained at 4 L recover {recovered} of what ALiBi trained at 4 L gains over no
positions, in log perplexity, and the protocol asks for at least half. That rule would reject most
published baselines as well ([table](#published-differences-at-the-training-length)); the lead is
what sets this one apart."""

LEAD_RULE = """ \
The baseline counts as trained if the 95% interval of the lead ends at +{largest}% or below."""

GAP = """\
This table shows how far the models trained at 4 L = {long} are behind ALiBi during training, on the
validation split, as means over seeds. The gap of a baseline that catches up with ALiBi falls. The
share is the part of ALiBi's gain over no positions that sinusoidal embeddings have, in log
perplexity. Before the last update, the learning rate is still high, so the other rows are not
the results of shorter trainings."""

TIME_AND_MEMORY = """\
Speed and memory are those of training, averaged over seeds. According to the recorded times, the
models were trained one at a time, on one kind of processor."""

BENCHMARK = """\
No separate benchmark of these trainings is recorded."""

BENCHMARK = """\
Training steps alone on the machine, measured separately by `benchmarks.methods` ({model},
{processor}, {precision}):"""

FIGURE_ALT = (
    "Perplexity by evaluation length of ALiBi trained at L and of the models trained at 4 L, "
    "a panel for this study and one for the paper"
)
FIGURE_HELP = """\
Left: the models of the table, up to 4 L. Right: the paper's models of Table 5, with hollow markers.
The vertical axes have different ranges; wide ranges are logarithmic."""


def claim_summary(losses: Losses, models: StudiedModels) -> list[str]:
    """Return lead and cost for the top of a page; empty while models are missing."""
    effects = estimate_cost_and_lead(claim_models(losses, claim_keys(models)))
    if effects is None:
        return []
    lowest, highest = published_gap_range()
    pair = table5_pair(models.train_length, 4 * models.train_length)
    in_paper = ""
    if pair is not None and pair.cost is not None:
        in_paper = f", and by {percent(pair.cost)} in the paper"
    _, high = effects.lead.interval()
    is_trained = high <= percent_to_nats(LARGEST_LEAD)
    return [
        wrap(
            SUMMARY.format(
                short=f"{models.train_length:,}",
                long=f"{4 * models.train_length:,}",
                lead=with_interval(effects.lead),
                lowest=percent(lowest),
                highest=percent(highest),
                baseline=TRAINED if is_trained else NOT_TRAINED,
                cost=with_interval(effects.cost),
                in_paper=in_paper,
            )
        )
    ]


def title_claim_sections(folder: Path, losses: Losses, models: StudiedModels) -> list[str]:
    """Return the table, and draw the figure, of the title's claim.

    Args:
        folder: results of the study. The figure is written here.
        losses: losses of all finished models.
        models: models of the six tests.

    Returns:
        No section while ALiBi trained at L, or any model trained at 4 L, is missing.
    """
    trained_long = _trained_long(losses, models)
    if models.key("alibi", 4) not in losses or not trained_long:
        return []
    short = models.train_length
    costs = load_training_costs(folder)
    sections = ["## Train short, test long"]
    sections.append(INTRODUCTION.format(short=short, long=4 * short))
    rows = [models.key("alibi", 4), *trained_long]
    sections += [_claim_table(losses, rows, costs), _outcome(losses, models)]
    sections += _effects_sections(losses, models)
    sections += training_gap_sections(load_curves(folder), models)
    sections += _cost_sections(folder, rows, costs)
    sections += ["### The paper's numbers", *paper_claim_sections()]
    panels = [_panel(losses, models), trained_long_panel(short)]
    plots.draw("", panels, folder / f"{FIGURE}.svg")
    sections += [f"![{FIGURE_ALT}]({FIGURE}.svg)", FIGURE_HELP]
    return sections


def _outcome(losses: Losses, models: StudiedModels) -> str:
    """Return the outcome of E6, and the rule by which its baseline counts as trained."""
    *_, test = run_tests(losses, models)
    sentence = f"Outcome of {test.name}: **{test.verdict}**."
    if models.baseline == "lead":
        return wrap(sentence + LEAD_RULE.format(largest=LARGEST_LEAD))
    recovered = recovered_gain(losses, models)
    if recovered is not None:
        sentence += SHARE_RULE.format(recovered=recovered_percentage(recovered))
    return wrap(sentence)


def _effects_sections(losses: Losses, models: StudiedModels) -> list[str]:
    """Return cost, lead, and E6 next to the paper's; empty while models are missing."""
    effects = estimate_cost_and_lead(claim_models(losses, claim_keys(models)))
    if effects is None:
        return []
    rows: list[tuple[list[str], CostAndLead]] = [(["no overlap"], effects)]
    stride = models.train_length // 8
    sliding = estimate_cost_and_lead(claim_models(losses, claim_keys(models, stride)))
    if sliding is not None:
        rows.append(([f"S = {stride}"], sliding))
    sections = ["### Cost and lead", HELP, cost_and_lead_table(["windows"], rows)]
    pair = table5_pair(models.train_length, 4 * models.train_length)
    if pair is not None and pair.cost is not None:
        sentence = COST_WITHOUT_BASELINE.format(paper=percent(pair.cost))
        _, high = effects.cost.interval()
        if high < pair.cost:
            sentence = f"{sentence} {SMALLER_COST}"
        sections.append(wrap(sentence))
    return sections


def training_gap_sections(curves: ValidationCurves, models: StudiedModels) -> list[str]:
    """Return how far the models trained at 4 L are behind ALiBi during training.

    The rows are the validations nearest to tenths of the training.

    Args:
        curves: losses on the split ``valid`` during training.
        models: models of the six tests.

    Returns:
        No section without ALiBi and sinusoidal embeddings trained at 4 L.
    """
    long = 4 * models.train_length
    by_method = {}
    for method in ("alibi", "sinusoidal", "none"):
        by_method[method] = curves.get((models.corpus, method, long), {})
    rows = []
    for updates in _tenths(by_method["alibi"]):
        alibi = by_method["alibi"][updates]
        gaps = {}
        for method in ("sinusoidal", "none"):
            point = by_method[method].get(updates)
            if point is not None:
                bits = statistics.mean(point.bits) - statistics.mean(alibi.bits)
                gaps[method] = bits * math.log(2)
        if "sinusoidal" not in gaps:
            continue
        row = [f"{updates:,}", f"{alibi.tokens / 1e6:.1f}M", percent(gaps["sinusoidal"])]
        share = none = markdown.NOTHING
        if "none" in gaps:
            none = percent(gaps["none"])
            if gaps["none"] > 0:
                share = recovered_percentage(1 - gaps["sinusoidal"] / gaps["none"])
        rows.append([*row, none, share])
    if not rows:
        return []
    headers = ["updates", "tokens", "sinusoidal vs. ALiBi", "no positions vs. ALiBi", "share"]
    table = markdown.table(headers, rows, left=0)
    return ["### The gap during training", GAP.format(long=long), table]


def _tenths(validated: Iterable[int]) -> list[int]:
    """Return the numbers of updates nearest to tenths of the last one, in order."""
    validated = sorted(validated)
    nearest = set()
    for tenth in range(1, 11) if validated else ():
        target = tenth * validated[-1] / 10
        nearest.add(min(validated, key=lambda updates: abs(updates - target)))
    return sorted(nearest)


def _trained_long(losses: Losses, models: StudiedModels) -> list[EvaluationKey]:
    """Return the evaluations at 4 L of the models trained at 4 L, in the order of method names."""
    keys = []
    known = list(METHOD_NAMES)
    methods = {key.method for key in losses}
    for method in sorted(methods, key=lambda name: (name not in known, name)):
        key = models.key(method, 4, trained_multiple=4)
        if key in losses:
            keys.append(key)
    return keys


def load_training_costs(folder: Path) -> list[TrainingCost]:
    """Read the cost of each finished model of a study, in order of name."""
    costs = []
    for model in finished_models(folder):
        costs.append(read_training_cost(model.model, model.folder))
    return costs


def _claim_table(losses: Losses, rows: list[EvaluationKey], costs: list[TrainingCost]) -> str:
    """Write perplexity at 4 L, and the cost of training, of ALiBi and the models trained long."""
    alibi = losses[rows[0]]
    comparable = costs_are_comparable(rows, costs)
    cells = []
    for key in rows:
        change = [markdown.NOTHING, markdown.NOTHING]
        if key != rows[0]:
            change = estimate_cells(estimate_change(alibi, losses[key]))[:2]
        row = [method_name(key.method), str(key.train_length)]
        row += [markdown.perplexity(losses[key].perplexity), *change]
        if comparable:
            row += cost_cells(costs, _model(key))
        cells.append([*row, str(len(losses[key].seeds))])
    headers = ["", "trained at", f"perplexity at {rows[0].length}", "ALiBi (L) vs. it"]
    headers += ["95% interval", *(COST_HEADERS if comparable else ()), "seeds"]
    return markdown.table(headers, cells)


def _model(key: EvaluationKey) -> tuple[str, str, int]:
    """Return corpus, method, and training length of an evaluation's model."""
    return key.corpus, key.method, key.train_length


def costs_are_comparable(rows: list[EvaluationKey], costs: list[TrainingCost]) -> bool:
    """Return True if the models were trained one at a time, on one kind of processor."""
    counts = [trainings_at_a_time(costs, _model(key)) for key in rows]
    trained = {_model(key) for key in rows}
    processors = {cost.processor for cost in costs if cost.model in trained}
    return max(counts) < 1.05 and len(processors) == 1


def _cost_sections(folder: Path, rows: list[EvaluationKey], costs: list[TrainingCost]) -> list[str]:
    """Return what the costs of the table are, and the table of a benchmark of single trainings."""
    sections = [TIME_AND_MEMORY] if costs_are_comparable(rows, costs) else []
    path = folder / BENCHMARK_FILE
    if path.is_file():
        benchmark = load_results_file(path)
        assert isinstance(benchmark, BenchmarkFile), f"{path} is not a benchmark"
        sections += _benchmark_sections(benchmark)
    if not sections:
        return []
    return ["### Time and memory", *sections]


def _benchmark_sections(benchmark: BenchmarkFile) -> list[str]:
    """Return the speed and memory of single training steps, by method and training length."""
    rows = []
    for record in benchmark.records:
        values = record.values
        memory = markdown.NOTHING
        if "peak_memory_mb" in values:
            memory = f"{values['peak_memory_mb'] / 1000:.2f} GB"
        row = [method_name(values["position_method"]), str(values["train_length"])]
        rows.append([*row, markdown.thousands(values["tokens_per_second"]), memory])
    provenance = benchmark.provenance
    sentence = BENCHMARK.format(
        model=benchmark.records[0].values["model"],
        processor=processor_name(provenance.hardware),
        precision=provenance.precision,
    )
    return [sentence, markdown.table(["", "trained at", "tokens/s", "memory"], rows)]


def _panel(losses: Losses, models: StudiedModels) -> Panel:
    """Create the panel of ALiBi trained at L and the models trained at 4 L, at up to 4 L."""
    short = models.train_length
    long = 4 * short
    lines = []
    for train_length in (short, long):
        for method, by_length in at_train_length(losses, models.corpus, train_length).items():
            if train_length == short and method != "alibi":
                continue
            shown = {length: value for length, value in by_length.items() if length <= long}
            style = method_style(method_name(method), train_length, (short, long))
            label = f"{method_name(method)}, L = {train_length}"
            lines.append(model_line(label, shown, style))
    return Panel(f"This study ({models.corpus})", lines, trained_at=short, end_labels=True)
