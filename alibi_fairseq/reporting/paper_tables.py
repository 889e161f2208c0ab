"""The paper's tables with ours beside them. ``TABLES`` lists them."""

from __future__ import annotations

from collections.abc import Sequence

from alibi_fairseq.paper import published as paper
from alibi_fairseq.reporting import comparison, markdown, speed
from alibi_fairseq.reporting.collect import Results
from alibi_fairseq.reporting.comparison import Row
from alibi_fairseq.reporting.training_curves import time_curve, times_as_fast, training_speeds
from alibi_fairseq.results.points import Point, method_name, model_label

SWEEPS = ("table02", "table03", "table04")
TEST_SETS = ("table06", "table07", "table09", "table10")
LARGE = ("table11", "table12")
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
    ours = results.comparable.get(corpus, [])
    columns: Sequence = sorted({point.length for point in paper.points(item)})
    rows = comparison.rows_beside(item, ours, join_diagonal=item not in LARGE)
    if item in TEST_SETS:
        columns = ("valid", "test")
        rows = _test_sets(item, comparison.rows_beside(item, ours, lambda p: p.subset))
    lines = comparison.lines(rows, columns, corpus=corpus)
    if item in LARGE:
        lines = _with_costs(item, lines, rows, results.comparable_training(corpus))
        columns = ("memory", "updates", "GPU hours", *columns)
    parts = [comparison.grid(lines, columns)]
    if item in SWEEPS:
        parts += [_SPEEDS, comparison.grid(_speeds_by_length(rows, columns), columns)]
    elif item == "table06":
        trained = training_speeds(results, corpus)
        columns = ("training", "evaluation, batch 1", "evaluation, full batches")
        parts += [_SPEEDS, comparison.grid(_speeds(item, rows, trained), columns)]
    elif item == "table11":
        parts.append(_time_saved(results))
    return "\n".join(
        [*parts, comparison.legend(corpus) + "\n", *_other_text(corpus, rows, results)]
    )


def _other_text(corpus: str, rows: list[Row], results: Results) -> list[str]:
    """Why there are no verdicts, and ours in bits per byte, which other vocabularies share."""
    if corpus not in results.other_text:
        return []
    lines = [
        [row.label + name[4:], point.subset, str(point.length), f"{point.bits_per_byte:.4f}"]
        for row in rows
        for name, points in row.named()
        for point in points.values()
        if point.bits_per_byte is not None
    ]
    text = (
        f"No verdicts: {results.other_text[corpus]}, so perplexities per token are in other units "
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
            perplexities = {subset: printed[f"{subset}_perplexity"] for subset in ("valid", "test")}
            row = Row(
                f"{printed['model']} (as printed)",
                {s: Point("", 0, 0, 0, s, p) for s, p in perplexities.items() if p is not None},
                {},
                foreign=True,
            )
        found.append(row)
    return found


_SPEEDS = (
    "Speed in tokens per second (the paper: words, one V100, evaluation at batch size 1; ours: the "
    "machine named in the sources):\n"
)


def _speeds_by_length(rows: list[Row], lengths: Sequence) -> list[comparison.Line]:
    """Speeds of evaluation, which Tables 2–4 print too."""
    batches = {"batch 1": "tokens_per_second_batch_1", "full batches": "tokens_per_second"}
    lines = []
    for row in rows:
        printed = (_speed(row.paper.get(n), batches["batch 1"], markdown.NOTHING) for n in lengths)
        lines.append([row.label, "paper, batch 1", *printed])
        for name, points in row.named():
            for batch, key in batches.items():
                own = (_speed(points.get(n), key) for n in lengths)
                lines.append([row.label, f"{name}, {batch}", *own])
    return lines


def _speeds(item: str, rows: list[Row], trained: dict) -> list[comparison.Line]:
    """Speeds of training and evaluation; ours of training are of the runs' own records."""
    lines = []
    for row, printed in zip(rows, paper.rows(item), strict=True):
        speeds = (printed["train_words_per_second"], printed["eval_words_per_second"])
        lines.append([row.label, "paper", *map(markdown.thousands, speeds), markdown.NOTHING])
        for name, points in row.named():
            training = trained.get((printed["position_method"], printed["train_length"]))
            lines.append(
                [
                    row.label,
                    name,
                    markdown.MISSING if training is None else markdown.thousands(training),
                    _speed(points.get("valid"), "tokens_per_second_batch_1"),
                    _speed(points.get("valid"), "tokens_per_second"),
                ]
            )
    return lines


def _speed(point: Point | None, key: str, absent: str = markdown.MISSING) -> str:
    value = None if point is None else getattr(point, key)
    if value is None:
        return point.status if point is not None and point.status else absent
    return f"{value:.0f}"


def _with_costs(
    item: str, lines: list[comparison.Line], rows: list[Row], training: list[dict]
) -> list[comparison.Line]:
    """The lines of Tables 11 and 12 with memory, updates and GPU hours in front of the perplexities."""
    spent = {row.label: _spent_by_us(row, training) for row in rows}
    cost = {
        model_label(row["position_method"], row["train_length"]): row for row in paper.rows(item)
    }
    found = []
    for label, who, *cells in lines:
        of_line = {"paper": cost[label], "difference": None}.get(who, spent[label])
        found.append([label, who, *_cost(of_line), *cells])
    return found


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


def _spent_by_us(row: Row, training: list[dict]) -> dict:
    """What our run had spent when it was as old as the paper's."""
    first = next(iter(row.paper.values()))
    own = [point for _, points in row.named() for point in points.values()]
    spent = {
        "train_memory_gb": None,
        "updates": own[0].updates if own else None,
        "gpu_hours": None,
    }
    for cell in training:
        model = (cell["position_method"], cell["train_length"])
        if model == (first.position_method, first.train_length) and comparison.same_updates(
            cell["updates"], first.updates or 0
        ):
            memory = cell.get("peak_memory_mb")
            spent = {
                "train_memory_gb": None if memory is None else round(memory / 1000, 1),
                "updates": cell["updates"],
                "gpu_hours": cell.get("gpu_hours"),
            }
    return spent


def _cost(spent: dict | None) -> list[str]:
    if spent is None:
        return [""] * 3
    memory, updates, hours = spent["train_memory_gb"], spent["updates"], spent["gpu_hours"]
    return [
        markdown.MISSING if memory is None else f"{memory} GB",
        markdown.MISSING if updates is None else f"{updates / 1000:.1f}k",
        markdown.MISSING if hours is None else f"{hours / 1000:.1f}k",
    ]


def replication_table() -> str:
    """What others, or the same author elsewhere, measured for cells of the paper."""
    lines = []
    for row in paper.rows("replications"):
        printed = _printed_cell(row)
        gap = None if printed is None else row["perplexity"] - printed
        lines.append(
            [
                row["source"],
                row["corpus"],
                method_name(row["position_method"]),
                str(row["train_length"]),
                "non-overlapping" if row["stride"] == row["length"] else f"S={row['stride']}",
                row["subset"],
                markdown.perplexity(row["perplexity"]),
                markdown.NOTHING if printed is None else markdown.perplexity(printed),
                markdown.NOTHING if gap is None else markdown.difference(gap),
            ]
        )
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
