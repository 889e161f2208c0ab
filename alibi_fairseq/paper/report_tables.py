"""The paper's tables with our numbers next to them, and verdicts on the differences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from alibi_fairseq.paper import published as paper
from alibi_fairseq.paper.report_data import Cases, ReportData
from alibi_fairseq.reporting import markdown
from alibi_fairseq.results.labels import method_name, method_order, model_label
from alibi_fairseq.results.measurements import Measurement
from alibi_fairseq.results.model_groups import Series, group_by_model

SWEEPS = ("table02", "table03", "table04")
TEST_SETS = ("table06", "table07", "table09", "table10")
#: Tables with one row for all models of a method, each evaluated at its training length. Only ALiBi
#: has a row per model.
JOINED = ("table05", "table08")
_LARGE_COSTS = {"memory": "train_memory_gb", "updates": "updates", "GPU hours": "gpu_hours"}
#: Training costs by table: column title → key in the paper's data.
COSTS = {
    "table06": {"training speed": "train_words_per_second"},
    "table11": _LARGE_COSTS,
    "table12": _LARGE_COSTS,
}
PERPLEXITY_TABLES = tuple(f"table{number:02d}" for number in range(2, 16))
TABLES = ("table01", *PERPLEXITY_TABLES)

# Evaluation speeds: label and attribute of a measurement. The paper has only the first.
_SPEEDS = (("batch 1", "tokens_per_second_batch_1"), ("full batches", "tokens_per_second"))

# Largest relative difference between two update counts of one model. Tables 11 and 12 distinguish
# 46.7k and 50k updates.
_UPDATES_TOLERANCE = 0.02

# Tables with more columns are transposed.
_MAX_COLUMNS = 8


def table(item: str, results: ReportData) -> str:
    """Format one of Tables 1–15 as Markdown, e.g. ``table05``; without results, ours are missing.

    Each model has a line of the paper's numbers, one of ours, and one of their difference. Columns
    are evaluation lengths, or the validation and the test split.
    """
    if item == "table01":
        return speed_table(results.speeds())
    corpus = paper.about(item)["corpus"]
    printed = paper.points(item)
    ours = results.comparable(corpus)
    rows = table_rows(printed, ours, joined=item in JOINED)
    columns: Sequence = sorted({point.length for point in printed})
    if item in TEST_SETS:
        columns = ("valid", "test")
        rows = _with_other_authors(item, rows)
    parts = [perplexity_grid(rows, columns, corpus=corpus)]
    if item in COSTS:
        parts.append(
            "Training: the paper on V100s, speed in words; ours on the machine named in the sources, in "
            "tokens:\n"
        )
        parts.append(_cost_grid(item, rows, results.trainings(corpus)))
    if item in SWEEPS or item == "table06":
        parts.append(
            "Speed of evaluation in tokens per second (the paper: words, one V100, batch size 1; ours: "
            "the machine named in the sources):\n"
        )
        parts.append(_speed_grid(rows, columns if item in SWEEPS else ("valid",)))
    parts.append(legend(corpus) + "\n")
    reasons = dict.fromkeys(point.other_text for point in ours if point.other_text)
    if reasons:
        parts.append(
            f"No verdicts: {'; '.join(reasons)}, so perplexities per token are in other units "
            "than the paper's.\n"
        )
    return "\n".join(parts)


class Row(NamedTuple):
    """One model of a table of the paper: the paper's numbers, and ours by variant of the model."""

    paper: Series
    ours: Sequence[Series] = ()


def point_label(point: Measurement) -> str:
    """Return the name of a measurement's model, ``ALiBi, L=512``."""
    return model_label(point.position_method, point.train_length)


def table_rows(
    printed: Sequence[Measurement],
    ours: Iterable[Measurement],
    joined: bool = False,
    label: Callable[[Measurement], str] = point_label,
) -> list[Row]:
    """Return the rows of a table of the paper in its order, with our measurements of each model.

    Args:
        printed: the paper's measurements.
        ours: measurements in the paper's setting on the table's corpus.
        joined: whether each method except ALiBi has only one row, as in Tables 5 and 8.
        label: function that returns the label of a printed measurement's row.
    """
    cases = {(point.subset, point.length, point.stride) for point in printed}
    usable = [point for point in ours if (point.subset, point.length, point.stride) in cases]
    printed_by_row: dict[str, list[Measurement]] = defaultdict(list)
    for point in printed:
        if joined and point.position_method != "alibi":
            name = f"{method_name(point.position_method)}, L = evaluation length"
        else:
            name = label(point)
        printed_by_row[name].append(point)
    return [_table_row(name, members, usable) for name, members in printed_by_row.items()]


