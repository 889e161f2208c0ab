"""Figures: reproducible files, styles, axes, and annotations."""

import itertools

import numpy as np
import pytest
from figure_texts import figure_texts
from results_documents import document, evaluation_record, results_of

from alibi_fairseq.paper.published import PrintedMeasurement
from alibi_fairseq.positions.display_names import KNOWN_LABELS
from alibi_fairseq.positions.spec import MethodSpec
from alibi_fairseq.reporting import plots
from alibi_fairseq.reporting.common_conditions import figure_conditions
from alibi_fairseq.reporting.figures_by_length import draw_lengths, length_line
from alibi_fairseq.reporting.line_styles import method_style, variant_style
from alibi_fairseq.reporting.row import Row
from alibi_fairseq.reporting.rows import build_rows
from alibi_fairseq.results.case import Case


def draw(measured, path):
    """Draw a results file."""
    draw_lengths(measured.results, "demo", path)


def axes_of(*lines):
    """Return the axes of a figure with one panel."""
    figure = plots.compose("title", [plots.Panel("panel", lines)])
    return figure.axes[0]


def axes_of_results(*results_files):
    """Return the axes of a figure with a line per model of results files."""
    results = []
    for results_file in results_files:
        results += results_file.results
    return axes_of(*[length_line(row) for row in build_rows(results)])


def two_methods(**perplexities):
    """Return results of methods at 64 and 128 tokens.

    Args:
        perplexities: the two perplexities of each method.
    """
    records = []
    for method, (short, long) in perplexities.items():
        records.append(evaluation_record(short, method=method, length=64))
        records.append(evaluation_record(long, method=method, length=128))
    return document(*records)


MEASURED = two_methods(alibi=(60, 58), sinusoidal=(61, 400))


@pytest.mark.parametrize(
    ("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")]
)
def test_figure_files_are_reproducible(tmp_path, suffix, start):
    first = tmp_path / f"first{suffix}"
    second = tmp_path / f"second{suffix}"
    draw(MEASURED, first)
    draw(MEASURED, second)
    content = first.read_bytes()
    assert content == second.read_bytes()
    assert content.startswith(start)
    assert len(content) > 5000


def test_lines_have_measured_points_and_axes_units():
    axes = axes_of_results(MEASURED)
    lines = {line.get_label(): line for line in axes.get_lines()}
    points = {label: line.get_xydata() for label, line in lines.items()}
    assert points["ALiBi, L=64"] == pytest.approx(np.array([[64, 60], [128, 58]]))
    assert points["Sinusoidal, L=64"] == pytest.approx(np.array([[64, 61], [128, 400]]))
    assert "tokens" in axes.get_xlabel()
    assert "Perplexity" in axes.get_ylabel()
    assert axes.get_yscale() == "log"  # 58 to 400 would flatten ALiBi's line
    assert axes.get_ylabel().endswith(", log scale")
    assert axes.get_ylim()[0] < 58
    assert axes.get_ylim()[1] > 400


def test_methods_differ_without_color():
    styles = [method_style(method) for method in KNOWN_LABELS]
    assert len({style.color for style in styles}) == len(KNOWN_LABELS)
    assert len({style.marker for style in styles}) == len(KNOWN_LABELS)


def test_unknown_methods_have_different_colors():
    styles = [method_style(method) for method in ("mine0", "mine1", "mine2")]
    assert len({style.color for style in styles}) == 3


def test_training_lengths_of_a_method_differ_in_color_and_size_only():
    lengths = range(8)
    styles = [method_style("ALiBi", length, lengths) for length in lengths]
    assert len({style.color for style in styles}) == 8
    sizes = [style.size for style in styles]
    assert sizes == sorted(set(sizes))
    plain = method_style("ALiBi")
    for style in styles:
        assert (style.marker, style.linestyle) == (plain.marker, plain.linestyle)


def test_variants_keep_marker_of_their_method():
    plain = method_style("ALiBi")
    variants = [variant_style(plain, index) for index in range(4)]
    assert variants[0] == plain
    assert {style.marker for style in variants} == {plain.marker}
    assert len({(style.color, style.linestyle) for style in variants}) == 4


