"""Training costs of the paper's models, and of ours, from the records of trainings."""

from __future__ import annotations

from ..reporting import markdown
from ..results.labels import model_label
from ..results.record import Validation
from . import published
from .perplexity_grid import GridLine, format_grid
from .report_data import model_of, of_longest_training
from .table_rows import has_update_count

_LARGE_COSTS = {"memory": "train_memory_gb", "updates": "updates", "GPU hours": "gpu_hours"}
#: Training costs by table: column title → key in the paper's data.
COSTS = {
    "table06": {"training speed": "train_words_per_second"},
    "table11": _LARGE_COSTS,
    "table12": _LARGE_COSTS,
}


def cost_grid(item: str, validations: list[Validation]) -> str:
    """Format the training costs of each model, a line of the paper's and a line of ours.

    Args:
        item: table of the paper.
        validations: validations during our trainings, in order of their updates.
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


def _recorded_costs(printed: dict, updates: int | None, validations: list[Validation]) -> dict:
    """Return the costs of our run at the paper's update count, with the paper's keys and units.

    Of runs with different options, only :func:`.of_longest_training` count.

    Args:
        printed: the paper's row of the model.
        updates: the paper's update count.
        validations: validations during our trainings, in order of their updates.
            The last one of the model counts.
    """
    of_model = []
    for validation in validations:
        is_same_model = model_of(validation) == (
            printed["position_method"],
            printed["train_length"],
        )
        if is_same_model and has_update_count(validation.updates, updates):
            of_model.append(validation)
    if not of_model:
        return {}
    last = of_longest_training(of_model)[-1]
    return {
        "updates": last.updates,
        "gpu_hours": last.gpu_hours,
        "train_memory_gb": last.peak_memory_mb / 1000 if last.peak_memory_mb else None,
        "train_words_per_second": last.tokens_per_second_per_process,
    }
