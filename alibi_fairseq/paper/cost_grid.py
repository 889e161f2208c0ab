"""Training costs of the paper's models, and of ours, from the records of trainings."""

from __future__ import annotations

from ..reporting import markdown
from ..results.labels import model_label
from . import published
from .perplexity_grid import GridLine, format_grid
from .report_data import of_longest_training, speed_per_process
from .table_rows import has_update_count

_LARGE_COSTS = {"memory": "train_memory_gb", "updates": "updates", "GPU hours": "gpu_hours"}
#: Training costs by table: column title → key in the paper's data.
COSTS = {
    "table06": {"training speed": "train_words_per_second"},
    "table11": _LARGE_COSTS,
    "table12": _LARGE_COSTS,
}


def cost_grid(item: str, validations: list[dict]) -> str:
    """Format the training costs of each model, a line of the paper's and a line of ours.

    Args:
        item: table of the paper.
        validations: result records of validations during our trainings, in order of their updates.
    """
    printed_costs = {}
    for row in published.rows(item):
        # Rows of one model differ in the evaluation length only.
        printed_costs[model_label(row["position_method"], row["train_length"])] = row
    lines = []
    for model, printed in printed_costs.items():
        # Table 6 does not print the number of updates, which is the same for all of its models.
        updates = printed.get("updates") or published.updates(published.corpus_of(item))
        recorded = _recorded_costs(printed, updates, validations)
        lines.append(GridLine(model, "paper", _cost_cells(item, printed)))
        lines.append(GridLine(model, "ours", _cost_cells(item, recorded)))
    return format_grid(lines, list(COSTS[item]), corner="model")


def _cost_cells(item: str, costs: dict) -> list[str]:
    """Format the costs that a table has, which may be missing."""
    cells = []
    for title, key in COSTS[item].items():
        cost = costs.get(key)
        if cost is None:
            cells.append(markdown.MISSING)
        elif title == "memory":
            cells.append(f"{cost:.1f} GB")
        else:
            cells.append(markdown.thousands(cost))
    return cells


def _recorded_costs(printed: dict, updates: int | None, validations: list[dict]) -> dict:
    """Return the costs of our run at the paper's update count, with the paper's keys and units.

    Of runs with different options, only :func:`.of_longest_training` count.

    Args:
        printed: the paper's row of the model.
        updates: the paper's update count.
        validations: result records of validations during our trainings, in order of their updates.
            The last one of the model counts.
    """
    records = []
    for record in validations:
        is_same_model = (
            record["position_method"] == printed["position_method"]
            and record["train_length"] == printed["train_length"]
        )
        if is_same_model and has_update_count(record["updates"], updates):
            records.append(record)
    if not records:
        return {}
    last_record = of_longest_training(records)[-1]
    costs = {key: last_record[key] for key in ("updates", "gpu_hours") if key in last_record}
    memory = last_record.get("peak_memory_mb")
    if memory:
        costs["train_memory_gb"] = memory / 1000
    speed = speed_per_process(last_record)
    if speed:
        costs["train_words_per_second"] = speed
    return costs
