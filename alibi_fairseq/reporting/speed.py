"""Speed and memory: benchmark results as tables and bars, and the counterpart of the paper's Table 1."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from alibi_fairseq.paper import published as paper
from alibi_fairseq.reporting import markdown, style
from alibi_fairseq.results.points import method_name, method_order

# Benchmark cells of these phases are the two columns of Table 1.
TRAINING, EVALUATION = "train", "evaluate"


@dataclass
class Speeds:
    """Training and evaluation of every method on one machine, in one precision, with one model.

    ``cases`` maps (position method, length, backend) to the benchmark cell of each phase;
    ``ratios`` maps (case, phase, baseline) to how many times as fast as the baseline it was.
    """

    machine: str
    cases: dict[tuple[str, int, str], dict[str, dict]] = field(default_factory=dict)
    ratios: dict[tuple, float] = field(default_factory=dict)

    def sinusoidal(self, case: tuple[str, int, str], phase: str) -> dict | None:
        """The same phase of our sinusoidal model at the same length, on the same backend if any."""
        _, length, backend = case
        found = {
            other: cells[phase]
            for other, cells in self.cases.items()
            if other[:2] == ("sinusoidal", length) and phase in cells
        }
        return found.get(("sinusoidal", length, backend)) or next(iter(found.values()), None)


def speeds(documents: Iterable[dict]) -> list[Speeds]:
    """The cells of benchmark documents that Table 1 has a place for, by machine."""
    groups: dict[str, Speeds] = {}
    for document in documents:
        for cell in document["cells"]:
            wanted = {"position_method", "length", "tokens_per_second"} <= cell.keys()
            phase = cell.get("phase")
            if phase not in (TRAINING, EVALUATION) or not wanted:
                continue
            machine = machine_of(document["provenance"], cell)
            group = groups.setdefault(machine, Speeds(machine))
            case = (cell["position_method"], cell["length"], cell.get("backend", ""))
            phases = group.cases.setdefault(case, {})
            phases.setdefault(phase, cell)
            if evaluated := cell.get("evaluation_tokens_per_second"):  # a whole row of Table 1
                phases.setdefault(EVALUATION, {**cell, "tokens_per_second": evaluated})
            if cell["ratio"] is not None and cell["baseline"] not in (None, "sinusoidal"):
                group.ratios[case, phase, cell["baseline"]] = cell["ratio"]
    return [groups[machine] for machine in sorted(groups)]


def machine_of(provenance: dict, cell: dict | None = None) -> str:
    """Where and how it was measured, in words: processor, threads or GPU, precision, model."""
    cell = cell or {}
    hardware = provenance["hardware"]
    device = cell.get("device")
    on_cpu = hardware["gpu"] is None or device == "cpu"
    where = hardware["cpu"] if on_cpu else hardware["gpu"]
    parts = [where or "an unknown machine"]
    if on_cpu and provenance["threads"]:
        parts.append(
            f"{provenance['threads']} threads" if provenance["threads"] > 1 else "1 thread"
        )
    parts += [cell.get("precision") or provenance["precision"], cell.get("model")]
    return ", ".join(part for part in parts if part)


_HEADERS = (
    "method",
    "backend",
    "L",
    "train tokens/s",
    "× sinusoidal",
    "paper",
    "evaluation tokens/s",
    "× sinusoidal",
    "paper",
    "train memory",
    "− sinusoidal",
    "paper",
)


def speed_table(documents: Iterable[dict]) -> str:
    """Table 1 and, for each machine measured on, its counterpart with the paper's ratios beside."""
    parts = ["The paper, one V100:\n\n" + _printed_table()]
    for group in speeds(documents) or [Speeds("not measured yet")]:
        parts.append(f"Ours, {markdown.literal(group.machine)}:\n\n{_measured_table(group)}")
    return "\n".join(parts)


def _printed_table() -> str:
    lines = []
    for row in _printed():
        sinusoidal = _printed_sinusoidal(row["train_length"])
        lines.append(
            [
                method_name(row["position_method"]),
                str(row["train_length"]),
                markdown.thousands(row["train_words_per_second"]),
                _ratio(row, sinusoidal, "train_words_per_second"),
                markdown.thousands(row["eval_words_per_second"]),
                _ratio(row, sinusoidal, "eval_words_per_second"),
                f"{row['train_memory_gb']} GB",
                _gap(row, sinusoidal),
            ]
        )
    headers = ["method", "L", "train words/s", "× sinusoidal", "evaluation words/s", "× sinusoidal"]
    return markdown.table([*headers, "train memory", "− sinusoidal"], lines)


