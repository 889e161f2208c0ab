"""The paper's tables in their own shapes, ours beside them. ``TABLES`` lists them."""

from __future__ import annotations

from alibi_fairseq.paper import published as paper
from alibi_fairseq.reporting import comparison, markdown, speed
from alibi_fairseq.reporting.collect import Results
from alibi_fairseq.reporting.training_curves import time_curve, times_as_fast, training_speeds
from alibi_fairseq.results.points import Point, method_name, model_label

SWEEPS = ("table02", "table03", "table04")
TEST_SETS = ("table06", "table07", "table09", "table10")
LARGE = ("table11", "table12")
PERPLEXITY_TABLES = tuple(f"table{number:02d}" for number in range(2, 16))
TABLES = ("table01", *PERPLEXITY_TABLES)


def table(item: str, results: Results) -> str:
    """One of Tables 1–15 as Markdown, e.g. ``table05``; without results, ours is missing."""
    if item == "table01":
        return speed.speed_table(results.of_kind("benchmark"))
    corpus = paper.about(item)["corpus"]
    ours = results.comparable.get(corpus, [])
    if item in SWEEPS:
        body = _sweep(item, ours)
    elif item in TEST_SETS:
        body = _test_sets(item, results)
    elif item in LARGE:
        body = _large(item, ours, results.comparable_training(corpus))
        body += _time_saved(results) if item == "table11" else ""
    else:
        body = _grid(item, ours)
    return body + "\n" + comparison.legend(corpus) + "\n" + _other_text(item, results)


def _other_text(item: str, results: Results) -> str:
    """Why there are no verdicts, and ours in bits per byte, which other vocabularies share."""
    corpus = paper.about(item)["corpus"]
    if corpus not in results.other_text:
        return ""
    lines = [
        [row.label + name[4:], point.subset, str(point.length), f"{point.bits_per_byte:.4f}"]
        for row in comparison.rows_beside(item, results.comparable.get(corpus, []), _subset_length)
        for name, points in row.lines
        for point in points.values()
        if point.bits_per_byte is not None
    ]
    text = (
        f"\nNo verdicts: {results.other_text[corpus]}, so perplexities per token are in other units "
        "than the paper's.\n"
    )
    if not lines:
        return text
    headers = ["ours", "split", "evaluated at", "bits per byte"]
    return text + "\n" + markdown.table(headers, lines, left=2)


def _subset_length(point: Point) -> tuple[str, int]:
    return point.subset, point.length


def _grid(item: str, ours: list[Point]) -> str:
    """Rows are models, columns evaluation lengths; three lines per model."""
    lengths = sorted({point.length for point in paper.points(item)})
    lines = []
    for row in comparison.rows_beside(item, ours):
        lines += _three_lines(item, row, lengths)
    return markdown.table(["trained ↓ evaluated at →", "", *map(str, lengths)], lines, left=2)


def _three_lines(item: str, row: comparison.Row, columns: list) -> list[list[str]]:
    corpus = paper.about(item)["corpus"]
    lines = [[row.label, "paper", *(comparison.printed_cell(row.paper.get(c)) for c in columns)]]
    for name, ours in row.lines:
        values = (comparison.our_cell(ours.get(c), row.paper.get(c)) for c in columns)
        lines.append(["", name, *values])
        if ours:
            gaps = (comparison.difference(corpus, ours.get(c), row.paper.get(c)) for c in columns)
            lines.append(["", "difference", *gaps])
    return lines


def _sweep(item: str, ours: list[Point]) -> str:
    """Rows are evaluation lengths, columns methods; then the speeds, which the paper prints too."""
    corpus = paper.about(item)["corpus"]
    headers, speed_headers = ["length"], ["length"]
    lines = {length: [str(length)] for length in sorted({p.length for p in paper.points(item)})}
    speeds = {length: [str(length)] for length in lines}
    for model in comparison.rows_beside(item, ours):
        method = method_name(next(iter(model.paper.values())).position_method)
        headers.append(f"{method}: paper")
        speed_headers.append(f"{method}: paper")
        for length, line in lines.items():
            printed = model.paper.get(length)
            line.append(comparison.printed_cell(printed))
            speeds[length].append(_speed(printed, "tokens_per_second_batch_1", markdown.NOTHING))
        for name, points in model.lines:
            headers += [name, "difference"]
            speed_headers += [f"{name}, batch 1", f"{name}, full batches"]
            for length, line in lines.items():
                own, printed = points.get(length), model.paper.get(length)
                line += [markdown.point(own), comparison.difference(corpus, own, printed)]
                speeds[length] += [_speed(own, key, markdown.MISSING) for key in _SPEEDS]
    return (
        "Perplexity:\n\n"
        + markdown.table(headers, list(lines.values()))
        + "\nEvaluation speed in tokens per second (the paper: one V100, batch size 1; ours: the "
        "machine named in the sources):\n\n" + markdown.table(speed_headers, list(speeds.values()))
    )


