"""The paper's tables with ours beside them: which numbers belong together, and verdicts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from alibi_fairseq.paper import published as paper
from alibi_fairseq.reporting import markdown, speed
from alibi_fairseq.reporting.collect import Results
from alibi_fairseq.results.points import Point, Series, method_name, model_label, series

SWEEPS = ("table02", "table03", "table04")
TEST_SETS = ("table06", "table07", "table09", "table10")
LARGE = ("table11", "table12")
#: What a table says about training: title and key in the paper's data.
_LARGE_COSTS = {"memory": "train_memory_gb", "updates": "updates", "GPU hours": "gpu_hours"}
COSTS = {
    "table06": {"training speed": "train_words_per_second"},
    **dict.fromkeys(LARGE, _LARGE_COSTS),
}
PERPLEXITY_TABLES = tuple(f"table{number:02d}" for number in range(2, 16))
TABLES = ("table01", *PERPLEXITY_TABLES)

# Where the paper gives a model's number of updates, ours may differ by this share: Tables 11 and 12
# tell 46.7k and 50k updates apart.
_UPDATES_TOLERANCE = 0.02

#: Tables with more columns than this have them as rows instead.
_MOST_COLUMNS = 8


def table(item: str, results: Results) -> str:
    """One of Tables 1–15 as Markdown, e.g. ``table05``; without results, ours is missing.

    Rows are models, with a line of the paper's, of ours and of their difference; columns are lengths
    of evaluation, or the validation and the test set.
    """
    if item == "table01":
        return speed.speed_table(results.of_kind("benchmark"))
    corpus = paper.about(item)["corpus"]
    ours, printed = results.comparable(corpus), paper.points(item)
    rows = rows_beside(printed, ours, join_diagonal=item not in LARGE)
    columns: Sequence = sorted({point.length for point in printed})
    if item in TEST_SETS:
        columns, rows = ("valid", "test"), _with_other_people(item, rows)
    parts = [perplexity_grid(rows, columns, corpus=corpus)]
    if item in COSTS:
        parts += [
            "Training: the paper on V100s, speed in words; ours on the machine named in the sources, in "
            "tokens:\n",
            _cost_grid(item, rows, results.comparable_training(corpus)),
        ]
    if item in SWEEPS or item == "table06":
        columns = columns if item in SWEEPS else ("valid",)
        parts += [
            "Speed of evaluation in tokens per second (the paper: words, one V100, batch size 1; ours: "
            "the machine named in the sources):\n",
            _speed_grid(rows, columns),
        ]
    if item == "table11":
        parts.append(speed.time_saved(results))
    return "\n".join([*parts, legend(corpus) + "\n", *_other_text(rows, ours)])


@dataclass(frozen=True)
class Row:
    """One model of a paper's table: its numbers, and ours, of which there may be several variants."""

    label: str
    paper: Series
    ours: Sequence[Series] = ()

    def named(self, name: str = "ours") -> list[tuple[str, Series]]:
        """Ours by name: one even if there is nothing of ours yet, none of other people's models."""
        if not self.paper.position_method:
            return []
        ours = self.ours or [Series("", None, ())]
        return [(f"{name} ({one.variant})" if one.variant else name, one) for one in ours]


def rows_beside(
    printed: Sequence[Point],
    ours: Iterable[Point],
    join_diagonal: bool = True,
    label: Callable[[Point], str] = lambda p: model_label(p.position_method, p.train_length),
) -> list[Row]:
    """The rows of a table of the paper in its order, each with our points of the same model.

    Args:
        ours: points measured in the paper's setting on the table's corpus.
        join_diagonal: put a method whose models were each evaluated at their own training length
            into one row, as Tables 5 and 8 do.
        label: of a printed point's row.
    """
    cases = {(p.subset, p.length, p.stride) for p in printed}
    usable = [p for p in ours if (p.subset, p.length, p.stride) in cases]
    joined = _diagonal_methods(printed) if join_diagonal else set()
    models: dict[str, list[Point]] = defaultdict(list)
    for point in printed:
        own = point.position_method in joined
        name = f"{method_name(point.position_method)}, L = evaluation length"
        models[name if own else label(point)].append(point)
    rows = []
    for name, members in models.items():
        method, lengths = members[0].position_method, {p.train_length for p in members}
        length = lengths.pop() if len(lengths) == 1 else None
        same = [p for p in usable if any(_same_model(p, each) for each in members)]
        if method in joined:
            same = [p for p in same if p.length == p.train_length]
        variants: dict[str, list[Point]] = defaultdict(list)
        for model in series(same):
            variants[model.variant] += model.points
        found = [
            Series(method, length, own, variant, False, name) for variant, own in variants.items()
        ]
        rows.append(Row(name, Series(method, length, members, "paper", True, name), found))
    return rows