def records_by(**values):
    """Return a result record for each combination of values."""
    records = []
    for combination in itertools.product(*values.values()):
        settings = dict(zip(values, combination))
        records.append(evaluation_record(**settings))
    return records


TWO = {"train_length": (32, 64), "length": (64, 128)}


@pytest.mark.parametrize(
    ("records", "shown", "hidden"),
    [
        (
            records_by(subset=("valid", "test"), stride=(1, 128)),
            [
                "Validation split, sliding windows with S = 1",
                "Validation split, non-overlapping windows",
                "Test split, sliding windows with S = 1",
                "Test split, non-overlapping windows",
            ],
            [],
        ),
        # The panels give the length, so the lines don't.
        (
            records_by(method=("alibi", "t5"), **TWO),
            [
                "demo, validation split, non-overlapping windows; a single seed",
                "Trained at L = 32",
                "Trained at L = 64",
            ],
            ["T5 bias, L=64"],
        ),
        (
            records_by(**TWO),
            [
                "demo, validation split, non-overlapping windows; a single seed",
                "ALiBi, L=32",
                "ALiBi, L=64",
            ],
            ["ALiBi"],
        ),
    ],
)
def test_panels_separate_splits_strides_and_lengths(tmp_path, records, shown, hidden):
    draw(document(*records), tmp_path / "panels.svg")
    texts = [text.replace("\xa0", " ") for text in figure_texts(tmp_path / "panels.svg")]
    for name in shown:
        assert " ".join(texts).count(name) == 1, name
    for name in hidden:
        assert name not in texts, name


def test_ticks_are_round():
    sweep = [100, 512, 513, 522, 612, 712, 812, 1012, 1512, 2512, 5512, 10512, 15512]
    line = plots.PlotLine("a", sweep, [20.0] * len(sweep), method_style("ALiBi"))
    ticks = [int(tick) for tick in axes_of(line).get_xticks() if 100 <= tick <= 15512]
    assert ticks == [128, 256, 512, 1024, 2048, 4096, 8192]
    line = plots.PlotLine("a", [96, 120], [20.0, 19.0], method_style("ALiBi"))
    assert axes_of(line).get_xticks().tolist() == [96, 120]  # no power of two in between


def printed(length: int, **values) -> PrintedMeasurement:
    """Return a measurement of the paper's T5 bias model."""
    case = Case("text", None, "valid", length, length)
    model = {"corpus": "wikitext-103", "method": MethodSpec.plain("t5"), "train_length": 512}
    return PrintedMeasurement(case=case, **model, **values)


def test_failed_evaluation_is_noted_at_line_end():
    measurements = [
        printed(length=512, printed=19.65),
        printed(length=13512, printed=None, status="OOM"),
    ]
    axes = axes_of(length_line(Row("T5 bias, L=512", "T5 bias", 512, measurements)))
    assert [line.get_xydata().tolist() for line in axes.get_lines()] == [[[512, 19.65]]]
    assert [text.get_text() for text in axes.texts] == ["T5 bias, L=512, OOM"]


def test_seeds_have_one_line_with_standard_deviation_band():
    seeds = [
        document(evaluation_record(20.0, length=64), seed=1),
        document(evaluation_record(18.0, length=128), seed=1),
        document(evaluation_record(22.0, length=64), seed=2),
        document(evaluation_record(20.0, length=128), seed=2),
    ]
    axes = axes_of_results(*seeds)
    [line] = axes.get_lines()
    assert line.get_xydata() == pytest.approx(np.array([[64, 21.0], [128, 19.0]]))
    [band] = axes.collections
    corners = band.get_paths()[0].vertices[:, 1]
    assert corners.min() == pytest.approx(19.0 - 2**0.5)
    assert corners.max() == pytest.approx(21.0 + 2**0.5)


def test_conditions_list_numbers_of_seeds():
    records = []
    for method, seeds in (("alibi", 3), ("rotary", 2), ("t5", 1)):
        for seed in range(seeds):
            records.append(evaluation_record(20.0, method=method, seed=seed))
    text = "mean and standard deviation of 2 or 3 seeds; a single seed for some models"
    assert figure_conditions(build_rows(results_of(*records))).endswith(text)


