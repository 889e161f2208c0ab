import hashlib
import itertools

import pytest
from results_documents import document, evaluation_cell

from alibi_fairseq.errors import BadInput
from alibi_fairseq.reporting import figures, style
from alibi_fairseq.reporting.points import METHOD_NAMES, evaluation_points, runs


def two_methods():
    return document(
        *(
            evaluation_cell(perplexity, position_method=method, length=length)
            for method, perplexities in (("alibi", (60, 58)), ("sinusoidal", (61, 400)))
            for length, perplexity in zip((64, 128), perplexities, strict=True)
        )
    )


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_figure_is_written_and_the_same_each_time(tmp_path, suffix, start):
    hashes = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}{suffix}"
        figures.perplexity_by_length(two_methods(), path)
        content = path.read_bytes()
        assert content.startswith(start) and len(content) > 5000
        hashes.append(hashlib.sha256(content).hexdigest())
    assert hashes[0] == hashes[1]
    assert len(list(tmp_path.iterdir())) == 2  # no temporary file stays


def test_lines_are_the_measured_points_with_units_on_the_axes():
    drawn = runs(evaluation_points(two_methods()))
    with style.figure("title") as (_, [axes]):
        figures.plot_lengths(axes, drawn)
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
    figures.perplexity_by_length(document(*cells), path)
    text = path.read_text()
    for subset, inference in itertools.product(("valid", "test"), ("S=1", "non-overlapping")):
        assert f"demo, {subset}, {inference}" in text


def test_readable_ticks_keep_first_and_last():
    assert style._readable([512, 513, 522, 612, 712, 1512, 15512]) == [512, 712, 1512, 15512]
    assert style._readable([64]) == [64]
    for lowest, highest in ((17, 50), (17, 460), (5, 5e6)):
        ticks = style._round_values(lowest, highest)
        assert 3 <= len(ticks) <= 9 and lowest <= min(ticks) and max(ticks) <= highest


def test_nothing_to_draw_is_said(tmp_path):
    with pytest.raises(BadInput, match="no cells"):
        figures.perplexity_by_length(document(), tmp_path / "a.png")
    assert not list(tmp_path.iterdir())
