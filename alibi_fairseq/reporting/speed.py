"""Speed, memory and training time: the paper's Table 1 beside each machine measured on, and section 4.2."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np

from alibi_fairseq.paper import published as paper
from alibi_fairseq.reporting import markdown, plots
from alibi_fairseq.reporting.collect import Results
from alibi_fairseq.results.points import method_name, method_order, model_label

Case = tuple[str, int, str]  # position method, length, backend
#: Tokens per second of ``train`` and ``evaluate`` and MB of ``memory``, as far as measured.
Cases = Mapping[Case, dict[str, float]]


def speeds(documents: Iterable[dict]) -> dict[str, Cases]:
    """The cells of benchmark documents that Table 1 has a place for, by machine, precision and model."""
    groups: dict[str, dict[Case, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for document in documents:
        for cell in document["cells"]:
            if not {"phase", "position_method", "length", "tokens_per_second"} <= cell.keys():
                continue
            case = (cell["position_method"], cell["length"], cell.get("backend", ""))
            found = groups[machine_of(document["provenance"], cell)][case]
            measured = {cell["phase"]: cell["tokens_per_second"]}
            if cell["phase"] == "train" and "train" not in found:
                measured["memory"] = cell.get("peak_memory_mb")
            measured.setdefault("evaluate", cell.get("evaluation_tokens_per_second"))
            for key, value in measured.items():
                if value:
                    found.setdefault(key, value)
    return dict(sorted(groups.items()))


def machine_of(provenance: dict, cell: dict | None = None) -> str:
    """Where and how it was measured, in words: processor, threads or GPU, precision, model."""
    cell, hardware = cell or {}, provenance["hardware"]
    on_cpu = hardware["gpu"] is None or cell.get("device") == "cpu"
    parts = [(hardware["cpu"] if on_cpu else hardware["gpu"]) or "an unknown machine"]
    if on_cpu and (threads := provenance["threads"]):
        parts.append(f"{threads} threads" if threads > 1 else "1 thread")
    parts += [cell.get("precision") or provenance["precision"], cell.get("model")]
    return ", ".join(part for part in parts if part)


def printed_speeds() -> Cases:
    """The paper's Table 1, in words and MB."""
    return {
        (row["position_method"], row["train_length"], ""): {
            "train": row["train_words_per_second"],
            "evaluate": row["eval_words_per_second"],
            "memory": 1000 * row["train_memory_gb"],
        }
        for row in paper.rows("table01")
    }


def speed_table(documents: Iterable[dict]) -> str:
    """Table 1 and its counterpart for each machine, missing or not, and whatever else was measured."""
    printed = printed_speeds()
    parts = ["The paper, one V100:\n\n" + _speeds(printed, "words")]
    for machine, cases in (speeds(documents) or {"not measured yet": {}}).items():
        known = {case[:2] for case in cases}
        missing: Cases = {case: {} for case in printed if case[:2] not in known}
        shown = _speeds({**cases, **missing}, "tokens")
        parts.append(f"Ours, {markdown.literal(machine)}:\n\n{shown}")
    return "\n".join(parts)


def _speeds(cases: Cases, unit: str) -> str:
    headers = ["method", "backend", "L", f"train {unit}/s", "× sinusoidal"]
    headers += [f"evaluation {unit}/s", "× sinusoidal", "train memory (MB)", "− sinusoidal"]
    lines = []
    for case in sorted(cases, key=lambda case: (method_order(case[0]), case[2], case[1])):
        method, length, backend = case
        line = [method_name(method), backend, str(length)]
        for key in ("train", "evaluate", "memory"):
            own, reference = cases[case].get(key), _sinusoidal(cases, case, key)
            shown, beside = markdown.MISSING, markdown.NOTHING
            if own is not None:
                shown = f"{own:.0f}" if key == "memory" else markdown.thousands(own)
            if own is not None and reference is not None:
                gap = f"{own - reference:+.0f}"
                beside = gap if key == "memory" else f"{own / reference:.2f}"
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


def speed_panels(machine: str, cases: Cases, unit: str) -> list[plots.Panel]:
    """Training speed, evaluation speed and memory against length, a line per method and backend."""
    axes = {
        "train": f"training (thousand {unit} per second)",
        "evaluate": f"evaluation (thousand {unit} per second)",
        "memory": "training memory (GB)",
    }
    models = sorted(
        {(method, backend) for method, _, backend in cases},
        key=lambda model: (method_order(model[0]), model),
    )
    several = len({method for method, _ in models}) < len(models)
    panels = []
    for key, axis in axes.items():
        lines = []
        for method, backend in models:
            at = {
                length: measured[key] / 1000
                for (name, length, used), measured in sorted(cases.items())
                if (name, used) == (method, backend) and key in measured
            }
            label = f"{method_name(method)} {backend if several else ''}".strip()
            lines.append(plots.Line(label, [*at], [*at.values()], plots.method_look(method)))
        if any(line.x for line in lines):
            panels.append(plots.Panel(machine, lines, "Length (tokens)", axis, scale="from zero"))
    return panels


