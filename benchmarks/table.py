"""Write ``benchmarks/README.md`` and its figure from all results files.

python -m benchmarks.table
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from alibi_fairseq.files import atomic_write
from alibi_fairseq.reporting import markdown
from alibi_fairseq.reporting.markdown import NOTHING
from alibi_fairseq.reporting.page import fill_file
from alibi_fairseq.reporting.table import Column, Table
from alibi_fairseq.results.benchmark import Benchmark
from alibi_fairseq.results.file import Results, load
from alibi_fairseq.results.provenance import Provenance

from .common import RESULTS
from .paper_ratios import paper_ratios
from .summary import write_summary

PAGE = Path(__file__).resolve().parent / "README.md"
TEMPLATE = PAGE.with_name("page.md")

#: Commits of results files that are not in the history of the repository, and why.
LOST_COMMITS = {
    "ff647fed4346c86715e44808d864257dbb27fcdd": "not in the history",
}


#: Backends that were improved after their times at a commit, by commit. Their rows have a mark.
IMPROVED_SINCE = {
    "84a316a096b5897909273a817d0d6d35bf91110c": ("sdpa", "flex"),
}


class BenchmarkTable(NamedTuple):
    """Table of the page, which each results file of a benchmark has.

    Attributes:
        rows: keys that identify a row. Keys with the same value in all records are omitted.
        column_groups: keys whose combinations of values have separate columns.
        columns: heading, key, and format of each column in a group.
        shape: further keys of a row, if records differ in nothing else.
    """

    rows: tuple[str, ...]
    column_groups: tuple[str, ...]
    columns: tuple[tuple[str, str, str], ...]
    shape: tuple[str, ...] = ()


TABLES = {
    "train": BenchmarkTable(
        ("variant", "attention_dropout"),
        ("length",),
        (("× stock", "ratio", "{:.2f}"), ("MB", "peak_memory_mb", "{:.0f}")),
    ),
    "attention": BenchmarkTable(
        ("variant",),
        ("weights", "length"),
        (("", "ratio", "{:.2f}"),),
        shape=("heads", "head_size"),
    ),
    "methods": BenchmarkTable(
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
    "output_layer": BenchmarkTable(
        ("model", "variant"),
        (),
        (("speed", "ratio", "{:.2f}"), ("memory", "memory_ratio", "{:.2f}")),
    ),
    "peers": BenchmarkTable(
        ("variant", "version"),
        ("length",),
        (("", "ratio", "{:.2f}"),),
    ),
    "huggingface": BenchmarkTable(
        ("phase", "model", "variant"),
        ("length",),
        (("relative", "memory_ratio", "{:.2f}"), ("MB", "peak_memory_mb", "{:.0f}")),
    ),
    "evaluate": BenchmarkTable(
        ("name", "model", "length", "stride", "tokens"),
        (),
        (
            ("× fairseq-eval-lm", "ratio", "{:.1f}"),
            ("slowest round", "lowest_ratio", "{:.2f}"),
            ("MB", "peak_memory_mb", "{:.0f}"),
        ),
    ),
}


def main() -> None:
    """Write the page."""
    slots = {name: benchmark_tables(name, table) for name, table in TABLES.items()}
    slots["summary"] = write_summary(all_records(), PAGE.with_name("summary.svg"))
    page = fill_file(TEMPLATE, slots)
    with atomic_write(PAGE) as stream:
        # Results files keep the spelling of their variants.
        stream.write(page.replace("materialised", "materialized") + "\n")
    print(f"written to {PAGE}")


def load_benchmark(name: str) -> dict[Path, Results]:
    """Return the results files of a benchmark, one per machine, by path."""
    files = {}
    for path in sorted(RESULTS.glob("*.json")):
        if path.stem.split("-")[0] == name:
            files[path] = load(path)
    return files


def all_records() -> dict[str, list[dict]]:
    """Return the values of the records of each results file, by the name of the file."""
    records = {}
    for path in sorted(RESULTS.glob("*.json")):
        records[path.stem] = [record.values for record in load(path).benchmarks]
    return records


def all_values(record: Benchmark) -> dict:
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


def describe_rounds(records: list[dict]) -> str:
    """Return the number of rounds in which variants were timed, or nothing if it is unknown."""
    counts = sorted({record["rounds"] for record in records if record.get("rounds")})
    if not counts:
        return ""
    return " or ".join(map(str, counts)) + (" round" if counts == [1] else " rounds")


def benchmark_tables(name: str, table: BenchmarkTable) -> str:
    """Return provenance and table of each results file of a benchmark; empty without any."""
    parts = []
    for path, file in load_benchmark(name).items():
        provenance = file.provenance
        assert provenance is not None, "a benchmark records it"
        records = [all_values(record) for record in file.benchmarks]
        for record in records:
            if record.get("variant") in IMPROVED_SINCE.get(provenance.git_commit or "", ()):
                record["variant"] += " †"
        facts = [
            machine(provenance),
            provenance.precision,
            describe_rounds(records),
            provenance.date[:10],
            commits(provenance),
            f"[{path.name}](../results/benchmarks/{path.name})",
        ]
        parts.append("; ".join(filter(None, facts)) + ":\n")
        parts.append(markdown.to_markdown([measured_table(table, records)]))
    return "\n".join(parts)


class MeasuredRow(NamedTuple):
    """Row of a table: the values that identify it, and its records by group of columns."""

    values: tuple
    records: dict[tuple, dict]


def measured_table(table: BenchmarkTable, records: list[dict]) -> Table[MeasuredRow]:
    """Return the table of the records of one results file.

    Rows are combinations of values of ``table.rows``, and groups of columns are combinations of
    values of ``table.column_groups``.
    """
    row_keys = varying_keys(table.rows, records)
    cells = {(row_values(row_keys, record), column_group(table, record)) for record in records}
    if len(cells) < len(records):
        row_keys += varying_keys(table.shape, records)
    rows: dict[tuple, MeasuredRow] = {}
    for record in records:
        values = row_values(row_keys, record)
        row = rows.setdefault(values, MeasuredRow(values, {}))
        group = column_group(table, record)
        assert group not in row.records, "the keys of the table identify a record"
        row.records[group] = record
    columns = []
    for index, key in enumerate(row_keys):
        columns.append(Column[MeasuredRow](key.replace("_", " "), partial(row_value, index)))
    for group in sorted({column_group(table, record) for record in records}):
        for heading, key, style in table.columns:
            if any(record.get(key) is not None for record in records):
                title = ", ".join(filter(None, [heading, *map(str, group)]))
                columns.append(Column[MeasuredRow](title, partial(cell, group, key, style)))
    return Table(columns, list(rows.values()), left=len(row_keys))


def varying_keys(keys: Sequence[str], records: Sequence[dict]) -> list[str]:
    """Return the keys that have several values in the records."""
    return [key for key in keys if len({record.get(key) for record in records}) > 1]


def row_values(keys: Sequence[str], record: dict) -> tuple:
    """Return the values that select the row of a record."""
    return tuple(record.get(key) for key in keys)


def column_group(table: BenchmarkTable, record: dict) -> tuple:
    """Return the values that select the columns of a record."""
    return tuple(record[key] for key in table.column_groups)


def row_value(index: int, row: MeasuredRow) -> str:
    """Return a value that identifies a row."""
    return format_value(row.values[index])


def cell(group: tuple, key: str, style: str, row: MeasuredRow) -> str:
    """Return the value of a row in a column."""
    return format_value(row.records.get(group, {}).get(key), style)


def format_value(value: object, style: str = "{}") -> str:
    """Return the text of a table cell, a dash for a missing value."""
    return NOTHING if value is None else style.format(value)


if __name__ == "__main__":
    main()