def _table_row(name: str, printed: list[Measurement], ours: list[Measurement]) -> Row:
    """Create a row from the paper's measurements in it and our measurements of any model."""
    method = printed[0].position_method
    train_lengths = {point.train_length for point in printed}
    train_length = train_lengths.pop() if len(train_lengths) == 1 else None
    same_model = [point for point in ours if any(_is_same_model(point, other) for other in printed)]
    if train_length is None:
        same_model = [point for point in same_model if point.length == point.train_length]
    variants: dict[str, list[Measurement]] = defaultdict(list)
    for model in group_by_model(same_model):
        variants[model.variant] += model.points
    our_series = [
        Series(method, train_length, points, name, variant) for variant, points in variants.items()
    ]
    return Row(Series(method, train_length, printed, name, "paper", printed=True), our_series)


def _is_same_model(point: Measurement, printed: Measurement) -> bool:
    return (
        point.position_method == printed.position_method
        and point.train_length == printed.train_length
        and _is_same_updates(point.updates or 0, printed.updates)
    )


def _is_same_updates(ours: int, printed: int | None) -> bool:
    return printed is None or abs(ours - printed) <= _UPDATES_TOLERANCE * printed


def _with_other_authors(item: str, rows: list[Row]) -> list[Row]:
    """Insert the rows of models by other authors, in the paper's order."""
    row_by_model = {}
    for row in rows:
        for point in row.paper.points:
            row_by_model[point.position_method, point.train_length] = row
    all_rows = []
    for printed in paper.rows(item):
        model = (printed["position_method"], printed["train_length"])
        all_rows.append(row_by_model.get(model) or _row_as_printed(printed))
    return all_rows


def _row_as_printed(printed: dict) -> Row:
    """Create the row of a model by other authors."""
    points = []
    for subset in ("valid", "test"):
        perplexity = printed[f"{subset}_perplexity"]
        if perplexity:
            points.append(Measurement("", 0, 0, 0, subset, perplexity))
    return Row(Series("", None, points, f"{printed['model']} (as printed)"))


class GridLine(NamedTuple):
    """A line of a grid: a model, the source of its numbers, and a text per column."""

    model: str
    source: str
    cells: list[str]


def _grid(lines: list[GridLine], columns: Sequence, corner: str = markdown.CORNER) -> str:
    """Format lines in Markdown, each model's under its name; transpose them if there are many columns."""
    if len(columns) > _MAX_COLUMNS:
        headers = ["length", *(f"{line.model}: {line.source}" for line in lines)]
        values = zip(map(str, columns), *(line.cells for line in lines), strict=True)
        return markdown.table(headers, [list(row) for row in values])
    rows = []
    previous = ""
    for line in lines:
        name = line.model if line.model != previous else ""
        rows.append([name, line.source, *line.cells])
        previous = line.model
    return markdown.table([corner, "", *map(str, columns)], rows, left=2)


class Side(NamedTuple):
    """One side of a comparison with the paper."""

    source: str  # "paper", or a name of ours
    series: Series
    printed: Series  # the paper's numbers of the model

    @property
    def is_paper(self) -> bool:
        """True for the paper's own numbers."""
        return self.source == "paper"


def _sides(rows: Iterable[Row], name: str = "ours") -> Iterator[Side]:
    """Yield the paper's numbers of each row, then ours.

    A row without measurements of ours has one empty side, except for models by other authors.
    """
    nothing_measured = [Series("", None, ())]
    for printed, ours in rows:
        yield Side("paper", printed, printed)
        if not printed.position_method:
            continue
        for series in ours or nothing_measured:
            source = f"{name} ({series.variant})" if series.variant else name
            yield Side(source, series, printed)


def _by_column(series: Series, columns: Sequence) -> list[Measurement | None]:
    """Return the measurement of each column, which is an evaluation length or a split."""
    points: dict[int | str, Measurement] = {}
    for point in series.points:
        points[point.length] = point
        points[point.subset] = point
    return [points.get(column) for column in columns]


