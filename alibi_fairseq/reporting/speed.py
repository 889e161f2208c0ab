"""Speed and memory: the paper's Table 1 and its counterpart of each machine, as tables and figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from alibi_fairseq.paper import published as paper
from alibi_fairseq.reporting import markdown, plots
from alibi_fairseq.results.points import method_name, method_order

Case = tuple[str, int, str]  # position method, length, backend
#: Tokens per second of ``train`` and ``evaluate`` and MB of ``memory``, as far as measured.
Cases = Mapping[Case, dict[str, float]]
_KEYS = ("train", "evaluate", "memory")
_SPEEDS = {"train": "training", "evaluate": "evaluation"}


def speeds(documents: Iterable[dict]) -> dict[str, Cases]:
    """The cells of benchmark documents that Table 1 has a place for, by machine, precision and model."""
    groups: dict[str, dict[Case, dict[str, float]]] = defaultdict(dict)
    for document in documents:
        for cell in document["cells"]:
            if not {"phase", "position_method", "length", "tokens_per_second"} <= cell.keys():
                continue
            case = (cell["position_method"], cell["length"], cell.get("backend", ""))
            found = groups[machine_of(document["provenance"], cell)].setdefault(case, {})
            phase = cell["phase"]
            if phase == "train" and "train" not in found and cell.get("peak_memory_mb"):
                found["memory"] = cell["peak_memory_mb"]
            found.setdefault(phase, cell["tokens_per_second"])
            if evaluated := cell.get("evaluation_tokens_per_second"):  # a whole row of Table 1
                found.setdefault("evaluate", evaluated)
    return dict(sorted(groups.items()))


def printed() -> Cases:
    """Table 1, in words and MB."""
    return {
        (row["position_method"], row["train_length"], ""): {
            "train": row["train_words_per_second"],
            "evaluate": row["eval_words_per_second"],
            "memory": 1000 * row["train_memory_gb"],
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
    """Table 1 and, for each machine measured on, its counterpart, missing or not, and whatever else was
    measured.
    """
    parts = ["The paper, one V100:\n\n" + _table(printed(), "words")]
    for machine, cases in (speeds(documents) or {"not measured yet": {}}).items():
        measured = {case[:2] for case in cases}
        missing: Cases = {case: {} for case in printed() if case[:2] not in measured}
        table = _table({**cases, **missing}, "tokens")
        parts.append(f"Ours, {markdown.literal(machine)}:\n\n{table}")
    return "\n".join(parts)


def _table(cases: Cases, unit: str) -> str:
    headers = ["method", "backend", "L", f"train {unit}/s", "× sinusoidal"]
    headers += [f"evaluation {unit}/s", "× sinusoidal", "train memory (MB)", "− sinusoidal"]
    lines = []
    for case in sorted(cases, key=lambda case: (method_order(case[0]), case[2], case[1])):
        method, length, backend = case
        line = [method_name(method), backend, str(length)]
        for key in _KEYS:
            own, reference = cases[case].get(key), _sinusoidal(cases, case, key)
            shown, beside = markdown.MISSING, markdown.NOTHING
            if own is not None:
                shown = f"{own:.0f}" if key == "memory" else markdown.thousands(own)
            if own is not None and reference is not None:
                difference = f"{own - reference:+.0f}"
                beside = difference if key == "memory" else f"{own / reference:.2f}"
            line += [shown, beside]
        lines.append(line)
    return markdown.table(headers, lines, left=2)


def _sinusoidal(cases: Cases, case: Case, key: str) -> float | None:
    """The same of the sinusoidal model at the same length, on the same backend if any."""
    found = {
        backend: measured[key]
        for (method, length, backend), measured in cases.items()
        if (method, length) == ("sinusoidal", case[1]) and key in measured
    }
    return found.get(case[2], next(iter(found.values()), None))


def speed_panels(name: str, cases: Cases, unit: str) -> list[plots.Panel]:
    """Training speed, evaluation speed and memory against length, a line per method and backend.

    Args:
        name: of the machine.
        unit: of the text: words or tokens.
    """
    axes = {key: f"{phase} (thousand {unit} per second)" for key, phase in _SPEEDS.items()}
    models = sorted(
        {(m, b) for m, _, b in cases}, key=lambda model: (method_order(model[0]), model)
    )
    several = len({method for method, _ in models}) < len(models)
    panels = []
    for key, axis in (axes | {"memory": "training memory (GB)"}).items():
        lines = []
        for model in models:
            at = {
                n: v[key] / 1000 for (m, n, b), v in cases.items() if (m, b) == model and key in v
            }
            label = f"{method_name(model[0])} {model[1] if several else ''}".strip()
            values = [at[length] for length in sorted(at)]
            lines.append(plots.Line(label, sorted(at), values, plots.method_look(model[0])))
        if any(line.x for line in lines):
            panels.append(plots.Panel(name, lines, "Length (tokens)", axis, scale="from zero"))
    return panels
