"""Table 1 of the paper, speed and memory of each method, with our measurements."""

from __future__ import annotations

from collections.abc import Mapping

from ..reporting import markdown
from ..results.labels import method_name, method_order
from . import published
from .report_data import SpeedsAndMemory


def speed_table(speeds_by_title: Mapping[str, SpeedsAndMemory]) -> str:
    """Format Table 1, and our table of each results file (:meth:`.ReportData.speeds`)."""
    printed = printed_speeds()
    parts = [f"The paper, one V100:\n\n{_speeds_grid(printed, 'words')}"]
    if not speeds_by_title:
        speeds_by_title = {"not measured yet": {}}
    for title, measured in speeds_by_title.items():
        speeds: dict[tuple[str, int], dict[str, float]] = {}
        for model in printed:
            speeds[model] = {}  # Models that were not measured have a row, too.
        speeds.update(measured)
        grid = _speeds_grid(speeds, "tokens")
        parts.append(f"Ours, {markdown.literal(title)}:\n\n{grid}")
    return "\n".join(parts)


def printed_speeds() -> SpeedsAndMemory:
    """Return the paper's Table 1, in words per second and MB."""
    speeds = {}
    for row in published.rows("table01"):
        speeds[row["position_method"], row["train_length"]] = {
            "train": row["train_words_per_second"],
            "evaluate": row["eval_words_per_second"],
            "memory": 1000 * row["train_memory_gb"],
        }
    return speeds


def _speeds_grid(speeds: SpeedsAndMemory, unit: str) -> str:
    """Format speeds and memory with their relation to the sinusoidal model of the same length.

    Args:
        speeds: speeds and memory of each model; empty for a model that was not measured.
        unit: unit of the speeds, words or tokens.
    """
    headers = ["method", "L", f"train {unit}/s", "× sinusoidal", f"evaluation {unit}/s"]
    headers += ["× sinusoidal", "train memory (MB)", "− sinusoidal"]
    rows = []
    for method, length in sorted(speeds, key=_table_order):
        values = speeds[method, length]
        reference = speeds.get(("sinusoidal", length), {})
        row = [method_name(method), str(length)]
        for quantity in ("train", "evaluate", "memory"):
            value = values.get(quantity)
            row += _value_and_relation(quantity, value, reference.get(quantity))
        rows.append(row)
    return markdown.table(headers, rows)


def _table_order(model: tuple[str, int]) -> tuple[tuple[int, str], int]:
    """Return the sort key of a position method and length."""
    method, length = model
    return (method_order(method), length)


def _value_and_relation(
    quantity: str, value: float | None, reference: float | None
) -> tuple[str, str]:
    """Format a speed or a memory size, and its relation to the reference.

    The relation of a speed is a ratio, that of a memory size a difference.

    Args:
        quantity: key of :data:`.SpeedsAndMemory`.
        value: value of a model, or None if it was not measured.
        reference: value of the sinusoidal model, or None if it was not measured.
    """
    if value is None:
        return markdown.MISSING, markdown.NOTHING
    relation = markdown.NOTHING
    if quantity == "memory":
        text = f"{value:.0f}"
        if reference is not None:
            relation = f"{value - reference:+.0f}"
    else:
        text = markdown.thousands(value)
        if reference is not None:
            relation = f"{value / reference:.2f}"
    return text, relation