def perplexity_grid(
    rows: Iterable[Row], columns: Sequence, name: str = "ours", corpus: str | None = None
) -> str:
    """Format the paper's perplexities and ours, which are missing only where the paper has one.

    Args:
        rows: the models.
        columns: evaluation lengths or splits.
        name: source of our numbers.
        corpus: corpus of the paper, to add lines of differences.
    """
    lines: list[GridLine] = []
    our_points: list[Measurement] = []
    for side in _sides(rows, name):
        points = _by_column(side.series, columns)
        printed = _by_column(side.printed, columns)
        pairs = list(zip(points, printed, strict=True))
        cells = []
        for point, printed_point in pairs:
            is_empty = point is None and printed_point is None
            cells.append(markdown.NOTHING if is_empty else markdown.point(point))
        lines.append(GridLine(side.printed.name, side.source, cells))
        if side.is_paper:
            continue
        our_points += side.series.points
        if corpus and side.series.points:
            differences = [difference(corpus, *pair) for pair in pairs]
            lines.append(GridLine(side.printed.name, "difference", differences))
    grid = _grid(lines, columns)
    note = markdown.past_end_note(our_points)
    return f"{grid}\n{note}" if note else grid


def _speed_grid(rows: list[Row], columns: Sequence) -> str:
    """Format evaluation speeds; the paper's are at batch size 1."""
    lines: list[GridLine] = []
    for side in _sides(rows):
        points = _by_column(side.series, columns)
        missing = markdown.NOTHING if side.is_paper else markdown.MISSING
        for batch, attribute in _SPEEDS[:1] if side.is_paper else _SPEEDS:
            cells = [_speed(point, attribute, missing) for point in points]
            lines.append(GridLine(side.printed.name, f"{side.source}, {batch}", cells))
    return _grid(lines, columns)


def _speed(point: Measurement | None, attribute: str, missing: str) -> str:
    """Format a speed of a measurement, or the reason why there is none."""
    if point is None:
        return missing
    speed = getattr(point, attribute)
    if speed is None:
        return point.status or missing
    return f"{speed:.0f}"


def _cost_grid(item: str, rows: list[Row], training: list[dict]) -> str:
    """Format the training costs of each model, the paper's and those in our training records."""
    printed_costs = {}
    for row in paper.rows(item):
        printed_costs[model_label(row["position_method"], row["train_length"])] = row
    lines = []
    for side in _sides(rows):
        costs = printed_costs[side.printed.name]
        if not side.is_paper:
            costs = _recorded_costs(costs, training)
        cells = [_cost(title, costs.get(key)) for title, key in COSTS[item].items()]
        lines.append(GridLine(side.printed.name, side.source, cells))
    return _grid(lines, list(COSTS[item]), corner="model")


def _cost(title: str, value: float | None) -> str:
    """Format a training cost."""
    if value is None:
        return markdown.MISSING
    return f"{value:.1f} GB" if title == "memory" else markdown.thousands(value)


def _recorded_costs(printed: dict, training: list[dict]) -> dict:
    """Return the costs of our run at the paper's update count, with the paper's keys and units.

    Args:
        printed: the paper's row of the model.
        training: validations of our runs, in order of their updates. The last match counts.
    """
    costs: dict = {}
    for cell in training:
        is_same_model = (
            cell["position_method"] == printed["position_method"]
            and cell["train_length"] == printed["train_length"]
        )
        if not is_same_model or not _is_same_updates(cell["updates"], printed.get("updates")):
            continue
        costs = {key: cell[key] for key in ("updates", "gpu_hours") if key in cell}
        memory = cell.get("peak_memory_mb")
        if memory:
            costs["train_memory_gb"] = memory / 1000
        speed = cell.get("tokens_per_second")
        if speed:
            costs["train_words_per_second"] = speed / cell.get("processes", 1)
    return costs


@dataclass(frozen=True)
class Noise:
    """Variation of perplexity between runs that differ only in the seed.

    Attributes:
        spread: one standard deviation.
        range: largest gap among five seeds, None where it has not been reported.
        highest: largest perplexity to which the noise applies, twice the one it was measured at.
            Models that fail to extrapolate are not judged by it.
    """

    spread: float
    range: float | None
    highest: float

    def verdict(self, ours: float, printed: float) -> str:
        """Return ``=`` within one standard deviation, ``~`` within the range of seeds, ``≠`` outside.

        The verdict is empty where the noise is unknown.
        """
        if printed > self.highest:
            return ""
        gap = round(abs(ours - printed), 2)  # the paper's numbers have two decimals
        if gap <= self.spread:
            return "="
        if self.range is not None and gap <= self.range:
            return "~"
        return "≠"


