"""Our perplexities beside the paper's: which belong together, their table, and verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from alibi_fairseq.paper import published as paper
from alibi_fairseq.reporting import markdown
from alibi_fairseq.results.points import Point, method_name, model_label, series

# Where the paper gives a model's number of updates, ours may differ by this share: Tables 11 and 12
# tell 46.7k and 50k updates apart.
_UPDATES_TOLERANCE = 0.02

#: Tables with more columns than this have them as rows instead.
_MOST_COLUMNS = 8


@dataclass(frozen=True)
class Row:
    """One model of a paper's table: its numbers by column, and ours by variant and column.

    ``foreign`` are models of other people, of which there will be none of ours.
    """

    label: str
    paper: dict[Any, Point]
    ours: dict[str, dict[Any, Point]]
    foreign: bool = False

    def named(self, name: str = "ours") -> Iterator[tuple[str, dict[Any, Point]]]:
        """Ours by name: one even if there is nothing of ours yet."""
        if not self.foreign:
            for variant, points in (self.ours or {"": {}}).items():
                yield (f"{name} ({variant})" if variant else name), points


def rows_beside(
    item: str,
    ours: Iterable[Point],
    column: Callable[[Point], object] = lambda p: p.length,
    join_diagonal: bool = True,
) -> list[Row]:
    """The rows of a table of the paper in its order, each with our points of the same model.

    Args:
        ours: points measured in the paper's setting on the table's corpus.
        column: what tells the columns apart, e.g. the length.
        join_diagonal: put a method whose models were each evaluated at their own training length
            into one row, as Tables 5 and 8 do.
    """
    printed = paper.points(item)
    cases = {(p.subset, p.length, p.stride) for p in printed}
    usable = [p for p in ours if (p.subset, p.length, p.stride) in cases]
    joined = _diagonal_methods(printed) if join_diagonal else set()
    models: dict[str, list[Point]] = {}
    for point in printed:
        label = model_label(point.position_method, point.train_length)
        if point.position_method in joined:
            label = f"{method_name(point.position_method)}, L = evaluation length"
        models.setdefault(label, []).append(point)
    result = []
    for label, members in models.items():
        same = [p for p in usable if any(_same_model(p, printed) for printed in members)]
        if members[0].position_method in joined:
            same = [p for p in same if p.length == p.train_length]
        variants: dict[str, dict[Any, Point]] = {}
        for model in series(same):
            own = variants.setdefault(model.variant, {})
            own.update({column(point): point for point in model.points})
        result.append(Row(label, {column(p): p for p in members}, variants))
    return result


def _diagonal_methods(printed: tuple[Point, ...]) -> set[str]:
    """Methods with several models, each evaluated at its own training length only."""
    elsewhere = {p.position_method for p in printed if p.length != p.train_length}
    models = {(p.position_method, p.train_length) for p in printed}
    methods = [method for method, _ in models if method not in elsewhere]
    return {method for method in methods if methods.count(method) > 1}


def _same_model(point: Point, printed: Point) -> bool:
    models = {(each.position_method, each.train_length) for each in (point, printed)}
    known = printed.updates is None or same_updates(point.updates or 0, printed.updates)
    return len(models) == 1 and known


def same_updates(ours: int, printed: int) -> bool:
    """Whether a model was trained for the number of updates that the paper gives."""
    return abs(ours - printed) <= _UPDATES_TOLERANCE * printed


Line = list[str]  # a model, whose numbers, and a text per column


def lines(
    rows: Iterable[Row], columns: Sequence, name: str = "ours", corpus: str | None = None
) -> list[Line]:
    """The paper's line of each row, then ours.

    Args:
        name: of ours.
        corpus: of the paper, to add lines of differences.
    """
    found = []
    for row in rows:
        printed = [row.paper.get(column) for column in columns]
        shown = [markdown.NOTHING if p is None else markdown.point(p) for p in printed]
        found.append([row.label, "paper", *shown])
        for who, points in row.named(name):
            pairs = list(zip((points.get(column) for column in columns), printed, strict=True))
            found.append([row.label, who, *(_our_cell(*pair) for pair in pairs)])
            if corpus and points:
                gaps = (difference(corpus, *pair) for pair in pairs)
                found.append([row.label, "difference", *gaps])
    return found


def _our_cell(ours: Point | None, printed: Point | None) -> str:
    """Our perplexity; missing only where the paper has one."""
    return markdown.NOTHING if ours is None and printed is None else markdown.point(ours)


def grid(lines: Sequence[Line], columns: Sequence, corner: str = markdown.CORNER) -> str:
    """Lines as rows under the columns; where there are many, columns as rows instead."""
    if len(columns) > _MOST_COLUMNS:
        headers = ["length", *(f"{label}: {who}" for label, who, *_ in lines)]
        values = zip(map(str, columns), *(cells for _, _, *cells in lines), strict=True)
        return markdown.table(headers, [list(row) for row in values])
    labels = [label for label, *_ in lines]
    first = [label if label != before else "" for before, label in zip(["", *labels], labels)]
    rows = [[label, *line[1:]] for label, line in zip(first, lines, strict=True)]
    return markdown.table([corner, "", *map(str, columns)], rows, left=2)


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
