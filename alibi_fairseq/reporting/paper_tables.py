"""The paper's tables with ours beside them. ``TABLES`` lists them."""

from __future__ import annotations

from collections.abc import Sequence

from alibi_fairseq.paper import published as paper
from alibi_fairseq.reporting import comparison, markdown, speed
from alibi_fairseq.reporting.collect import Results
from alibi_fairseq.reporting.comparison import Row
from alibi_fairseq.reporting.training_curves import time_curve, times_as_fast
from alibi_fairseq.results.points import Point, method_name, model_label

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


def table(item: str, results: Results) -> str:
    """One of Tables 1–15 as Markdown, e.g. ``table05``; without results, ours is missing.

    Rows are models, with a line of the paper's, of ours and of their difference; columns are lengths
    of evaluation, or the validation and the test set.
    """
    if item == "table01":
        return speed.speed_table(results.of_kind("benchmark"))
    corpus = paper.about(item)["corpus"]
    ours = results.comparable(corpus)
    columns: Sequence = sorted({point.length for point in paper.points(item)})
    rows = comparison.rows_beside(item, ours, join_diagonal=item not in LARGE)
    if item in TEST_SETS:
        columns = ("valid", "test")
        rows = _test_sets(item, comparison.rows_beside(item, ours, lambda p: p.subset))
    parts = [comparison.grid(comparison.lines(rows, columns, corpus=corpus), columns)]
    if item in COSTS:
        parts += [
            "Training: the paper on V100s, speed in words; ours on the machine named in the sources, in "
            "tokens:\n",
            comparison.grid(
                _costs(item, rows, results.comparable_training(corpus)), [*COSTS[item]], "model"
            ),
        ]
    if item in SWEEPS or item == "table06":
        columns = columns if item in SWEEPS else ("valid",)
        parts += [
            "Speed of evaluation in tokens per second (the paper: words, one V100, batch size 1; ours: "
            "the machine named in the sources):\n",
            comparison.grid(_speeds(rows, columns), columns),
        ]
    if item == "table11":
        parts.append(_time_saved(results))
    return "\n".join([*parts, comparison.legend(corpus) + "\n", *_other_text(rows, ours)])


def _other_text(rows: list[Row], ours: list[Point]) -> list[str]:
    """Why there are no verdicts, and ours in bits per byte, which other vocabularies share."""
    reasons = {point.other_text: None for point in ours if point.other_text}
    if not reasons:
        return []
    lines = [
        [row.label + name[4:], point.subset, str(point.length), f"{point.bits_per_byte:.4f}"]
        for row in rows
        for name, points in row.named()
        for point in points.values()
        if point.bits_per_byte is not None
    ]
    text = (
        f"No verdicts: {'; '.join(reasons)}, so perplexities per token are in other units "
        "than the paper's.\n"
    )
    headers = ["ours", "split", "evaluated at", "bits per byte"]
    return [text, markdown.table(headers, lines, left=2)] if lines else [text]


def _test_sets(item: str, rows: list[Row]) -> list[Row]:
    """The rows with other people's models among them, in the paper's order."""
    of_model = {
        (point.position_method, point.train_length): row
        for row in rows
        for point in row.paper.values()
    }
    found = []
    for printed in paper.rows(item):
        row = of_model.get((printed["position_method"], printed["train_length"]))
        if row is None:
            cells = ((subset, printed[f"{subset}_perplexity"]) for subset in ("valid", "test"))
            points = {subset: Point("", 0, 0, 0, subset, value) for subset, value in cells if value}
            row = Row(f"{printed['model']} (as printed)", points, {}, foreign=True)
        found.append(row)
    return found


def _speeds(rows: list[Row], columns: Sequence) -> list[comparison.Line]:
    """Speeds of evaluation, the paper's at batch size 1."""
    batches = {"batch 1": "tokens_per_second_batch_1", "full batches": "tokens_per_second"}
    lines = []
    for row in rows:
        printed = (_speed(row.paper.get(n), batches["batch 1"], markdown.NOTHING) for n in columns)
        lines.append([row.label, "paper, batch 1", *printed])
        for name, points in row.named():
            for batch, key in batches.items():
                own = (_speed(points.get(n), key) for n in columns)
                lines.append([row.label, f"{name}, {batch}", *own])
    return lines


