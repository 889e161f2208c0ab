"""The paper's tables with ours beside them: which numbers belong together, and verdicts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from alibi_fairseq.paper import published as paper
from alibi_fairseq.paper.report_data import Cases, ReportData
from alibi_fairseq.reporting import markdown
from alibi_fairseq.results.measurements import (
    Measurement,
    Series,
    group_by_model,
    method_name,
    method_order,
    model_label,
)

SWEEPS = ("table02", "table03", "table04")
TEST_SETS = ("table06", "table07", "table09", "table10")
#: A row for all models of a method but ALiBi, each evaluated at its own training length.
JOINED = ("table05", "table08")
#: What a table says about training: title and key in the paper's data.
_LARGE_COSTS = {"memory": "train_memory_gb", "updates": "updates", "GPU hours": "gpu_hours"}
COSTS = {
    "table06": {"training speed": "train_words_per_second"},
    **dict.fromkeys(("table11", "table12"), _LARGE_COSTS),
}
PERPLEXITY_TABLES = tuple(f"table{number:02d}" for number in range(2, 16))
TABLES = ("table01", *PERPLEXITY_TABLES)

_SPEEDS = (("batch 1", "tokens_per_second_batch_1"), ("full batches", "tokens_per_second"))

# Where the paper gives a model's number of updates, ours may differ by this share: Tables 11 and 12
# tell 46.7k and 50k updates apart.
_UPDATES_TOLERANCE = 0.02

#: Tables with more columns than this have them as rows instead.
_MOST_COLUMNS = 8


def table(item: str, results: ReportData) -> str:
    """One of Tables 1–15 as Markdown, e.g. ``table05``; without results, ours is missing.

    Rows are models, with a line of the paper's, of ours and of their difference; columns are lengths
    of evaluation, or the validation and the test set.
    """
    if item == "table01":
        return speed_table(results.speeds())
    corpus = paper.about(item)["corpus"]
    ours, printed = results.comparable(corpus), paper.points(item)
    rows = table_rows(printed, ours, joined=item in JOINED)
    columns: Sequence = sorted({point.length for point in printed})
    if item in TEST_SETS:
        columns, rows = ("valid", "test"), _with_other_people(item, rows)
    parts = [perplexity_grid(rows, columns, corpus=corpus)]
    if item in COSTS:
        parts += [
            "Training: the paper on V100s, speed in words; ours on the machine named in the sources, in "
            "tokens:\n",
            _cost_grid(item, rows, results.trainings(corpus)),
        ]
    if item in SWEEPS or item == "table06":
        columns = columns if item in SWEEPS else ("valid",)
        parts += [
            "Speed of evaluation in tokens per second (the paper: words, one V100, batch size 1; ours: "
            "the machine named in the sources):\n",
            _speed_grid(rows, columns),
        ]
    parts.append(legend(corpus) + "\n")
    if reasons := {point.other_text: None for point in ours if point.other_text}:
        parts.append(
            f"No verdicts: {'; '.join(reasons)}, so perplexities per token are in other units "
            "than the paper's.\n"
        )
    return "\n".join(parts)


class Row(NamedTuple):
    """One model of a paper's table: its numbers, and ours, of which there may be several variants."""

    paper: Series
    ours: Sequence[Series] = ()


def table_rows(
    printed: Sequence[Measurement],
    ours: Iterable[Measurement],
    joined: bool = False,
    label: Callable[[Measurement], str] = lambda p: model_label(p.position_method, p.train_length),
) -> list[Row]:
    """The rows of a table of the paper in its order, each with our points of the same model.

    Args:
        ours: points measured in the paper's setting on the table's corpus.
        joined: one row for each method but ALiBi, as Tables 5 and 8 have them.
        label: of a printed point's row.
    """
    cases = {(p.subset, p.length, p.stride) for p in printed}
    usable = [p for p in ours if (p.subset, p.length, p.stride) in cases]
    models: dict[str, list[Measurement]] = defaultdict(list)
    for point in printed:
        own = not joined or point.position_method == "alibi"
        name = f"{method_name(point.position_method)}, L = evaluation length"
        models[label(point) if own else name].append(point)
    rows = []
    for name, members in models.items():
        method, lengths = members[0].position_method, {p.train_length for p in members}
        length = lengths.pop() if len(lengths) == 1 else None
        same = [p for p in usable if any(_same_model(p, each) for each in members)]
        if length is None:
            same = [p for p in same if p.length == p.train_length]
        variants: dict[str, list[Measurement]] = defaultdict(list)
        for model in group_by_model(same):
            variants[model.variant] += model.points
        found = [Series(method, length, own, name, variant) for variant, own in variants.items()]
        rows.append(Row(Series(method, length, members, name, "paper", printed=True), found))
    return rows


