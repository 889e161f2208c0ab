"""Our perplexities beside the paper's: which belong together, their difference and its verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from alibi_fairseq.paper import published as paper
from alibi_fairseq.reporting import markdown
from alibi_fairseq.results.points import Point, method_name, model_label, series

# Where the paper gives a model's number of updates, ours may differ by this share: Tables 11 and 12
# tell 46.7k and 50k updates apart.
_UPDATES_TOLERANCE = 0.02


@dataclass(frozen=True)
class Row:
    """One model of a paper's table: its numbers by column, and ours by variant and column."""

    label: str
    paper: dict[object, Point]
    ours: dict[str, dict[object, Point]]

    @property
    def lines(self) -> list[tuple[str, dict[object, Point]]]:
        """Ours by the name of the line: one line even if there is nothing of ours yet."""
        named = {f"ours ({variant})" if variant else "ours": p for variant, p in self.ours.items()}
        return list((named or {"ours": {}}).items())


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
    result = []
    for label, members in _paper_rows(printed, join_diagonal).items():
        models = {(p.position_method, p.train_length): p for p in members}
        matching = [p for p in usable if _same_model(p, models)]
        if label.diagonal:
            matching = [p for p in matching if p.length == p.train_length]
        variants: dict[str, dict[object, Point]] = {}
        for model in series(matching):
            own = variants.setdefault(model.variant, {})
            own.update({column(point): point for point in model.points})
        result.append(Row(label.text, {column(p): p for p in members}, variants))
    return result


@dataclass(frozen=True)
class _Label:
    text: str
    diagonal: bool  # one row for several models, each evaluated at its own training length


def _paper_rows(printed: tuple[Point, ...], join: bool) -> dict[_Label, list[Point]]:
    result: dict[_Label, list[Point]] = {}
    for point in printed:
        same_method = [p for p in printed if p.position_method == point.position_method]
        lengths = {p.train_length for p in same_method}
        diagonal = (
            join and len(lengths) > 1 and all(p.length == p.train_length for p in same_method)
        )
        if diagonal:
            text = f"{method_name(point.position_method)}, L = evaluation length"
        else:
            text = model_label(point.position_method, point.train_length)
        result.setdefault(_Label(text, diagonal), []).append(point)
    return result


def _same_model(point: Point, models: dict[tuple[str, int], Point]) -> bool:
    printed = models.get((point.position_method, point.train_length))
    if printed is None:
        return False
    if printed.updates is None:
        return True
    return point.updates is not None and same_updates(point.updates, printed.updates)


def same_updates(ours: int, printed: int) -> bool:
    """Whether a model was trained for the number of updates that the paper gives."""
    return abs(ours - printed) <= _UPDATES_TOLERANCE * printed


def printed_cell(point: Point | None) -> str:
    """A perplexity as printed, or a dash where the paper has none."""
    return markdown.NOTHING if point is None else markdown.point(point)


def our_cell(ours: Point | None, printed: Point | None) -> str:
    """Our perplexity; missing only where the paper has one."""
    return markdown.NOTHING if ours is None and printed is None else markdown.point(ours)


def difference(corpus: str, ours: Point | None, printed: Point | None) -> str:
    """Ours minus the paper's, with the verdict of the noise band where the text is the paper's."""
    if ours is None or printed is None or ours.perplexity is None or printed.perplexity is None:
        return markdown.NOTHING
    gap = ours.perplexity - printed.perplexity
    noise = paper.noise(corpus, printed.train_length)
    verdict = ""
    if noise is not None and ours.same_text:
        verdict = noise.verdict(ours.perplexity, printed.perplexity)
    return f"{markdown.difference(gap)} {verdict}".rstrip()


def legend(corpus: str) -> str:
    """What the signs behind a difference mean, and on which reports they rest."""
    noise = paper.noise(corpus, 0)
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
