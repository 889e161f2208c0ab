"""Speed and memory: benchmark results as tables and bars, and the counterpart of the paper's Table 1."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from alibi_fairseq.paper import published as paper
from alibi_fairseq.reporting import markdown, plots
from alibi_fairseq.results.points import method_name, method_order

Case = tuple[str, int, str]  # position method, length, backend


@dataclass
class Speeds:
    """Training and evaluation of every method on one machine, in one precision, with one model.

    ``cases`` maps each case to its ``train`` and ``evaluate`` (tokens per second) and ``memory``
    (MB, of training), as far as measured; ``ratios`` maps (case, phase, baseline) to how many times
    as fast as the baseline it was.
    """

    machine: str
    cases: dict[Case, dict[str, float]] = field(default_factory=dict)
    ratios: dict[tuple, float] = field(default_factory=dict)

    def sinusoidal(self, case: Case, key: str) -> float | None:
        """The same of our sinusoidal model at the same length, on the same backend if any."""
        _, length, backend = case
        found = {
            other[2]: measured[key]
            for other, measured in self.cases.items()
            if other[:2] == ("sinusoidal", length) and key in measured
        }
        return found.get(backend, next(iter(found.values()), None))


def speeds(documents: Iterable[dict]) -> list[Speeds]:
    """The cells of benchmark documents that Table 1 has a place for, by machine."""
    groups: dict[str, Speeds] = {}
    for document in documents:
        for cell in document["cells"]:
            wanted = {"phase", "position_method", "length", "tokens_per_second"} <= cell.keys()
            if not wanted:
                continue
            machine = machine_of(document["provenance"], cell)
            group = groups.setdefault(machine, Speeds(machine))
            phase = cell["phase"]
            case = (cell["position_method"], cell["length"], cell.get("backend", ""))
            measured = group.cases.setdefault(case, {})
            if phase == "train" and "train" not in measured and cell.get("peak_memory_mb"):
                measured["memory"] = cell["peak_memory_mb"]
            measured.setdefault(phase, cell["tokens_per_second"])
            if evaluated := cell.get("evaluation_tokens_per_second"):  # a whole row of Table 1
                measured.setdefault("evaluate", evaluated)
            if cell["ratio"] is not None and cell["baseline"] not in (None, "sinusoidal"):
                group.ratios[case, phase, cell["baseline"]] = cell["ratio"]
    return [groups[machine] for machine in sorted(groups)]


def printed() -> dict[tuple[str, int], dict[str, float]]:
    """Table 1 by position method and length: as ``Speeds.cases``, in words and GB."""
    return {
        (row["position_method"], row["train_length"]): {
            "train": row["train_words_per_second"],
            "evaluate": row["eval_words_per_second"],
            "memory": row["train_memory_gb"],
        }
        for row in paper.rows("table01")
    }


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


def speed_table(documents: Iterable[dict]) -> str:
    """Table 1 and, for each machine measured on, its counterpart with the paper's ratios beside."""
    parts = ["The paper, one V100:\n\n" + _printed_table()]
    for group in speeds(documents) or [Speeds("not measured yet")]:
        parts.append(f"Ours, {markdown.literal(group.machine)}:\n\n{_measured_table(group)}")
    return "\n".join(parts)


_KEYS = ("train", "evaluate", "memory")


def _printed_table() -> str:
    lines = []
    for (method, length), found in printed().items():
        line = [method_name(method), str(length)]
        for key in _KEYS:
            line += [
                _value_of(key, found[key], "GB"),
                _printed_beside_sinusoidal(method, length, key),
            ]
        lines.append(line)
    headers = ["method", "L", "train words/s", "× sinusoidal", "evaluation words/s", "× sinusoidal"]
    return markdown.table([*headers, "train memory", "− sinusoidal"], lines)


def _measured_table(group: Speeds) -> str:
    """The paper's cases first, missing or not, then whatever else was measured."""
    measured = {case[:2] for case in group.cases}
    cases = [*group.cases, *((*case, "") for case in printed() if case not in measured)]
    methods = [method for method, _ in printed()]
    order = {method: methods.index(method) for method in methods}
    cases.sort(key=lambda c: (order.get(c[0], len(methods)), method_order(c[0]), c[2], c[1]))
    compared = sorted({(phase, baseline) for _, phase, baseline in group.ratios}, reverse=True)
    headers = ["method", "backend", "L", "train tokens/s", "× sinusoidal", "paper"]
    headers += ["evaluation tokens/s", "× sinusoidal", "paper"]
    headers += ["train memory", "− sinusoidal", "paper"]
    headers += [f"{phase}: × {baseline}" for phase, baseline in compared]
    lines = []
    for case in cases:
        method, length, backend = case
        line = [method_name(method), backend, str(length)]
        for key in _KEYS:
            own = group.cases.get(case, {}).get(key)
            line.append(markdown.MISSING if own is None else _value_of(key, own, "MB"))
            line.append(_beside(key, own, group.sinusoidal(case, key), "MB"))
            line.append(_printed_beside_sinusoidal(method, length, key))
        for phase, baseline in compared:
            ratio = group.ratios.get((case, phase, baseline))
            line.append(markdown.NOTHING if ratio is None else f"{ratio:.2f}")
        lines.append(line)
    return markdown.table(headers, lines, left=2)


def _value_of(key: str, value: float, unit: str) -> str:
    if key == "memory":
        return f"{value:.0f} MB" if unit == "MB" else f"{value} GB"
    return markdown.thousands(value)


def _beside(key: str, value: float | None, reference: float | None, unit: str) -> str:
    """The ratio of speeds, the difference of memory."""
    if value is None or reference is None:
        return markdown.NOTHING
    if key == "memory":
        return f"{value - reference:+.{0 if unit == 'MB' else 1}f} {unit}"
    return f"{value / reference:.2f}"


def _printed_beside_sinusoidal(method: str, length: int, key: str) -> str:
    own, reference = (printed().get((name, length), {}).get(key) for name in (method, "sinusoidal"))
    return _beside(key, own, reference, "GB")


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


def speed_panels(
    name: str, cases: Mapping[tuple, dict[str, float]], units: dict[str, tuple[str, int]]
) -> list[plots.Panel]:
    """Training speed, evaluation speed and memory against length, a line per method and backend.

    Args:
        name: of the machine.
        cases: by position method, length and, where there are several, backend.
        units: of each of ``train``, ``evaluate`` and ``memory``: name, and number that makes one.
    """
    axes = {"train": "training", "evaluate": "evaluation", "memory": "training memory"}
    backends = {(method, backend) for method, _, *backends in cases for backend in backends or [""]}
    several = len({method for method, _ in backends}) < len(backends)
    panels = []
    for key, axis in axes.items():
        unit, size = units[key]
        lines: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
        for (method, length, *backend), found in cases.items():
            if key in found:
                lines[method, " ".join(backend)][length] = found[key] / size
        drawn = [
            plots.Line(
                f"{method_name(method)} {backend if several else ''}".strip(),
                sorted(at),
                [at[length] for length in sorted(at)],
                plots.method_look(method),
            )
            for (method, backend), at in sorted(lines.items(), key=lambda i: method_order(i[0][0]))
        ]
        if drawn:
            y = f"{axis} ({unit})"
            panels.append(plots.Panel(name, drawn, "Length (tokens)", y, scale="from zero"))
    return panels
