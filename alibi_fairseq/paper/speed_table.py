"""Table 1 of the paper, speed and memory of each method, with our measurements by machine."""

from __future__ import annotations

from collections.abc import Mapping

from alibi_fairseq.paper import published
from alibi_fairseq.paper.report_data import Cases
from alibi_fairseq.reporting import markdown
from alibi_fairseq.results.labels import method_name, method_order


def speed_table(machines: Mapping[str, Cases]) -> str:
    """Format Table 1 and its counterpart for each machine, with every case that was measured."""
    printed = printed_speeds()
    parts = [f"The paper, one V100:\n\n{_speeds(printed, 'words')}"]
    if not machines:
        machines = {"not measured yet": {}}
    for machine, cases in machines.items():
        # A case of the paper that was not measured has empty table cells.
        all_cases: dict[tuple[str, int], dict[str, float]] = dict.fromkeys(printed, {})
        all_cases.update(cases)
        parts.append(f"Ours, {markdown.literal(machine)}:\n\n{_speeds(all_cases, 'tokens')}")
    return "\n".join(parts)


def printed_speeds() -> Cases:
    """Return the paper's Table 1, in words per second and MB."""
    speeds = {}
    for row in published.rows("table01"):
        speeds[row["position_method"], row["train_length"]] = {
            "train": row["train_words_per_second"],
            "evaluate": row["eval_words_per_second"],
            "memory": 1000 * row["train_memory_gb"],
        }
    return speeds


def _speeds(cases: Cases, unit: str) -> str:
    """Format speeds and memory with their relation to the sinusoidal model of the same length."""
    headers = ["method", "L", f"train {unit}/s", "× sinusoidal", f"evaluation {unit}/s"]
    headers += ["× sinusoidal", "train memory (MB)", "− sinusoidal"]
    lines = []
    for method, length in sorted(cases, key=lambda case: (method_order(case[0]), case[1])):
        values = cases[method, length]
        reference = cases.get(("sinusoidal", length), {})
        line = [method_name(method), str(length)]
        for key in ("train", "evaluate", "memory"):
            line += _value_and_relation(key, values.get(key), reference.get(key))
        lines.append(line)
    return markdown.table(headers, lines)


def _value_and_relation(key: str, value: float | None, reference: float | None) -> tuple[str, str]:
    """Format a speed or a memory size, and its relation to the reference.

    The relation of a speed is a ratio, that of a memory size a difference.
    """
    if value is None:
        return markdown.MISSING, markdown.NOTHING
    relation = markdown.NOTHING
    if key == "memory":
        text = f"{value:.0f}"
        if reference is not None:
            relation = f"{value - reference:+.0f}"
    else:
        text = markdown.thousands(value)
        if reference is not None:
            relation = f"{value / reference:.2f}"
    return text, relation