def _same_model(point: Measurement, printed: Measurement) -> bool:
    models = {(each.position_method, each.train_length) for each in (point, printed)}
    return len(models) == 1 and _same_updates(point.updates or 0, printed.updates)


def _same_updates(ours: int, printed: int | None) -> bool:
    return printed is None or abs(ours - printed) <= _UPDATES_TOLERANCE * printed


def _with_other_people(item: str, rows: list[Row]) -> list[Row]:
    """The rows with other people's models among them, in the paper's order."""
    of_model = {(p.position_method, p.train_length): row for row in rows for p in row.paper.points}
    found = []
    for printed in paper.rows(item):
        row = of_model.get((printed["position_method"], printed["train_length"]))
        if row is None:
            cells = ((subset, printed[f"{subset}_perplexity"]) for subset in ("valid", "test"))
            points = [Measurement("", 0, 0, 0, subset, value) for subset, value in cells if value]
            row = Row(Series("", None, points, f"{printed['model']} (as printed)"))
        found.append(row)
    return found


GridRow = tuple[str, str, list[str]]  # a model, whose numbers, and a text per column


def _grid(lines: list[GridRow], columns: Sequence, corner: str = markdown.CORNER) -> str:
    """Each model's lines under its name; where columns are many, as rows instead."""
    if len(columns) > _MOST_COLUMNS:
        headers = ["length", *(f"{label}: {who}" for label, who, _ in lines)]
        values = zip(map(str, columns), *(cells for *_, cells in lines), strict=True)
        return markdown.table(headers, [list(row) for row in values])
    rows, last = [], ""
    for label, who, cells in lines:
        rows.append([label if label != last else "", who, *cells])
        last = label
    return markdown.table([corner, "", *map(str, columns)], rows, left=2)


def _sides(rows: Iterable[Row], name: str = "ours") -> Iterator[tuple[str, Series, Series]]:
    """Whose numbers, they, and the paper's: for each row the paper's itself, then ours.

    Ours come once even if there are none yet, and not for other people's models.
    """
    for printed, ours in rows:
        yield "paper", printed, printed
        for one in (ours or [Series("", None, ())]) if printed.position_method else ():
            yield (f"{name} ({one.variant})" if one.variant else name), one, printed


def _at(one: Series, columns: Sequence) -> list[Measurement | None]:
    """The points of a model by column: lengths, or splits."""
    found = {key: point for point in one.points for key in (point.length, point.subset)}
    return [found.get(column) for column in columns]


def perplexity_grid(
    rows: Iterable[Row], columns: Sequence, name: str = "ours", corpus: str | None = None
) -> str:
    """The paper's perplexities and ours, which are missing only where the paper has one.

    Args:
        name: of ours.
        corpus: of the paper, to add lines of differences.
    """
    rows = list(rows)
    lines: list[GridRow] = []
    for who, one, printed in _sides(rows, name):
        pairs = list(zip(_at(one, columns), _at(printed, columns), strict=True))
        cells = [markdown.NOTHING if own is p is None else markdown.point(own) for own, p in pairs]
        lines.append((printed.name, who, cells))
        if corpus and one.points and who != "paper":
            gaps = [difference(corpus, *pair) for pair in pairs]
            lines.append((printed.name, "difference", gaps))
    shown = [point for row in rows for one in row.ours for point in one.points]
    note = markdown.past_end_note(shown)
    return f"{_grid(lines, columns)}\n{note}" if note else _grid(lines, columns)


def _speed_grid(rows: list[Row], columns: Sequence) -> str:
    """Speeds of evaluation, the paper's at batch size 1."""
    lines: list[GridRow] = []
    for who, one, printed in _sides(rows):
        absent = markdown.NOTHING if who == "paper" else markdown.MISSING
        for batch, key in _SPEEDS[: 1 if who == "paper" else 2]:
            cells = []
            for point in _at(one, columns):
                value = getattr(point, key, None)
                status = (point and point.status) or absent
                cells.append(status if value is None else f"{value:.0f}")
            lines.append((printed.name, f"{who}, {batch}", cells))
    return _grid(lines, columns)


def _cost_grid(item: str, rows: list[Row], training: list[dict]) -> str:
    """What the training of each model took, the paper's and that in the record of ours."""
    costs = {model_label(r["position_method"], r["train_length"]): r for r in paper.rows(item)}
    lines = []
    for who, _, printed in _sides(rows):
        facts = costs[printed.name]
        if who != "paper":
            facts = _record(facts, training)
        cells = [_cost(title, facts.get(key)) for title, key in COSTS[item].items()]
        lines.append((printed.name, who, cells))
    return _grid(lines, [*COSTS[item]], corner="model")


def _cost(title: str, value: float | None) -> str:
    if value is None:
        return markdown.MISSING
    return f"{value:.1f} GB" if title == "memory" else markdown.thousands(value)