def test_conditions_have_only_what_is_common():
    facts = {"layers": 3, "width": 128}
    records = [
        evaluation_record(train_length=32, updates=100, **facts),
        evaluation_record(train_length=64, updates=200, **facts),
    ]
    shown = figure_conditions(build_rows(results_of(*records)), ["test split"])
    assert shown == "demo, test split; 3 layers of width 128; a single seed"
    shown = figure_conditions(build_rows(results_of(records[1])))
    assert shown.replace("\xa0", " ") == (
        "demo; trained at L = 64, 3 layers of width 128, 200 updates; a single seed"
    )


def test_panels_share_the_range_of_perplexities():
    panels = []
    for low, high in ((20.0, 25.0), (22.0, 29.0), (24.0, 70.0)):
        line = plots.PlotLine("ALiBi", [64, 128], [low, high], method_style("ALiBi"))
        panels.append(plots.Panel("", [line]))
    for compared, scale in ((panels[:2], "linear"), (panels, "log")):
        figure = plots.compose("", compared, same_y=True)
        assert {axes.get_yscale() for axes in figure.axes} == {scale}
        (limits,) = {axes.get_ylim() for axes in figure.axes}
        assert limits[0] < 20
        assert limits[1] > max(panel.lines[0].y[1] for panel in compared)


@pytest.mark.ci
def test_more_lines_than_labels_fit_have_a_legend():
    def figure_with(count):
        lines = []
        for number in range(count):
            method = f"Method {number}"
            y = [20.0 + number, 21.0 + number]
            lines.append(plots.PlotLine(method, [64, 128], y, method_style(method)))
        return plots.compose("", [plots.Panel("", lines)])

    assert not figure_with(16).legends
    assert len(figure_with(16).axes[0].texts) == 16
    assert len(figure_with(17).legends[0].texts) == 17
    assert not figure_with(17).axes[0].texts


def test_diverged_model_is_cut_off():
    measured = two_methods(alibi=(20.0, 19.0), sinusoidal=(21.0, 5.9e9))
    axes = axes_of_results(measured)
    assert axes.get_ylim()[1] < 30
    texts = [text.get_text() for text in axes.texts]
    assert texts == ["ALiBi, L=64", "Sinusoidal, L=64\n↑ to 5.9e+09"]


def test_axis_does_not_magnify_noise():
    line = plots.PlotLine("a", [64, 128], [646.0, 654.0], method_style("ALiBi"))
    low, high = axes_of(line).get_ylim()
    assert low < 646
    assert high > 654
    assert high - low > 10 * (654 - 646)


def test_figure_has_title_conditions_and_caption(tmp_path):
    facts = {"updates": 5000, "vocabulary": 40}
    short = evaluation_record(39.0, length=64, **facts)
    long = evaluation_record(39.0, length=128, **facts)
    draw(document(short, long), tmp_path / "figure.svg")
    texts = figure_texts(tmp_path / "figure.svg")
    lines = " ".join(texts)
    for part in ("demo", "5,000 updates", "a single seed", "Near chance: ALiBi, L=64"):
        assert part in lines
    assert texts.count("training length") == 1


def test_pdf_for_a_paper_has_neither_title_nor_caption(tmp_path, monkeypatch):
    figures = {}
    monkeypatch.setattr(plots, "save", lambda figure, *paths: figures.update({paths: figure}))
    panel = plots.Panel("panel", [plots.PlotLine("a", [64], [20.0], method_style("ALiBi"))])
    png, pdf = tmp_path / "figure.png", tmp_path / "figure.pdf"
    plots.draw("A title", [panel], png, pdf, subtitle="A subtitle", caption="A caption")
    texts = {}
    for paths, figure in figures.items():
        shown = {text.get_text() for text in figure.texts} | {figure.get_supxlabel()}
        texts[paths] = shown - {""}
    assert texts == {(png,): {"A title", "A subtitle", "A caption"}, (pdf,): set()}
