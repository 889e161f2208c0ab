"""Labels at the ends of lines."""

from __future__ import annotations

import itertools

import pytest

from alibi_fairseq.reporting import plots
from alibi_fairseq.reporting.line_labels import spread
from alibi_fairseq.reporting.line_styles import method_style


@pytest.mark.parametrize(
    ("heights", "expected"),
    [
        ([0, 20, 40], [0, 20, 40]),
        ([5, 5], [0, 10]),
        ([0, 1, 2, 50], [-9, 1, 11, 50]),
        ([0, 8, 16, 24], [-3, 7, 17, 27]),
        ([], []),
    ],
)
def test_labels_move_as_little_as_possible(heights, expected):
    assert spread(heights, 10) == pytest.approx(expected)


def compose(*lines, y_limits=None):
    """Return the axes of a figure whose lines have labels.

    Args:
        lines: method and perplexities at 128, 256, and 512 tokens of each line.
        y_limits: ends of the y axis.
    """
    drawn = []
    for method, *perplexities in lines:
        drawn.append(plots.PlotLine(method, [128, 256, 512], perplexities, method_style(method)))
    panel = plots.Panel("", drawn, trained_at=128, end_labels=True, y_limits=y_limits)
    figure = plots.compose("", [panel])
    figure.draw_without_rendering()
    assert not figure.legends
    return figure.axes[0]


def boxes_of(axes):
    """Return the place of each label in pixels, by its first line."""
    return {text.get_text().split("\n")[0]: text.get_window_extent() for text in axes.texts}


def test_labels_have_order_and_color_of_line_ends():
    axes = compose(("ALiBi", 20, 19.1, 18), ("T5 bias", 20, 19, 18.1), ("Rotary", 20, 22, 30))
    boxes = boxes_of(axes)
    assert boxes["ALiBi"].y1 <= boxes["T5 bias"].y0  # their ends are less than a pixel apart
    assert boxes["T5 bias"].y1 <= boxes["Rotary"].y0
    right = axes.transData.transform((512, 20))[0]
    for text in axes.texts:
        assert boxes[text.get_text()].x0 > right
        assert text.get_color() == method_style(text.get_text()).color


def test_lines_that_leave_the_axes_are_labeled_inside_with_their_highest_value():
    lines = [("ALiBi", 20, 19, 18), ("Sinusoidal", 20, 60, 130), ("Rotary", 20, 50, 160)]
    axes = compose(*lines, y_limits=(15, 40))
    assert axes.get_ylim() == (15, 40)
    texts = {text.get_text() for text in axes.texts}
    assert texts == {"ALiBi", "Sinusoidal\n↑ to 130", "Rotary\n↑ to 160"}
    boxes = boxes_of(axes)
    frame = axes.get_window_extent()
    for name in ("Sinusoidal", "Rotary"):
        assert boxes[name].y1 <= frame.y1
    for first, second in itertools.combinations(boxes.values(), 2):
        assert not first.overlaps(second)
    # Sinusoidal embeddings reach 40 halfway from 20 to 60, on a logarithmic axis of lengths.
    exit_pixel = axes.transData.transform((128 * 2**0.5, 40))[0]
    assert boxes["Sinusoidal"].x1 < exit_pixel < boxes["Rotary"].x0


def test_ticks_have_multiples_of_training_length():
    axes = compose(("ALiBi", 20, 19, 18))
    ticks = {label.get_text() for label in axes.get_xticklabels()}
    assert {"128\nL", "256\n2 L", "512\n4 L"} <= ticks


def test_training_length_is_named_unless_the_axis_begins_there():
    assert "training length" not in boxes_of(compose(("ALiBi", 20, 19, 18)))
    line = plots.PlotLine("ALiBi", [64, 256], [20, 19], method_style("ALiBi"))
    figure = plots.compose("", [plots.Panel("", [line], trained_at=128, end_labels=True)])
    assert "training length" in boxes_of(figure.axes[0])
