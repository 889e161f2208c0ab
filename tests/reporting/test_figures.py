import hashlib
import itertools

import pytest
from results_documents import document, evaluation_cell

from alibi_fairseq.errors import BadInput
from alibi_fairseq.reporting import perplexity_by_length, style
from alibi_fairseq.results.points import METHOD_NAMES, Point, Series, evaluation_points, series


def draw(measured, path):
    perplexity_by_length.draw_lengths(evaluation_points(measured), "demo", path)


def two_methods():
    return document(
        *(
            evaluation_cell(perplexity, position_method=method, length=length)
            for method, perplexities in (("alibi", (60, 58)), ("sinusoidal", (61, 400)))
            for length, perplexity in zip((64, 128), perplexities, strict=True)
        )
    )


@pytest.mark.parametrize(
    ("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")]
)
def test_figure_is_written_and_the_same_each_time(tmp_path, suffix, start):
    hashes = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}{suffix}"
        draw(two_methods(), path)
        content = path.read_bytes()
        assert content.startswith(start) and len(content) > 5000
        hashes.append(hashlib.sha256(content).hexdigest())
    assert hashes[0] == hashes[1]
    assert len(list(tmp_path.iterdir())) == 2  # no temporary file stays


def test_lines_are_the_measured_points_with_units_on_the_axes():
    drawn = series(evaluation_points(two_methods()))
    with style.figure("title") as (_, [axes]):
        perplexity_by_length.plot_series(axes, drawn)
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert lines["ALiBi, L=64"].get_xydata().tolist() == [[64, 60], [128, 58]]
    assert lines["Sinusoidal, L=64"].get_xydata().tolist() == [[64, 61], [128, 400]]
    assert "tokens" in axes.get_xlabel() and "Perplexity" in axes.get_ylabel()
    assert axes.get_yscale() == "log"  # 58 to 400 would press ALiBi's line to the floor
    assert axes.get_ylim()[0] < 58 and axes.get_ylim()[1] > 400


def test_methods_differ_without_colour():
    looks = [style.method_look(method) for method in METHOD_NAMES]
    without_colour = {(look.marker, str(look.linestyle)) for look in looks}
    assert len(without_colour) == len(METHOD_NAMES)
    by_length = [style.length_look("alibi", n, range(8)) for n in range(8)]
    assert len({look.marker for look in by_length}) == 8


def test_every_split_and_stride_is_a_panel(tmp_path):
    cells = [
        evaluation_cell(subset=s, stride=n)
        for s, n in itertools.product(("valid", "test"), (1, 128))
    ]
    path = tmp_path / "panels.svg"
    draw(document(*cells), path)
    text = path.read_text()
    for subset, inference in itertools.product(("valid", "test"), ("S=1", "non-overlapping")):
        assert f"<!-- {subset}, {inference} -->" in text


def test_readable_ticks_keep_first_and_last():
    sweep = [512, 513, 522, 612, 712, 812, 1012, 1512, 2512, 5512, 10512, 15512]
    ticks = style._readable(sweep)
    assert ticks[0] == 512 and ticks[-1] == 15512 and 4 < len(ticks) <= 9
    assert all(after / before > 1.3 for before, after in itertools.pairwise(ticks))
    assert style._readable([64]) == [64]
    for lowest, highest in ((17, 50), (17, 460), (5, 5e6)):
        ticks = style._round_values(lowest, highest)
        assert 3 <= len(ticks) <= 9 and lowest <= min(ticks) and max(ticks) <= highest


def test_variants_of_one_run_are_told_apart():
    cells = [evaluation_cell(length=n, checkpoint=c) for c in ("a", "b", "c") for n in (64, 128)]
    with style.figure("title") as (_, [axes]):
        perplexity_by_length.plot_series(axes, series(evaluation_points(document(*cells))))
    assert len({line.get_marker() for line in axes.get_lines()}) == 3


def test_a_dense_sweep_has_few_markers_and_all_its_points():
    lengths = list(range(512, 15512, 100))
    points = [Point("alibi", 512, n, n, "valid", 20.0) for n in lengths]
    with style.figure("title") as (_, [axes]):
        perplexity_by_length.plot_series(axes, [Series("alibi", 512, points)])
    [line] = axes.get_lines()
    assert list(line.get_xdata()) == lengths
    assert 10 < len(line.get_markevery()) <= 31 and line.get_markevery()[-1] == len(lengths) - 1