def time_curve(results: Results, corpus: str, case: dict) -> list[tuple[float, float]]:
    """GPU hours and perplexity of the paper's model on the validation split, in order of time.

    The training's own validations where they were at the wanted length; at another length the
    evaluations of checkpoints that the run kept, at the hours it had taken until then. ``case`` holds
    ``position_method``, ``train_length`` and ``length`` of the evaluation.
    """
    run = [
        cell
        for cell in results.comparable_training(corpus)
        if "gpu_hours" in cell
        and all(cell[key] == case[key] for key in ("position_method", "train_length"))
    ]
    if not run:
        return []
    hours = {0: 0.0, **{cell["updates"]: cell["gpu_hours"] for cell in run}}
    updates = sorted(hours)
    found: dict[int, float] = {
        point.updates: point.perplexity
        for point in results.points
        if (point.corpus, point.model) == (corpus, paper.model(corpus))
        and all(getattr(point, key) == case[key] for key in case)
        and (point.nonoverlapping, point.subset, point.model_overrides) == (True, "valid", None)
        and point.perplexity is not None
        and point.updates is not None
        and point.updates <= updates[-1]
    }
    same_length = (cell for cell in run if cell.get("length") == case["length"])
    found |= {cell["updates"]: 2 ** cell["loss_bits"] for cell in same_length}
    at = np.interp(sorted(found), updates, [hours[count] for count in updates])
    return list(zip(at.tolist(), (found[count] for count in sorted(found)), strict=True))


def times_as_fast(fast: list[tuple[float, float]], slow: list[tuple[float, float]]) -> float | None:
    """How many times as fast one run reaches the perplexities of another (paper section 4.2).

    The mean over five perplexities evenly spaced, on a logarithmic scale, in the range that both curves
    pass through; None where they share none.
    """
    if not fast or not slow:
        return None
    fast_hours, slow_hours = ([hours for hours, _ in curve] for curve in (fast, slow))
    fast_best, slow_best = (
        np.minimum.accumulate([perplexity for _, perplexity in curve]) for curve in (fast, slow)
    )
    first, last = min(fast_best[0], slow_best[0]), max(fast_best[-1], slow_best[-1])
    if first <= last:
        return None
    levels = -np.geomspace(first, last, 5)
    ratios = np.interp(levels, -slow_best, slow_hours) / np.interp(levels, -fast_best, fast_hours)
    return float(ratios.mean())


def time_saved(results: Results) -> str:
    """How much faster ALiBi reaches a perplexity than the model it is compared with in Figure 5."""
    lines = []
    for panel, printed in (("left", markdown.NOTHING), ("right", "+11%")):
        keys = ("position_method", "train_length", "length")
        rows = [row for row in paper.rows("figure05") if row["panel"] == panel]
        slow, fast = ({key: row[key] for key in keys} for row in rows)
        curves = (time_curve(results, "cc100-roberta", case) for case in (fast, slow))
        ratio = times_as_fast(*curves)
        labels = [model_label(row["position_method"], row["train_length"]) for row in (fast, slow)]
        shown = markdown.MISSING if ratio is None else f"{ratio - 1:+.0%}"
        lines.append([*labels, str(fast["length"]), printed, shown])
    headers = ["model", "reaches perplexities of", "evaluated at", "faster by: paper", "ours"]
    return (
        "\nTraining time to the same perplexity, mean over five perplexities that both curves of "
        "Figure 5 pass through (paper: section 4.2):\n\n"
    ) + markdown.table(headers, lines, left=2)


def training_speeds(results: Results, corpus: str) -> dict[tuple[str, int], float]:
    """Tokens per second and process (GPU) of the paper's models, from their trainings' records.

    By position method and training length; of several runs the last one's.
    """
    return {
        (cell["position_method"], cell["train_length"]): cell["tokens_per_second"]
        / cell.get("processes", 1)
        for cell in sorted(results.comparable_training(corpus), key=lambda cell: cell["updates"])
        if "tokens_per_second" in cell
    }