def noise_of(corpus: str, train_length: int) -> Noise | None:
    """Return the noise of a corpus, or None if it is unknown.

    The noise is the one measured at this training length, or else the largest known one.
    """
    known = [row for row in paper.rows("noise") if row["corpus"] == corpus]
    deviations = [row for row in known if row["statistic"] == "standard_deviation"]
    if not deviations:
        return None
    largest = max(deviations, key=lambda row: row["perplexity"])
    same_length = [row for row in deviations if row["train_length"] == train_length]
    row = same_length[0] if same_length else largest
    ranges = [row["perplexity"] for row in known if row["statistic"] == "range"]
    return Noise(
        spread=row["perplexity"],
        range=max(ranges, default=None),
        highest=2 * row["measured_at_perplexity"],
    )


def difference(corpus: str, ours: Measurement | None, printed: Measurement | None) -> str:
    """Format our perplexity minus the paper's, with a verdict if the text is the paper's."""
    if ours is None or printed is None or ours.perplexity is None or printed.perplexity is None:
        return markdown.NOTHING
    gap = markdown.difference(ours.perplexity - printed.perplexity)
    noise = noise_of(corpus, printed.train_length)
    if noise is None or ours.other_text:
        return gap
    return f"{gap} {noise.verdict(ours.perplexity, printed.perplexity)}".rstrip()


def legend(corpus: str) -> str:
    """Return the explanation of the signs after differences, with the reports they are based on."""
    noise = noise_of(corpus, 0)
    if noise is None:
        return "The variation between seeds on this corpus has not been reported, so there are no verdicts."
    known = [row for row in paper.rows("noise") if row["corpus"] == corpus]
    text = (
        f"Difference: ours − paper; = within one standard deviation between seeds ({noise.spread}"
    )
    for row in known:
        if row["statistic"] == "standard_deviation" and row["perplexity"] != noise.spread:
            text += f"; {row['perplexity']} at L={row['train_length']}"
    text += ")"
    if noise.range is not None:
        text += f", ~ within the range of five seeds ({noise.range})"
    text += f", ≠ outside; no sign above a perplexity of {noise.highest:.0f}, where it was never measured."
    for row in known:
        if row["statistic"] == "largest_gap":
            text += f" Two sets of runs by the paper's author differ by up to {row['perplexity']}."
    return text


def speed_table(machines: Mapping[str, Cases]) -> str:
    """Format Table 1 and its counterpart for each machine, with every case that was measured."""
    printed = printed_speeds()
    parts = ["The paper, one V100:\n\n" + _speeds(printed, "words")]
    nothing_measured: dict[str, Cases] = {"not measured yet": {}}
    for machine, cases in (machines or nothing_measured).items():
        all_cases: dict[tuple[str, int], dict[str, float]] = dict.fromkeys(printed, {})
        all_cases.update(cases)
        parts.append(f"Ours, {markdown.literal(machine)}:\n\n{_speeds(all_cases, 'tokens')}")
    return "\n".join(parts)


def printed_speeds() -> Cases:
    """Return the paper's Table 1, in words per second and MB."""
    return {
        (row["position_method"], row["train_length"]): {
            "train": row["train_words_per_second"],
            "evaluate": row["eval_words_per_second"],
            "memory": 1000 * row["train_memory_gb"],
        }
        for row in paper.rows("table01")
    }


def _speeds(cases: Cases, unit: str) -> str:
    """Format speeds and memory with their relation to the sinusoidal model of the same length."""
    headers = ["method", "L", f"train {unit}/s", "× sinusoidal", f"evaluation {unit}/s"]
    headers += ["× sinusoidal", "train memory (MB)", "− sinusoidal"]
    lines = []
    for method, length in sorted(cases, key=lambda case: (method_order(case[0]), case[1])):
        values = cases[method, length]
        reference = cases.get(("sinusoidal", length), {})
        line = [method_name(method), str(length)]
        for key in ("train", "evaluate", "memory"):
            line += _value_and_relation(key, values.get(key), reference.get(key))
        lines.append(line)
    return markdown.table(headers, lines)


def _value_and_relation(key: str, value: float | None, reference: float | None) -> tuple[str, str]:
    """Format a speed and its ratio to the reference, or a memory size and its difference from it."""
    if value is None:
        return markdown.MISSING, markdown.NOTHING
    is_memory = key == "memory"
    text = f"{value:.0f}" if is_memory else markdown.thousands(value)
    if reference is None:
        return text, markdown.NOTHING
    relation = f"{value - reference:+.0f}" if is_memory else f"{value / reference:.2f}"
    return text, relation
