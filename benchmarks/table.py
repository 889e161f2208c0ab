"""Write ``benchmarks/README.md`` from all results files: ``python -m benchmarks.table``."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import NamedTuple

from alibi_fairseq.files import atomic_write
from alibi_fairseq.results.files import load_results_file
from alibi_fairseq.results.record import Benchmark
from alibi_fairseq.results.results_file import BenchmarkFile, Provenance

from .common import RESULTS
from .paper_ratios import paper_ratios

PAGE = Path(__file__).resolve().parent / "README.md"

HEAD = """# Benchmarks

<!-- written by `python -m benchmarks.table` from results/benchmarks/*.json: do not edit -->

This page compares the speed and memory of this package with fairseq, transformers, and
x-transformers. Each table names its machine and commit, as far as they were recorded. This command
measures training steps on your machine:

```bash
python -m benchmarks.train --quick --out runs/train.json
```

- **Files.** Without `--out`, `python -m benchmarks.NAME` writes `runs/benchmarks/NAME-cpu.json` or
  `NAME-cuda.json`. `python -m benchmarks.table` writes this page from `results/benchmarks/`, whose
  files also have commands, versions, speeds in tokens per second, and all other measurements.
- **`--quick`** uses fewer lengths and rounds.
- **Speed.** Variants run in alternation (A B A B …). A ratio is computed within each round, and the
  table has the median over the rounds. Other load on the machine therefore affects both sides.
  Above 1 is faster.
- **Memory** is the peak of one model in a separate process. A ratio above 1 is more memory.
- **`backends`** is not on this page. This benchmark times every backend on calls of many shapes.
  On a CPU, `auto` selects by its results.
"""


#: Commits of results files that are not in the history of the repository, and why.
LOST_COMMITS = {
    "ff647fed4346c86715e44808d864257dbb27fcdd": "not in the repository; probably rebased away",
}

RANDOM_WEIGHTS = """\
All weights are random. ALiBi's backend on the CPU skips keys whose weight is negligible, and a
trained model has fewer of them: at {length:,} tokens, it is {random:.2f} times as fast as the
causal kernel with random queries and keys, and {trained:.2f} times with trained ones ([attention
alone](#attention-alone-forward-and-backward)). The speeds of ALiBi in this section are therefore
upper bounds for a trained model.
"""


class Table(NamedTuple):
    """Table of the page.

    Attributes:
        heading: heading of its section.
        note: text above the table.
        rows: keys that identify a row. Keys with the same value in all records are omitted.
        column_groups: keys whose combinations of values have separate columns.
        columns: heading, key, and format of each column in a group.
        has_random_weights: True if ALiBi is faster than in a trained model, because the weights are
            random.
    """

    heading: str
    note: str
    rows: tuple[str, ...]
    column_groups: tuple[str, ...]
    columns: tuple[tuple[str, str, str], ...]
    has_random_weights: bool = False


TABLES = {
    "train": Table(
        "Training steps",
        "A step is forward, loss, backward, clipping, and Adam. It is compared with fairseq's "
        "`transformer_lm` (`stock`), and with the authors' mask in it (`materialized`).",
        ("variant", "attention_dropout"),
        ("length",),
        (("× stock", "ratio", "{:.2f}"), ("MB", "peak_memory_mb", "{:.0f}")),
        has_random_weights=True,
    ),
    "attention": Table(
        "Attention alone, forward and backward",
        "Ratios are to PyTorch's causal kernel without any bias. Trained queries and keys are "
        "larger than random ones, so less can be skipped. They come from "
        "`./scripts/demo.sh --methods alibi`.",
        ("variant",),
        ("weights", "length"),
        (("", "ratio", "{:.2f}"),),
    ),
    "methods": Table(
        "The paper's Table 1",
        "Training speed, evaluation speed, and peak memory are ratios to sinusoidal. Next to "
        "each is the paper's ratio (one V100). With few rounds, differences of a few percent are "
        "noise.",
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
        "Speed and memory are ratios to fairseq's criterion.",
        ("model", "variant"),
        (),
        (("speed", "ratio", "{:.2f}"), ("memory", "memory_ratio", "{:.2f}")),
    ),
    "peers": Table(
        "Training steps compared with other libraries' ALiBi",
        "The table has the duration of a step relative to ours. Above 1 is slower than ours.",
        ("variant", "version"),
        ("length",),
        (("", "ours_is_faster", "{:.2f}"),),
        has_random_weights=True,
    ),
    "huggingface": Table(
        "ALiBi in transformers' models",
        "This table compares transformers' attention with "
        "[ours](../docs/hugging-face-alibi.md). For each length, it "
        "has the memory of a pass beyond the weights, as a ratio to transformers' and in MB. "
        "`train` is a forward and a backward pass.",
        ("phase", "model", "variant"),
        ("length",),
        (("memory", "memory_ratio", "{:.2f}"), ("MB", "peak_memory_mb", "{:.0f}")),
    ),
    "generate": Table(
        "Generation with cached keys",
        "Speeds of greedy decoding of 4 sequences, by prompt length, are ratios to fairseq's "
        "model. They mostly measure the prompt: our models read it in one call, and fairseq's "
        "model needs one call per token. They do not apply to `generate` and `interactive`, "
        "because fairseq's own generator feeds every model one token at a time.",
        ("variant",),
        ("prompt",),
        (("", "ratio", "{:.2f}"),),
    ),
    "evaluate": Table(
        "Evaluation",
        "This table compares the speed of `alibi-fairseq eval` with `fairseq-eval-lm`. The last "
        "row is the memory of one long window beyond the weights. `tokens` is the number of scored "
        "tokens that a ratio rests on. With a stride of 1, it rests on very few. The lowest ratio "
        "is that of the worst round.",
        ("name", "model", "length", "stride", "tokens"),
        (),
        (
            ("× fairseq-eval-lm", "ratio", "{:.1f}"),
            ("lowest", "lowest_ratio", "{:.2f}"),
            ("MB", "peak_memory_mb", "{:.0f}"),
        ),
    ),
}


def main() -> None:
    parts = [HEAD]
    for name, table in TABLES.items():
        files = load_benchmark(name)
        if files:
            parts.append(section(table, files))
    with atomic_write(PAGE) as stream:
        # Results files keep the spelling of their variants.
        stream.write("\n".join(parts).replace("materialised", "materialized"))
    print(f"written to {PAGE}")


def load_benchmark(name: str) -> dict[Path, BenchmarkFile]:
    """Return the results files of a benchmark, one per machine, by path."""
    files = {}
    for path in sorted(RESULTS.glob("*.json")):
        if path.stem.split("-")[0] == name:
            results = load_results_file(path)
            assert isinstance(results, BenchmarkFile), f"{path} is not a benchmark"
            files[path] = results
    return files


def values_of(record: Benchmark) -> dict:
    """Return all values of a record, and the paper's ratios; files may hold rounded ones."""
    model = (str(record.case.get("position_method")), record.case.get("train_length"))
    return {**record.values, **paper_ratios().get(model, {})}


def machine(provenance: Provenance) -> str:
    """Return the GPU, or the processor and the number of threads.

    The name of a processor such as "AMD EPYC" stands for many models, so its family and model
    follow where they were recorded.
    """
    hardware = provenance.hardware
    if hardware.gpu:
        return hardware.gpu
    parts = provenance.parts or [provenance]
    counts = dict.fromkeys(str(part.threads) for part in parts)
    threads = " and ".join(counts)
    unit = "thread" if threads == "1" else "threads"
    model = "model not recorded"
    if hardware.cpu_family:
        model = f"family {hardware.cpu_family}, model {hardware.cpu_model}"
    return f"{hardware.cpu} ({model}), {threads} {unit}"


def commits(provenance: Provenance) -> str:
    """Return the commits of the measurements, with marks for changed trees and lost commits."""
    names = []
    for part in provenance.parts or [provenance]:
        commit = (part.git_commit or "unknown")[:7]
        if not part.git_clean:
            commit += " with changes"
        if part.git_commit in LOST_COMMITS:
            commit += f" ({LOST_COMMITS[part.git_commit]})"
        names.append(commit)
    return "commit " + ", ".join(dict.fromkeys(names))


def rounds_of(records: list[dict]) -> str:
    """Return the number of rounds in which variants were timed, or nothing if it is unknown."""
    counts = sorted({record["rounds"] for record in records if record.get("rounds")})
    if not counts:
        return ""
    return " or ".join(map(str, counts)) + (" round" if counts == [1] else " rounds")


def section(table: Table, files: dict[Path, BenchmarkFile]) -> str:
    """Return heading and note, then the provenance and the table of each results file."""
    lines = [f"## {table.heading}", "", table.note, ""]
    if table.has_random_weights:
        lines += random_weights_note()
    for path, results in files.items():
        provenance = results.provenance
        records = [values_of(record) for record in results.records]
        link = f"[{path.name}](../results/benchmarks/{path.name})"
        facts = [
            machine(provenance),
            provenance.precision,
            rounds_of(records),
            provenance.date[:10],
            commits(provenance),
            link,
        ]
        lines += ["; ".join(filter(None, facts)) + ":", ""]
        lines += table_lines(table, records)
        lines.append("")
    return "\n".join(lines)


def random_weights_note() -> list[str]:
    """Return how much of ALiBi's speed is lost with trained weights, in attention on a CPU.

    Returns:
        Lines of the page; none without a benchmark of attention with trained weights.
    """
    ratios = {}
    for results in load_benchmark("attention").values():
        if results.provenance.hardware.gpu:
            continue
        for record in results.records:
            values = record.values
            if values["variant"] == "skipping":
                ratios[values["weights"], values["length"]] = values["ratio"]
    lengths = [length for weights, length in ratios if weights == "trained"]
    if not lengths:
        return []
    length = max(lengths)
    text = RANDOM_WEIGHTS.format(
        length=length, random=ratios["random", length], trained=ratios["trained", length]
    )
    return [textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False), ""]


def table_lines(table: Table, records: list[dict]) -> list[str]:
    """Return the lines of a Markdown table.

    Rows are combinations of values of ``table.rows``, and groups of columns are combinations of
    values of ``table.column_groups``.
    """
    row_keys = [key for key in table.rows if len({record.get(key) for record in records}) > 1]
    groups = sorted({group_of(table, record) for record in records})
    columns = [column for column in table.columns if has_values(records, column)]
    rows: dict[tuple, dict[tuple, str]] = {}
    for record in records:
        row = tuple(format_value(record.get(key)) for key in row_keys)
        entries = rows.setdefault(row, {})
        group = group_of(table, record)
        for _, key, style in columns:
            entries[group, key] = format_value(record.get(key), style)
    header = [key.replace("_", " ") for key in row_keys]
    for group in groups:
        for heading, _, _ in columns:
            header.append(", ".join(filter(None, [heading, *map(str, group)])))
    lines = [
        markdown_row(header),
        "|---" * len(row_keys) + "|--:" * (len(header) - len(row_keys)) + "|",
    ]
    for row, entries in rows.items():
        values = [entries.get((group, key), "–") for group in groups for _, key, _ in columns]
        lines.append(markdown_row([*row, *values]))
    return lines


def group_of(table: Table, record: dict) -> tuple:
    """Return the values that select the columns of a record."""
    return tuple(record[key] for key in table.column_groups)


def has_values(records: list[dict], column: tuple[str, str, str]) -> bool:
    """Return True if any record has a value for the column."""
    _, key, _ = column
    return any(record.get(key) is not None for record in records)


def markdown_row(cells: list[str]) -> str:
    """Return a line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def format_value(value: object, style: str = "{}") -> str:
    """Return the text of a table cell, a dash for a missing value."""
    return "–" if value is None else style.format(value)


if __name__ == "__main__":
    main()
