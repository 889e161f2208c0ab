"""Table of ``alibi-fairseq reproduce``: an item of the paper next to our measurements.

The measurements can be at any scale.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from ..positions.spec import MethodSpec
from ..reporting.markdown import NOTHING
from ..reporting.rows import model_label
from ..results.result import Result
from .datasets import PaperDataset
from .perplexity_grid import perplexity_grid
from .published import PrintedMeasurement
from .scale import Scale
from .table_rows import table_rows
from .trainings import curve_evaluations, evaluations_of, recipes_and_measurements, title_of


def item_table(item: str, ours: Iterable[Result], scale: Scale, dataset: PaperDataset) -> str:
    """Format an item as Markdown, one table per split and stride.

    A warning precedes the tables unless they are a replication of the paper.

    Args:
        item: table or figure, such as ``table05``.
        ours: our results, labeled as the paper's.
        scale: scale of our runs.
        dataset: data of our runs.
    """
    ours = list(ours)
    # The recipes of one item all have the same number of updates.
    recipe_updates = evaluations_of(item)[0].recipe.updates
    parts = [f"# {title_of(item)}\n"]
    our_name = "ours"
    if not dataset.is_paper_corpus:
        our_name = f"ours ({scale.name})"
        parts.append(
            f"**Not a replication.** Ours: {scale.caveat} (scale '{scale.name}', text "
            f"'{dataset.name_in_results}'). The paper's numbers are shown for reference only.\n"
        )
    for (subset, stride), printed in _by_split_and_stride(measurements_with_updates(item)).items():
        windows = "non-overlapping windows"
        if stride is not None:
            windows = f"sliding windows, S={stride}"
        rows = table_rows(printed, ours, label=partial(row_label, recipe_updates))
        lengths = sorted({measurement.length for measurement in printed})
        grid = perplexity_grid(rows, lengths, our_name)
        parts.append(f"Perplexity on {subset}, {windows}:\n\n{grid}")
    return "\n".join(parts)


def _by_split_and_stride(
    measurements: Iterable[PrintedMeasurement],
) -> dict[tuple[str, int | None], list[PrintedMeasurement]]:
    """Group measurements by split and stride, which is None for non-overlapping windows."""
    groups: dict[tuple[str, int | None], list[PrintedMeasurement]] = defaultdict(list)
    for measurement in measurements:
        stride = None if measurement.nonoverlapping else measurement.stride
        groups[measurement.subset, stride].append(measurement)
    return groups


def measurements_with_updates(item: str) -> list[PrintedMeasurement]:
    """Return the paper's measurements of an item, all with an update count.

    Figure 5's curves are included at :data:`.trainings.CURVE_UPDATES`. The paper does not print
    these perplexities, so they are None, with a dash as their status.
    """
    measurements: list[PrintedMeasurement] = []
    for recipe, measurement in recipes_and_measurements(item):
        updates = measurement.updates or recipe.updates
        measurements.append(replace(measurement, updates=updates))
    if item != "figure05":
        return measurements
    printed = {replace(each, perplexity=None, status=NOTHING) for each in measurements}
    for evaluation in curve_evaluations():
        for length in evaluation.lengths:
            on_curve = PrintedMeasurement(
                method=MethodSpec.plain(evaluation.recipe.position_method),
                train_length=evaluation.recipe.train_length,
                length=length,
                stride=length,
                subset=evaluation.subset,
                perplexity=None,
                updates=evaluation.updates,
                status=NOTHING,
            )
            # The end of a curve is printed.
            if on_curve not in printed:
                measurements.append(on_curve)
    return measurements


def row_label(recipe_updates: int, measurement: PrintedMeasurement) -> str:
    """Return ``ALiBi, L=512``, or ``ALiBi, L=512, 20.0% trained`` before the recipe's end.

    Args:
        recipe_updates: number of updates of the model's recipe.
        measurement: one of :func:`measurements_with_updates`.
    """
    name = model_label(measurement.method_name, measurement.train_length)
    if measurement.updates == recipe_updates:
        return name
    assert measurement.updates is not None  # measurements_with_updates sets it
    return f"{name}, {measurement.updates / recipe_updates:.1%} trained"