_SPEEDS = ("tokens_per_second_batch_1", "tokens_per_second")


def _speed(point: Point | None, key: str, absent: str) -> str:
    value = None if point is None else getattr(point, key)
    if value is None:
        return point.status if point is not None and point.status else absent
    return f"{value:.0f}"


def _test_sets(item: str, results: Results) -> str:
    """Rows are models, columns the validation and the test set; other people's models as printed.

    With speeds where the paper gives them (Table 6): ours of training are of the runs' own records.
    """
    corpus = paper.about(item)["corpus"]
    ours = results.comparable.get(corpus, [])
    models = {
        (point.position_method, point.train_length): model
        for model in comparison.rows_beside(item, ours, column=lambda p: p.subset)
        for point in model.paper.values()
    }
    with_speeds = "train_words_per_second" in paper.rows(item)[0]
    trained = training_speeds(results, corpus) if with_speeds else {}
    headers = ["model, evaluated at 3072"]
    if with_speeds:
        headers += ["train tokens/s: paper", "ours", "evaluation tokens/s: paper, batch 1"]
        headers += ["ours, batch 1", "ours, full batches"]
    for subset in ("valid", "test"):
        headers += [f"{subset}: paper", "ours", "difference"]
    lines = []
    for row in paper.rows(item):
        case = (row["position_method"], row["train_length"])
        model = models.get(case)
        for name, points in model.lines if model else [("", {})]:
            line = [f"{row['model']} (as printed)" if model is None else model.label + name[4:]]
            if with_speeds:
                own = trained.get(case)
                line.append(markdown.thousands(row["train_words_per_second"]))
                line.append(markdown.MISSING if own is None else markdown.thousands(own))
                line.append(markdown.thousands(row["eval_words_per_second"]))
                line += [_speed(points.get("valid"), key, markdown.MISSING) for key in _SPEEDS]
            for subset in ("valid", "test"):
                printed = row[f"{subset}_perplexity"]
                line.append(markdown.NOTHING if printed is None else markdown.perplexity(printed))
                if model is None:
                    line += [markdown.NOTHING] * 2
                else:
                    measured, other = points.get(subset), model.paper.get(subset)
                    line += [markdown.point(measured)]
                    line += [comparison.difference(corpus, measured, other)]
            lines.append(line)
    return markdown.table(headers, lines)


def _large(item: str, ours: list[Point], training: list[dict]) -> str:
    """Rows are 1.3B models with memory, updates and GPU hours; columns evaluation lengths."""
    cost = {(row["position_method"], row["train_length"]): row for row in paper.rows(item)}
    lengths = sorted({point.length for point in paper.points(item)})
    lines = []
    for row in comparison.rows_beside(item, ours, join_diagonal=False):
        first = next(iter(row.paper.values()))
        printed = cost[first.position_method, first.train_length]
        own = [point for _, points in row.lines for point in points.values()]
        measured = {
            "train_memory_gb": None,
            "updates": own[0].updates if own else None,
            "gpu_hours": None,
        }
        for cell in training:
            same = (cell["position_method"], cell["train_length"])
            if same == (first.position_method, first.train_length):
                measured = _spent(cell, printed["updates"]) or measured
        for line in _three_lines(item, row, lengths):
            spent = {"paper": printed, "difference": None}.get(line[1], measured)
            lines.append([*line[:2], *_cost(spent), *line[2:]])
    headers = ["trained ↓ evaluated at →", "", "memory", "updates", "GPU hours"]
    return markdown.table([*headers, *map(str, lengths)], lines, left=2)


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


def _spent(cell: dict, updates: int) -> dict | None:
    """What a training run had spent when it was as old as the paper's; None at another age."""
    if not comparison.same_updates(cell["updates"], updates):
        return None
    memory = cell.get("peak_memory_mb")
    return {
        "train_memory_gb": None if memory is None else round(memory / 1000, 1),
        "updates": cell["updates"],
        "gpu_hours": cell.get("gpu_hours"),
    }


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
