"""Figures of models in one or more panels, which state once what all panels have in common."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..results.result import Result
from . import plots
from .common_conditions import figure_conditions, training_in_words
from .notes import chance_warning, undertrained_warning
from .row import Row, common_train_length, without_common_length
from .rows import build_rows
from .texts import TextGroup


class PanelRows(NamedTuple):
    """Models of a panel.

    Attributes:
        rows: the models.
        text: what is predicted, in words.
        windows: windows in which it is predicted, in words.
    """

    rows: Sequence[Row]
    text: Sequence[str] = ()
    windows: str = ""

    @property
    def words(self) -> list[str]:
        """All that is known of the panel, in words."""
        parts = (*self.text, self.windows, training_in_words(self.rows))
        return [part for part in parts if part]


def draw_panels(
    title: str,
    panels: Sequence[PanelRows],
    *paths: str | os.PathLike,
    make_line: Callable[[Row, Sequence[int]], plots.PlotLine],
    x: str = plots.EVALUATION_LENGTH,
    y: str = plots.PERPLEXITY,
    explanation: str = "",
) -> str:
    """Draw panels of models, and return what the figure says of all of them.

    What panels have in common is below the title, and only the rest is above each. A position
    method looks the same in every panel. Its training lengths have different styles if any panel
    has several training lengths.

    Args:
        title: title of the figure.
        panels: models of each panel.
        paths: files to write.
        make_line: creates the line of a model, given the training lengths to distinguish, such as
            :func:`.figures_by_length.length_line`.
        x: title of the x axis, whose unit is tokens.
        y: title of the y axis.
        explanation: sentences below the figure, after the warnings about its models.
    """
    distinguished = _train_lengths_to_distinguish(panels)
    common = set.intersection(*(set(panel.words) for panel in panels))
    drawn = []
    for panel in panels:
        lines = []
        for row in without_common_length(panel.rows):
            lines.append(make_line(row, distinguished.get(row.method_name, ())))
        different = ", ".join(part for part in panel.words if part not in common)
        panel_title = different[:1].upper() + different[1:]
        trained_at = common_train_length(panel.rows)
        drawn.append(plots.Panel(panel_title, lines, x, y, trained_at=trained_at))
    all_rows = [row for panel in panels for row in panel.rows]
    first = panels[0]
    text = [part for part in (*first.text, first.windows) if part in common]
    subtitle = figure_conditions(all_rows, text)
    warnings = [chance_warning(all_rows), undertrained_warning(all_rows), explanation]
    caption = ". ".join(filter(None, warnings))
    plots.draw(title, drawn, *paths, subtitle=subtitle, caption=caption, same_y=True)
    return ". ".join(filter(None, [subtitle, caption]))


def _train_lengths_to_distinguish(panels: Sequence[PanelRows]) -> dict[str, list[int]]:
    """Return the training lengths of each position method; empty if no panel has several."""
    lengths_by_method: dict[str, set[int]] = defaultdict(set)
    any_has_several = False
    for panel in panels:
        if common_train_length(panel.rows) is None:
            any_has_several = True
        for model in panel.rows:
            if model.train_length is not None:
                lengths_by_method[model.method_name].add(model.train_length)
    if not any_has_several:
        return {}
    return {method: sorted(lengths) for method, lengths in lengths_by_method.items()}


def model_panels(results: Sequence[Result], group: TextGroup, windows: str = "") -> list[PanelRows]:
    """Return the panels of comparable results.

    Several methods at several training lengths get a panel per training length. Models on a raw
    text share a panel.

    Args:
        results: the results.
        group: what they have in common.
        windows: windows in words (default: those of the group).
    """
    windows = windows or group.windows_in_words
    models = build_rows(results)
    train_lengths = sorted({result.series.train_length for result in results})
    methods = {result.series.method.name_key for result in results}
    has_one_kind = len(train_lengths) == 1 or len(methods) == 1
    if has_one_kind or results[0].case.is_raw_text:
        return [PanelRows(models, group.text_in_words, windows)]
    panels = []
    for train_length in train_lengths:
        same_length = [model for model in models if model.train_length == train_length]
        panels.append(PanelRows(same_length, group.text_in_words, windows))
    return panels