def _speed(point: Point | None, key: str, absent: str = markdown.MISSING) -> str:
    value = None if point is None else getattr(point, key)
    if value is None:
        return point.status if point is not None and point.status else absent
    return f"{value:.0f}"


def _costs(item: str, rows: list[Row], training: list[dict]) -> list[comparison.Line]:
    """What the training of each model took, the paper's and that in the record of ours."""
    lines = []
    printed = {model_label(r["position_method"], r["train_length"]): r for r in paper.rows(item)}
    for row in rows:
        theirs = printed[row.label]
        lines.append([row.label, "paper", *_cost(item, theirs)])
        record = _cost(item, _record(theirs, training))
        lines += [[row.label, name, *record] for name, _ in row.named()]
    return lines


def _record(printed: dict, training: list[dict]) -> dict:
    """Our run when it was as old as the paper's, with the paper's keys and units."""
    found: dict = {}
    for cell in sorted(training, key=lambda cell: cell["updates"]):
        same = all(cell[key] == printed[key] for key in ("position_method", "train_length"))
        age = printed.get("updates")
        if same and (age is None or comparison.same_updates(cell["updates"], age)):
            found = {key: cell[key] for key in ("updates", "gpu_hours") if key in cell}
            if memory := cell.get("peak_memory_mb"):
                found["train_memory_gb"] = memory / 1000
            if speed := cell.get("tokens_per_second"):
                found["train_words_per_second"] = speed / cell.get("processes", 1)
    return found


def _cost(item: str, facts: dict) -> list[str]:
    values = {title: facts.get(key) for title, key in COSTS[item].items()}
    return [
        markdown.MISSING
        if value is None
        else f"{value:.1f} GB"
        if title == "memory"
        else markdown.thousands(value)
        for title, value in values.items()
    ]


def _time_saved(results: Results) -> str:
    """How much faster ALiBi reaches a perplexity than the model it is compared with in Figure 5."""
    lines = []
    for panel in ("left", "right"):
        rows = [row for row in paper.rows("figure05") if row["panel"] == panel]
        keys = ("position_method", "train_length", "length")
        slow, fast = ({key: row[key] for key in keys} for row in rows)
        ratio = times_as_fast(
            time_curve(results, "cc100-roberta", fast), time_curve(results, "cc100-roberta", slow)
        )
        labels = [
            model_label(case["position_method"], case["train_length"]) for case in (fast, slow)
        ]
        shown = markdown.MISSING if ratio is None else f"{ratio - 1:+.0%}"
        printed = "+11%" if panel == "right" else markdown.NOTHING
        lines.append([*labels, str(fast["length"]), printed, shown])
    headers = ["model", "reaches perplexities of", "evaluated at", "faster by: paper", "ours"]
    return (
        "\nTraining time to the same perplexity, mean over five perplexities that both curves of "
        "Figure 5 pass through (paper: section 4.2):\n\n"
    ) + markdown.table(headers, lines, left=2)


def replication_table() -> str:
    """What others, or the same author elsewhere, measured for cells of the paper."""
    lines = []
    for row in paper.rows("replications"):
        printed = _printed_cell(row)
        shown = [markdown.NOTHING] * 2
        if printed is not None:
            gap = markdown.difference(row["perplexity"] - printed)
            shown = [markdown.perplexity(printed), gap]
        cut = "non-overlapping" if row["stride"] == row["length"] else f"S={row['stride']}"
        model = [method_name(row["position_method"]), str(row["train_length"])]
        measured = [cut, row["subset"], markdown.perplexity(row["perplexity"])]
        lines.append([row["source"], row["corpus"], *model, *measured, *shown])
    headers = ["source", "corpus", "method", "L", "inference", "split", "measured", "paper"]
    return markdown.table([*headers, "difference"], lines, left=6)


def _printed_cell(row: dict) -> float | None:
    """The paper's perplexity for a line of replications.csv, None where it has none."""
    keys = ("position_method", "train_length", "length", "stride", "subset")
    for item in PERPLEXITY_TABLES:
        if paper.about(item)["corpus"] == row["corpus"]:
            for point in paper.points(item):
                if all(getattr(point, key) == row[key] for key in keys):
                    return point.perplexity
    return None