def _record(printed: dict, training: list[dict]) -> dict:
    """Our run when it was as old as the paper's, with the paper's keys and units."""
    found: dict = {}
    for cell in training:
        same = all(cell[key] == printed[key] for key in ("position_method", "train_length"))
        if same and _same_updates(cell["updates"], printed.get("updates")):
            found = {key: cell[key] for key in ("updates", "gpu_hours") if key in cell}
            if memory := cell.get("peak_memory_mb"):
                found["train_memory_gb"] = memory / 1000
            if speed := cell.get("tokens_per_second"):
                found["train_words_per_second"] = speed / cell.get("processes", 1)
    return found


@dataclass(frozen=True)
class Noise:
    """How far apart runs that differ in nothing but the seed are, in perplexity.

    ``spread`` is one standard deviation, ``range`` the largest gap among five seeds (None where
    none was reported), ``highest`` the perplexity up to which they apply: twice the one
    they were measured at, so that they do not judge models that fail to extrapolate.
    """

    spread: float
    range: float | None
    highest: float

    def verdict(self, ours: float, printed: float) -> str:
        """``=`` within one standard deviation, ``~`` within the range of seeds, ``≠`` outside.

        Empty where the noise is not known.
        """
        if printed > self.highest:
            return ""
        difference = round(abs(ours - printed), 2)  # the paper's numbers have two decimals
        if difference <= self.spread:
            return "="
        return "~" if self.range is not None and difference <= self.range else "≠"


def noise_of(corpus: str, train_length: int) -> Noise | None:
    """The noise of a corpus: measured at this training length, else the largest known; or None."""
    known = [row for row in paper.rows("noise") if row["corpus"] == corpus]
    deviations = [row for row in known if row["statistic"] == "standard_deviation"]
    if not deviations:
        return None
    largest = max(deviations, key=lambda row: row["perplexity"])
    row = next((row for row in deviations if row["train_length"] == train_length), largest)
    ranges = [row["perplexity"] for row in known if row["statistic"] == "range"]
    return Noise(row["perplexity"], max(ranges, default=None), 2 * row["measured_at_perplexity"])


def difference(corpus: str, ours: Measurement | None, printed: Measurement | None) -> str:
    """Ours minus the paper's, with the verdict of the noise band where the text is the paper's."""
    if ours is None or printed is None or ours.perplexity is None or printed.perplexity is None:
        return markdown.NOTHING
    gap = markdown.difference(ours.perplexity - printed.perplexity)
    noise = noise_of(corpus, printed.train_length)
    if noise is None or ours.other_text:
        return gap
    return f"{gap} {noise.verdict(ours.perplexity, printed.perplexity)}".rstrip()


def legend(corpus: str) -> str:
    """What the signs behind a difference mean, and on which reports they rest."""
    noise = noise_of(corpus, 0)
    if noise is None:
        return "Nobody has reported how far seeds are apart on this corpus: no verdict is given."
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


def speed_table(machines: dict[str, Cases]) -> str:
    """Table 1 and its counterpart for each machine, missing or not, and whatever else was measured."""
    printed = printed_speeds()
    parts = ["The paper, one V100:\n\n" + _speeds(printed, "words")]
    for machine, cases in (machines or {"not measured yet": {}}).items():
        shown = _speeds({**dict.fromkeys(printed, {}), **cases}, "tokens")
        parts.append(f"Ours, {markdown.literal(machine)}:\n\n{shown}")
    return "\n".join(parts)


def printed_speeds() -> Cases:
    """The paper's Table 1, in words and MB."""
    return {
        (row["position_method"], row["train_length"]): {
            "train": row["train_words_per_second"],
            "evaluate": row["eval_words_per_second"],
            "memory": 1000 * row["train_memory_gb"],
        }
        for row in paper.rows("table01")
    }


def _speeds(cases: Cases, unit: str) -> str:
    headers = ["method", "L", f"train {unit}/s", "× sinusoidal", f"evaluation {unit}/s"]
    headers += ["× sinusoidal", "train memory (MB)", "− sinusoidal"]
    lines = []
    for method, length in sorted(cases, key=lambda case: (method_order(case[0]), case[1])):
        line = [method_name(method), str(length)]
        for key in ("train", "evaluate", "memory"):
            own = cases[method, length].get(key)
            reference = cases.get(("sinusoidal", length), {}).get(key)
            shown, beside = markdown.MISSING, markdown.NOTHING
            if own is not None:
                shown = f"{own:.0f}" if key == "memory" else markdown.thousands(own)
            if own is not None and reference is not None:
                gap = f"{own - reference:+.0f}"
                beside = gap if key == "memory" else f"{own / reference:.2f}"
            line += [shown, beside]
        lines.append(line)
    return markdown.table(headers, lines)