def test_a_run_that_failed_is_written_at_the_end_of_its_line():
    points = [
        Point("t5", 512, 512, 512, "valid", 19.65),
        Point("t5", 512, 13512, 13512, "valid", None, status="OOM"),
    ]
    with style.figure("title") as (_, [axes]):
        perplexity_by_length.plot_series(axes, [Series("t5", 512, points)])
    assert [line.get_xydata().tolist() for line in axes.get_lines()] == [[[512, 19.65]]]
    assert [text.get_text() for text in axes.texts] == ["OOM"]


def test_legend_stands_beside_the_panels():
    with style.figure("title", 2) as (drawn, panels):
        for panel in panels:
            panel.plot([1, 2], [1, 2], label="a label that is rather long, longer than the panel")
        before = drawn.get_size_inches()[0]
        style.legend(drawn, panels)
        drawn.canvas.draw()
        [legend] = drawn.legends
        assert len(legend.get_texts()) == 1  # the same label in both panels
        beside = legend.get_window_extent().x0
        assert all(panel.get_window_extent().x1 < beside for panel in panels)
        assert drawn.get_size_inches()[0] > before + 2


def test_nothing_to_draw_is_said(tmp_path):
    with pytest.raises(BadInput, match="no cells"):
        draw(document(), tmp_path / "a.png")
    assert not list(tmp_path.iterdir())


def test_seeds_make_one_line_with_a_band_of_one_standard_deviation():
    seeds = [
        document(evaluation_cell(perplexity + shift, length=length), seed=seed)
        for seed, shift in ((1, 0.0), (2, 2.0))
        for length, perplexity in ((64, 20.0), (128, 18.0))
    ]
    with style.figure("title") as (_, [axes]):
        perplexity_by_length.plot_series(axes, series(evaluation_points(*seeds)))
    [line] = axes.get_lines()
    assert line.get_xydata().tolist() == [[64, 21.0], [128, 19.0]]
    [band] = axes.collections
    corners = band.get_paths()[0].vertices[:, 1]
    assert corners.min() == pytest.approx(19.0 - 2**0.5)
    assert corners.max() == pytest.approx(21.0 + 2**0.5)


def test_the_papers_methods_have_okabe_and_itos_colours():
    expected = {
        **{"alibi": "#0072B2", "sinusoidal": "#D55E00", "rotary": "#009E73", "t5": "#E69F00"},
        **{"learned": "#CC79A7", "none": "#000000", "transformer_xl": "#56B4E9"},
    }
    assert {method: style.method_look(method).color for method in expected} == expected


def test_a_diverged_model_does_not_press_the_others_together():
    perplexities = {"alibi": (20.0, 19.0), "sinusoidal": (21.0, 5.9e9)}
    cells = [
        evaluation_cell(perplexity, position_method=method, length=length)
        for method, both in perplexities.items()
        for length, perplexity in zip((64, 128), both)
    ]
    with style.figure("title") as (_, [axes]):
        perplexity_by_length.plot_series(axes, series(evaluation_points(document(*cells))))
    assert axes.get_ylim()[1] < 30
    assert [text.get_text() for text in axes.texts] == ["5.90e+09 ↑"]


def test_panels_of_single_points_are_left_out(tmp_path):
    cells = [evaluation_cell(20.0, length=n) for n in (64, 128)]
    cells.append(evaluation_cell(21.0, length=64, stride=1))
    draw(document(*cells), tmp_path / "figure.svg")
    text = (tmp_path / "figure.svg").read_text()
    assert "valid, non-overlapping" in text and "S=1" not in text


def test_a_method_of_a_plugin_stays_behind_the_one_it_was_asked_for_after():
    def order(*methods):
        points = [Point(method, 64, length=64, stride=64, subset="valid") for method in methods]
        return [line.position_method for line in series(points)]

    assert order("sinusoidal", "mine", "alibi", "other") == ["alibi", "other", "sinusoidal", "mine"]
    assert order("mine", "alibi") == ["mine", "alibi"]
