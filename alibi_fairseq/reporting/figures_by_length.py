"""Figures of perplexity by evaluation length, and panels of models, which other figures share."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ..results.result import Result, TextValues
from . import plots
from .common_conditions import figure_caption
from .line_styles import method_style
from .notes import undertrained_warning
from .row import Row, without_length
from .rows import build_rows
from .texts import group_by_raw_text, group_by_text, identify_raw_text, identify_text


def length_line(
    row: Row, lengths: Sequence[int] = (), quantity: str = "perplexity"
) -> plots.PlotLine:
    """Create the line of a quantity by evaluation length.

    A failed evaluation is noted at the end of the line. If the text is shorter than the evaluation
    lengths of windows that do not overlap, the line ends at the longest window.

    Args:
        row: points of the model, by length.
        lengths: training lengths of the position method to distinguish.
        quantity: attribute of a point. The spread over seeds is known only of ``perplexity``.
    """
    # All lengths beyond the end of the text have the same longest window.
    windows: list[int] = []
    values: list[float] = []
    spread: list[float] = []
    failures = []
    for point in row.points:
        value = getattr(point, quantity)
        if value is None:
            failures.append(point.status)
            continue
        window = point.case.length
        if point.is_past_end and point.longest_window is not None:
            window = point.longest_window
        if window in windows:
            continue
        windows.append(window)
        values.append(value)
        spread.append(point.spread or 0.0)
    notes = []
    if failures and windows:
        notes.append((-1, failures[0]))
    return plots.PlotLine(
        label=row.label,
        x=windows,
        y=values,
        style=method_style(row.method_name, row.train_length, lengths),
        spread=spread if quantity == "perplexity" else (),
        hollow=row.is_printed,
        notes=notes,
    )


def draw_panels(
    title: str,
    panels: dict[str, list[Row]],
    *paths: str | os.PathLike,
    make_line: Callable[[Row, Sequence[int]], plots.PlotLine] = length_line,
    x: str = plots.EVALUATION_LENGTH,
    y: str = plots.PERPLEXITY,
    explanation: str = "",
) -> str:
    """Draw panels of models, given by title, with one legend; return the caption.

    A position method looks the same in every panel. Its training lengths have different styles if
    any panel has several training lengths.

    Args:
        title: title of the figure.
        panels: models by panel title.
        paths: files to write.
        make_line: function that creates the line of a model (default: perplexity by length).
        x: title of the x axis, whose unit is tokens.
        y: title of the y axis.
        explanation: sentences below the figure, after the caption of the models.
    """
    train_lengths = _train_lengths_to_distinguish(panels)
    drawn = []
    for name, models in panels.items():
        lines = []
        for model in models:
            lengths_of_method = train_lengths.get(model.method_name, ())
            lines.append(make_line(model, lengths_of_method))
        lengths_in_panel = {model.train_length for model in models}
        trained_at = None
        if len(lengths_in_panel) == 1:
            trained_at = lengths_in_panel.pop()
        drawn.append(plots.Panel(name, lines, x, y, trained_at=trained_at))
    all_models = [model for models in panels.values() for model in models]
    texts = [figure_caption(all_models), undertrained_warning(all_models), explanation]
    full_caption = ". ".join(text for text in texts if text)
    plots.draw(title, drawn, *paths, caption=full_caption)
    return full_caption


def _train_lengths_to_distinguish(
    panels: Mapping[str, list[Row]],
) -> dict[str, list[int]]:
    """Return the training lengths of each position method; empty if no panel has several."""
    lengths_by_method: dict[str, set[int]] = defaultdict(set)
    any_has_several = False
    for models in panels.values():
        if len({model.train_length for model in models}) > 1:
            any_has_several = True
        for model in models:
            if model.train_length is not None:
                lengths_by_method[model.method_name].add(model.train_length)
    if not any_has_several:
        return {}
    return {method: sorted(lengths) for method, lengths in lengths_by_method.items()}


def draw_lengths(results: Sequence[Result], title: str, *paths: str | os.PathLike) -> str:
    """Draw perplexity against length, one line per model, in the panels of :func:`model_panels`.

    The caption is returned.

    Panels with a single evaluation length show no trend and are omitted if there are other panels.
    Models with different tokenizers are compared in bits per byte.

    Args:
        results: results on texts.
        title: title of the figure.
        paths: files to write.
    """
    if has_several_tokenizers(results):
        panels = _informative(model_panels(group_by_raw_text(results)))
        make_line = partial(length_line, quantity="bits_per_byte")
        return draw_panels(title, panels, *paths, make_line=make_line, y="Bits per byte")
    panels = _informative(model_panels(group_by_text(results)))
    return draw_panels(title, panels, *paths)


def _informative(panels: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Return the panels with several evaluation lengths, or all if there are none."""
    informative = {}
    for name, models in panels.items():
        most_lengths = max(len({point.case.length for point in row.points}) for row in models)
        if most_lengths > 1:
            informative[name] = models
    return informative or panels


def has_several_tokenizers(results: Sequence[Result]) -> bool:
    """Return True if bits per byte of different tokenizers are known for a raw text."""
    texts = set()
    tokenizations = set()
    is_measured = True
    for result in results:
        texts.add(identify_raw_text(result))
        tokenizations.add((identify_raw_text(result), identify_text(result)))
        assert isinstance(result.values, TextValues)
        is_measured = is_measured and result.values.bits_per_byte is not None
    return len(tokenizations) > len(texts) and is_measured


def model_panels(groups: Mapping[str, list[Result]]) -> dict[str, list[Row]]:
    """Return the models of each panel of a figure, given groups of comparable results.

    Several methods at several training lengths get a panel per training length. Models on a raw
    text share a panel.
    """
    panels = {}
    for name, group in groups.items():
        models = build_rows(group)
        train_lengths = sorted({result.series.train_length for result in group})
        methods = {result.series.method.name_key for result in group}
        has_one_kind = len(train_lengths) == 1 or len(methods) == 1
        if has_one_kind or group[0].case.is_raw_text:
            panels[name] = models
            continue
        for train_length in train_lengths:
            same_length = [model for model in models if model.train_length == train_length]
            panels[f"{name}, trained at L={train_length}"] = without_length(same_length)
    return panels