def _diagonal_methods(printed: Sequence[Point]) -> set[str]:
    """Methods with several models, each evaluated at its own training length only."""
    cases: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for point in printed:
        cases[point.position_method].add((point.train_length, point.length))
    return {method for method, at in cases.items() if len(at) > 1 and all(a == b for a, b in at)}


def _same_model(point: Point, printed: Point) -> bool:
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
            points = [Point("", 0, 0, 0, subset, value) for subset, value in cells if value]
            row = Row(f"{printed['model']} (as printed)", Series("", None, points))
        found.append(row)
    return found


Line = tuple[str, str, list[str]]  # a model, whose numbers, and a text per column


def _grid(lines: list[Line], columns: Sequence, corner: str = markdown.CORNER) -> str:
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


def _at(one: Series, columns: Sequence) -> list[Point | None]:
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
    lines: list[Line] = []
    for row in rows:
        printed = _at(row.paper, columns)
        lines.append((row.label, "paper", [_if_printed(point, point) for point in printed]))
        for who, own in row.named(name):
            pairs = list(zip(_at(own, columns), printed, strict=True))
            lines.append((row.label, who, [_if_printed(*pair) for pair in pairs]))
            if corpus and own.points:
                gaps = [difference(corpus, *pair) for pair in pairs]
                lines.append((row.label, "difference", gaps))
    return _grid(lines, columns)


def _if_printed(point: Point | None, printed: Point | None) -> str:
    return markdown.NOTHING if point is printed is None else markdown.point(point)


def _speed_grid(rows: list[Row], columns: Sequence) -> str:
    """Speeds of evaluation, the paper's at batch size 1."""

    def line(row: Row, who: str, one: Series, key: str, absent: str = markdown.MISSING) -> Line:
        cells = []
        for point in _at(one, columns):
            value = getattr(point, key, None)
            status = point.status if point is not None else ""
            cells.append((status or absent) if value is None else f"{value:.0f}")
        return row.label, who, cells

    one, full = "tokens_per_second_batch_1", "tokens_per_second"
    lines = []
    for row in rows:
        lines.append(line(row, "paper, batch 1", row.paper, one, markdown.NOTHING))
        for who, own in row.named():
            lines.append(line(row, f"{who}, batch 1", own, one))
            lines.append(line(row, f"{who}, full batches", own, full))
    return _grid(lines, columns)


def _cost_grid(item: str, rows: list[Row], training: list[dict]) -> str:
    """What the training of each model took, the paper's and that in the record of ours."""
    printed = {model_label(r["position_method"], r["train_length"]): r for r in paper.rows(item)}
    lines = []
    for row in rows:
        theirs = printed[row.label]
        named = [("paper", theirs), *((who, _record(theirs, training)) for who, _ in row.named())]
        for who, facts in named:
            cells = [_cost(title, facts.get(key)) for title, key in COSTS[item].items()]
            lines.append((row.label, who, cells))
    return _grid(lines, [*COSTS[item]], corner="model")


def _cost(title: str, value: float | None) -> str:
    if value is None:
        return markdown.MISSING
    return f"{value:.1f} GB" if title == "memory" else markdown.thousands(value)


def _record(printed: dict, training: list[dict]) -> dict:
    """Our run when it was as old as the paper's, with the paper's keys and units."""
    found: dict = {}
    for cell in sorted(training, key=lambda cell: cell["updates"]):
        same = all(cell[key] == printed[key] for key in ("position_method", "train_length"))
        if same and _same_updates(cell["updates"], printed.get("updates")):
            found = {key: cell[key] for key in ("updates", "gpu_hours") if key in cell}
            if memory := cell.get("peak_memory_mb"):
                found["train_memory_gb"] = memory / 1000
            if speed := cell.get("tokens_per_second"):
                found["train_words_per_second"] = speed / cell.get("processes", 1)
    return found


def _other_text(rows: list[Row], ours: list[Point]) -> list[str]:
    """Why there are no verdicts, and ours in bits per byte, which other vocabularies share."""
    reasons = {point.other_text: None for point in ours if point.other_text}
    if not reasons:
        return []
    lines = [
        [
            row.label + name.removeprefix("ours"),
            point.subset,
            str(point.length),
            f"{point.bits_per_byte:.4f}",
        ]
        for row in rows
        for name, own in row.named()
        for point in own.points
        if point.bits_per_byte is not None
    ]
    text = (
        f"No verdicts: {'; '.join(reasons)}, so perplexities per token are in other units "
        "than the paper's.\n"
    )
    headers = ["ours", "split", "evaluated at", "bits per byte"]
    return [text, markdown.table(headers, lines, left=2)] if lines else [text]


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


def difference(corpus: str, ours: Point | None, printed: Point | None) -> str:
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
