"""Write ``benchmarks/README.md`` from the JSON of all benchmarks: ``python -m benchmarks.table``."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from alibi_fairseq.files import atomic_write
from alibi_fairseq.results.schema import load_results_file

from .common import RESULTS

PAGE = Path(__file__).resolve().parent / "README.md"

HEAD = """# Benchmarks

<!-- written by `python -m benchmarks.table` from results/benchmarks/*.json: do not edit -->

`python -m benchmarks.NAME` writes `results/benchmarks/NAME-cpu.json` or `NAME-cuda.json` (`--out FILE` for another
machine's), and `python -m benchmarks.table` this page. `--quick` takes fewer lengths and rounds. Variants run in turns (A B A B …), and
ratios are medians over rounds of the ratio within a round, so that what else the machine does falls on
both sides; above 1 is faster. Memory is the peak of one model in a process of its own. Commands, versions,
speeds in tokens per second and everything else that was measured are in the JSON.

Not on this page: `backends` (every backend on calls of many shapes, which the choice of `auto` follows).
"""


class Table(NamedTuple):
    """A table of the page."""

    heading: str
    note: str
    rows: tuple[str, ...]  # keys that name a row; those with one value in all cells are left out
    across: tuple[str, ...]  # every combination of their values has columns of its own
    values: tuple[tuple[str, str, str], ...]  # heading, key and format of each column


TABLES = {
    "train": Table(
        "Training steps",
        "Forward, loss, backward, clipping and Adam, beside fairseq's own `transformer_lm` and the "
        "authors' mask on it (`materialised`).",
        ("variant", "attention_dropout"),
        ("length",),
        (("× stock", "ratio", "{:.2f}"), ("MB", "peak_memory_mb", "{:.0f}")),
    ),
    "attention": Table(
        "Attention alone, forward and backward",
        "Ratios to torch's causal kernel without any bias. Trained queries and keys are larger than random "
        "ones, so that less can be skipped; these are of `./scripts/demo.sh --methods alibi`.",
        ("variant",),
        ("weights", "length"),
        (("", "ratio", "{:.2f}"),),
    ),
    "methods": Table(
        "The paper's Table 1",
        "Ratios to sinusoidal, ours and the paper's (one V100): training, evaluation and peak memory.",
        ("position_method", "length"),
        (),
        (
            ("training", "ratio", "{:.2f}"),
            ("paper", "paper_ratio", "{:.2f}"),
            ("evaluation", "evaluation_ratio", "{:.2f}"),
            ("paper", "paper_evaluation_ratio", "{:.2f}"),
            ("memory", "memory_ratio", "{:.2f}"),
            ("paper", "paper_memory_ratio", "{:.2f}"),
        ),
    ),
    "output_layer": Table(
        "Training steps by criterion and option",
        "Ratios to fairseq's criterion.",
        ("model", "variant"),
        (),
        (("speed", "ratio", "{:.2f}"), ("memory", "memory_ratio", "{:.2f}")),
    ),
    "peers": Table(
        "Training steps beside other libraries' ALiBi",
        "How many times as long a step takes as ours.",
        ("variant", "version"),
        ("length",),
        (("", "ours_is_faster", "{:.2f}"),),
    ),
    "generate": Table(
        "Generation with cached keys",
        "Greedy decoding of 4 sequences, by length of the prompt: ratios to fairseq's own model.",
        ("variant",),
        ("prompt",),
        (("", "ratio", "{:.2f}"),),
    ),
    "evaluate": Table(
        "Evaluation",
        "`alibi-fairseq eval` beside `fairseq-eval-lm`, and the memory of one long window beyond the weights.",
        ("name", "model", "length", "stride"),
        (),
        (("× fairseq-eval-lm", "ratio", "{:.1f}"), ("MB", "peak_memory_mb", "{:.0f}")),
    ),
}


def main() -> None:
    parts = [HEAD]
    for name, table in TABLES.items():
        documents = {
            path: load_results_file(path)
            for path in sorted(RESULTS.glob("*.json"))
            if path.stem.split("-")[0] == name
        }
        if documents:
            parts.append(section(table, documents))
    with atomic_write(PAGE) as file:
        file.write("\n".join(parts))
    print(f"written to {PAGE}")


def machine(document: dict) -> str:
    """The GPU, or the processor and the number of threads."""
    source = document["provenance"]
    if source["hardware"]["gpu"]:
        return source["hardware"]["gpu"]
    parts = source.get("parts", [source])
    threads = " and ".join(dict.fromkeys(str(part["threads"]) for part in parts))
    return f"{source['hardware']['cpu']}, {threads} thread{'s' * (threads != '1')}"


def section(table: Table, documents: dict[Path, dict]) -> str:
    """Heading and note, and for each machine where it was measured and the table."""
    lines = [f"## {table.heading}", "", table.note, ""]
    for path, document in documents.items():
        source = document["provenance"]
        link = f"[{path.name}](../results/benchmarks/{path.name})"
        where = (machine(document), source["precision"], source["date"][:10], link)
        lines += ["; ".join(filter(None, where)) + ":", ""]
        lines += [*rows_of(table, document["cells"]), ""]
    return "\n".join(lines)


def rows_of(table: Table, cells: list[dict]) -> list[str]:
    """The lines of a table: a row per value of ``rows``, columns per value of ``across``."""
    named = [key for key in table.rows if len({cell.get(key) for cell in cells}) > 1]
    groups = list(dict.fromkeys(tuple(cell[key] for key in table.across) for cell in cells))
    values: dict[tuple, dict[tuple, str]] = {}
    for cell in cells:
        row = values.setdefault(tuple(shown(cell.get(key)) for key in named), {})
        group = tuple(cell[key] for key in table.across)
        for _, key, style in table.values:
            row[group, key] = shown(cell.get(key), style)
    columns = [
        (", ".join(filter(None, (heading, *map(str, group)))), (group, key))
        for group in sorted(groups)
        for heading, key, _ in table.values
        if any(cell.get(key) is not None for cell in cells)
    ]
    header = [*(key.replace("_", " ") for key in named), *(heading for heading, _ in columns)]
    body = [
        [*row, *(entries.get(column, "–") for _, column in columns)]
        for row, entries in values.items()
    ]
    rule = "|---" * len(named) + "|--:" * len(columns) + "|"
    return ["| " + " | ".join(header) + " |", rule, *("| " + " | ".join(r) + " |" for r in body)]


def shown(value: object, style: str = "{}") -> str:
    return "–" if value is None else style.format(value)


if __name__ == "__main__":
    main()
