"""Labels at the ends of lines."""

from __future__ import annotations

import itertools

import pytest

from alibi_fairseq.reporting import plots
from alibi_fairseq.reporting.line_labels import move_apart
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
    assert move_apart(heights, [10] * len(heights), (-50, 100)) == pytest.approx(expected)


def test_labels_have_their_height_and_stay_beside_the_axes():
    assert move_apart([5, 5], [10, 20], (-50, 50)) == pytest.approx([-2.5, 12.5])
    assert move_apart([1, 1, 50], [10, 10, 10], (0, 100)) == pytest.approx([5, 15, 50])
    assert move_apart([50, 99, 99], [10, 10, 10], (0, 100)) == pytest.approx([50, 85, 95])


def compose(*lines, y_limits=None):
    """Return the axes of a figure whose lines have labels.

    Args:
        lines: method and perplexities at 128, 256, and 512 tokens of each line.
        y_limits: ends of the y axis.
    """
    drawn = []
    for method, *perplexities in lines:
        drawn.append(plots.PlotLine(method, [128, 256, 512], perplexities, method_style(method)))
    panel = plots.Panel("", drawn, trained_at=128, y_limits=y_limits)
    figure = plots.compose("", [panel])
    figure.draw_without_rendering()
    assert not figure.legends
    return figure.axes[0]


def boxes_of(axes):
    """Return the place of each label in pixels, by its first line."""
    boxes = {text.get_text().split("\n")[0]: text.get_window_extent() for text in axes.texts}
    boxes.pop("training length", None)
    return boxes


def test_labels_have_order_and_color_of_line_ends():
    axes = compose(("ALiBi", 20, 19.1, 18), ("T5 bias", 20, 19, 18.1), ("Rotary", 20, 22, 30))
    boxes = boxes_of(axes)
    assert boxes["ALiBi"].y1 <= boxes["T5 bias"].y0  # their ends are less than a pixel apart
    assert boxes["T5 bias"].y1 <= boxes["Rotary"].y0
    right = axes.transData.transform((512, 20))[0]
    for text in axes.texts:
        if text.get_text() == "training length":
            continue
        assert boxes[text.get_text()].x0 > right
        assert text.get_color() == method_style(text.get_text()).color


def test_lines_that_leave_the_axes_are_labeled_inside_with_their_highest_value():
    lines = [("ALiBi", 20, 19, 18), ("Sinusoidal", 20, 60, 130), ("Rotary", 20, 50, 160)]
    axes = compose(*lines, y_limits=(15, 40))
    assert axes.get_ylim() == (15, 40)
    texts = {text.get_text() for text in axes.texts} - {"training length"}
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


def test_legend_leaves_only_the_highest_value_of_lines_that_leave_the_axes():
    lines = [plots.PlotLine("Diverged", [128, 256], [20, 9000], method_style("ALiBi"))]
    for number in range(16):
        lines.append(plots.PlotLine(f"{number}", [128, 256], [20, 21], method_style("Rotary")))
    figure = plots.compose("", [plots.Panel("", lines)])
    (axes,) = figure.axes
    assert len(figure.legends) == 1
    (label,) = axes.texts
    assert label.get_text() == "↑ to 9,000"
    assert label.get_window_extent().x0 > axes.get_window_extent().x0


def test_ticks_have_multiples_of_training_length():
    axes = compose(("ALiBi", 20, 19, 18))
    ticks = {label.get_text() for label in axes.get_xticklabels()}
    assert {"128\nL", "256\n2 L", "512\n4 L"} <= ticks


def note_of(*perplexities, y_limits=None, lengths=(128, 256, 512)):
    """Return the axes of one line, and the note on the training length of 128, if there is one."""
    line = plots.PlotLine("ALiBi", lengths, perplexities, method_style("ALiBi"))
    panel = plots.Panel("", [line], trained_at=128, y_limits=y_limits)
    axes = plots.compose("", [panel]).axes[0]
    notes = [text for text in axes.texts if text.get_text() == "training length"]
    return axes, notes[0].get_window_extent() if notes else None


def test_training_length_is_noted_where_no_line_is():
    axes, note = note_of(20, 30, 40)  # the line begins at the bottom
    frame = axes.get_window_extent()
    (at, _) = axes.transData.transform((128, 20))
    assert note.y0 > (frame.y0 + frame.y1) / 2
    assert note.x0 > at  # there is no space to the left
    axes, note = note_of(40, 40, 20, y_limits=(10, 41))  # the line is at the top
    assert note.y1 < (frame.y0 + frame.y1) / 2
    axes, note = note_of(20, 22, 24, 26, lengths=(16, 32, 128, 512))
    (at, _) = axes.transData.transform((128, 20))
    assert note.x1 < at
    _, note = note_of(20, 20, 20, y_limits=(19.9, 20.1), lengths=(128, 129, 130))
    assert note is not None