def _measured_table(group: Speeds) -> str:
    """The paper's cases first, missing or not, then whatever else was measured."""
    printed = {(row["position_method"], row["train_length"]): row for row in _printed()}
    measured = {case[:2] for case in group.cases}
    cases = [*group.cases, *((*case, "") for case in printed if case not in measured)]
    order = [row["position_method"] for row in _printed()]
    cases.sort(
        key=lambda case: (
            order.index(case[0]) if case[0] in order else len(order),
            method_order(case[0]),
            case[2],
            case[1],
        )
    )
    compared = sorted({(phase, baseline) for _, phase, baseline in group.ratios}, reverse=True)
    headers = [*_HEADERS, *(f"{phase}: × {baseline}" for phase, baseline in compared)]
    lines = []
    for case in cases:
        method, length, backend = case
        row = printed.get((method, length))
        line = [method_name(method), backend, str(length)]
        for phase, key in ((TRAINING, "train"), (EVALUATION, "eval")):
            own = group.cases.get(case, {}).get(phase)
            reference = group.sinusoidal(case, phase)
            line += [
                markdown.MISSING if own is None else markdown.thousands(own["tokens_per_second"]),
                _ratio(own, reference, "tokens_per_second"),
                _ratio(row, _printed_sinusoidal(length), f"{key}_words_per_second"),
            ]
        own, reference = group.cases.get(case, {}).get(TRAINING), group.sinusoidal(case, TRAINING)
        line += [
            _memory(own),
            _memory_gap(own, reference),
            _gap(row, _printed_sinusoidal(length)),
        ]
        for phase, baseline in compared:
            ratio = group.ratios.get((case, phase, baseline))
            line.append(markdown.NOTHING if ratio is None else f"{ratio:.2f}")
        lines.append(line)
    return markdown.table(headers, lines, left=2)


def _printed() -> tuple[dict, ...]:
    return paper.rows("table01")


def _printed_sinusoidal(length: int) -> dict | None:
    return next(
        (
            row
            for row in _printed()
            if (row["position_method"], row["train_length"]) == ("sinusoidal", length)
        ),
        None,
    )


def _ratio(row: dict | None, reference: dict | None, key: str) -> str:
    if row is None or reference is None:
        return markdown.NOTHING
    return f"{row[key] / reference[key]:.2f}"


def _gap(row: dict | None, reference: dict | None) -> str:
    if row is None or reference is None:
        return markdown.NOTHING
    return f"{row['train_memory_gb'] - reference['train_memory_gb']:+.1f} GB"


def _memory(cell: dict | None) -> str:
    if cell is None or cell.get("peak_memory_mb") is None:
        return markdown.MISSING
    return f"{cell['peak_memory_mb']:.0f} MB"


def _memory_gap(cell: dict | None, reference: dict | None) -> str:
    known = [c for c in (cell, reference) if c is not None and c.get("peak_memory_mb") is not None]
    if len(known) < 2:
        return markdown.NOTHING
    return f"{known[0]['peak_memory_mb'] - known[1]['peak_memory_mb']:+.0f} MB"


def benchmark_tables(document: dict) -> str:
    """A benchmark document as Markdown: one table for each ``name``, one column for each key."""
    by_name: dict[str, list[dict]] = defaultdict(list)
    for cell in document["cells"]:
        by_name[cell["name"]].append(cell)
    parts = []
    for name, cells in by_name.items():
        keys = list(dict.fromkeys(key for cell in cells for key in cell if key != "name"))
        texts = [key for key in keys if any(isinstance(cell.get(key), str) for cell in cells)]
        keys = [*texts, *(key for key in keys if key not in texts)]
        rows = [[_value(cell.get(key)) for key in keys] for cell in cells]
        parts.append(f"{markdown.literal(name)}:\n\n{markdown.table(keys, rows, left=len(texts))}")
    return "\n".join(parts)


def _value(value: object) -> str:
    if value is None:
        return markdown.NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def speed_bars(group: Speeds) -> list[tuple[str, dict[tuple[str, int], float]]]:
    """Panels of training speed, evaluation speed and memory, a bar per method and backend."""
    columns = (
        (TRAINING, "tokens_per_second", "training (thousand tokens per second)"),
        (EVALUATION, "tokens_per_second", "evaluation (thousand tokens per second)"),
        (TRAINING, "peak_memory_mb", "training memory (GB)"),
    )
    backends = defaultdict(set)
    for method, _, backend in group.cases:
        backends[method].add(backend)
    bars = []
    for phase, key, axis in columns:
        values = {}
        for (method, length, backend), cells in group.cases.items():
            value = cells.get(phase, {}).get(key)
            if value is not None:
                name = method if len(backends[method]) == 1 else f"{method} {backend}"
                values[name, length] = value / 1000
        if values:
            bars.append((f"{group.machine}:\n{axis}", values))
    return bars


def draw_bars(
    panels: list[tuple[str, dict[tuple[str, int], float]]], title: str, *paths: os.PathLike
) -> None:
    """Panels of bars grouped by length, one bar for each method, told apart by hatches as well."""
    names = sorted({name for _, bars in panels for name, _ in bars}, key=_bar_order)
    width = 0.8 / len(names)
    with style.figure(title, len(panels)) as (figure, axes):
        for panel, (label, bars) in zip(axes, panels, strict=True):
            lengths = sorted({length for _, length in bars})
            for place, name in enumerate(names):
                method, _, backend = name.partition(" ")
                own = [(i, bars[name, n]) for i, n in enumerate(lengths) if (name, n) in bars]
                panel.bar(
                    [i + (place - (len(names) - 1) / 2) * width for i, _ in own],
                    [value for _, value in own],
                    width,
                    label=f"{method_name(method)} {backend}".strip(),
                    color=style.method_look(method).color,
                    edgecolor="white",
                    hatch=style.hatch(place),
                    linewidth=0.5,
                )
            panel.set_xticks(range(len(lengths)), [f"L={length}" for length in lengths])
            panel.set_title(label)
            panel.grid(axis="x", visible=False)
        style.legend(figure, axes)
        style.save(figure, *paths)


def _bar_order(name: str) -> tuple:
    method, _, backend = name.partition(" ")
    return (*method_order(method), backend)
