"""Tables and figures of the loss by position."""

from __future__ import annotations

import math

import pytest
from figure_texts import figure_texts
from results_documents import Record, cells_of, changed, evaluation_record, results_of

from alibi_fairseq.reporting.figures_by_position import (
    ERRORS,
    draw_positions,
    drawable,
    error_explanation,
    position_line,
)
from alibi_fairseq.reporting.line_styles import method_style
from alibi_fairseq.reporting.loss_by_position import longest_windows, position_tables
from alibi_fairseq.reporting.markdown import to_markdown
from alibi_fairseq.reporting.rows import build_rows

ENDS = [1, 2, 3, 4, 6]
TOKENS = [200, 200, 200, 50, 400]


def record_of(*losses: float, length: int = 6, **changes) -> Record:
    """Return a measurement with these mean losses by position, in bits per token."""
    bits = [tokens * loss for tokens, loss in zip(TOKENS, losses, strict=True)]
    loss_bits = math.fsum(bits) / sum(TOKENS)
    values = {
        "tokens": sum(TOKENS),
        "train_length": 3,
        "length": length,
        "position_ends": ENDS,
        "position_tokens": TOKENS,
        "position_bits": bits,
        "loss_bits": loss_bits,
    }
    return evaluation_record(2**loss_bits, **{**values, **changes})


def position_table(results) -> str:
    """Format the tables of the loss by position."""
    return to_markdown(position_tables(results))


ALIBI = record_of(9, 8, 7, 6, 5)


def test_table_has_row_per_bucket_and_column_per_model():
    sinusoidal = record_of(9, 8, 7, 6.25, 11, method="sinusoidal")
    table = position_table(results_of(sinusoidal, ALIBI))
    assert table.startswith(
        "All models: demo; fp32; learning rate 0.25; a single seed.\n\n"
        "Bits per token by position on valid, non-overlapping, windows of 6:\n"
    )
    assert cells_of(table) == [
        ["position", "tokens", "ALiBi, L=3", "Sinusoidal, L=3"],
        ["1", "200", "9.000", "9.000"],
        ["2", "200", "8.000", "8.000"],
        ["3", "200", "7.000", "7.000"],
        ["4", "50", "6.000", "6.250"],
        ["5–6", "400", "5.000", "11.000"],
    ]


def test_table_states_the_seeds_once_unless_models_have_different_numbers():
    seeds = [record_of(9, 8, 7, 6, 5 + seed, seed=seed) for seed in (1, 2)]
    (table,) = position_tables(results_of(*seeds))
    assert table.cells[-1] == ["5–6", "400", "6.500 ± 0.707"]
    assert table.conditions.endswith("mean and standard deviation of 2 seeds")
    others = [record_of(9, 8, 7, 6, 5, method="none", seed=seed) for seed in (1, 2, 3)]
    (table,) = position_tables(results_of(*seeds, *others))
    assert table.cells[-1][2:] == ["6.500 ± 0.707 (2 seeds)", "5.000 ± 0.000 (3 seeds)"]


def test_table_has_longest_non_overlapping_windows_only():
    shorter = record_of(9, 8, 7, 6, 1, length=4)
    sliding = record_of(9, 8, 7, 6, 2, length=12, stride=1)
    past_end = record_of(9, 8, 7, 6, 3, length=24, longest_window=12)
    earlier_version = evaluation_record(length=48, tokens=1050)
    results = results_of(shorter, sliding, ALIBI, past_end, earlier_version)
    assert [result.case.length for result in longest_windows(results)] == [6]
    assert position_table(results) == position_table(results_of(ALIBI))
    assert position_table(results_of(earlier_version)) == ""


def test_moved_checkpoint_has_one_table():
    shorter = record_of(9, 8, 7, 6, 1, length=4, checkpoint="runs/last.pt")
    longer = record_of(9, 8, 7, 6, 5, checkpoint="/moved/runs/last.pt")
    sha256 = "d" * 64
    results = results_of(
        *[changed(record, checkpoint_sha256=sha256) for record in (shorter, longer)]
    )
    assert [result.case.length for result in longest_windows(results)] == [6]


def test_lengths_and_splits_have_separate_tables():
    longer = record_of(9, 8, 7, 6, 5, length=12, train_length=6)
    test = record_of(9, 8, 7, 6, 4, subset="test")
    table = position_table(results_of(ALIBI, longer, test))
    titles = [line.split(" on ")[1] for line in table.splitlines() if line.startswith("Bits")]
    assert titles == [
        "valid, non-overlapping, windows of 6:",
        "valid, non-overlapping, windows of 12:",
        "test, non-overlapping, windows of 6:",
    ]


def test_lengths_of_windows_have_separate_panels(tmp_path):
    longer = record_of(9, 8, 7, 6, 5, length=12, train_length=6)
    draw_positions(results_of(ALIBI, longer), "Loss", tmp_path / "figure.svg")
    texts = figure_texts(tmp_path / "figure.svg")
    for length in (6, 12):
        assert any(f"Windows of {length} tokens" in text for text in texts)


def test_buckets_without_tokens_are_omitted():
    tokens = [0, 0, 0, 650, 400]
    record = record_of(0, 0, 0, 78, 5, position_tokens=tokens)
    assert [row[0] for row in cells_of(position_table(results_of(record)))[1:]] == ["4", "5–6"]


def test_seeds_are_averaged_with_spread():
    seeds = [record_of(9, 8, 7, 6, 5.0, seed=1), record_of(9, 8, 7, 6, 5.5, seed=2)]
    results = results_of(*seeds)
    spread = math.sqrt(0.125)
    assert cells_of(position_table(results))[-1][-1] == f"5.250 ± {spread:.3f}"
    (model,) = build_rows(results)
    line = position_line(model)
    assert line.y == pytest.approx([9, 8, 7, 5.25])
    assert line.spread == pytest.approx([0, 0, 0, spread])
    lacking = {"position_ends": [], "position_tokens": [], "position_bits": []}
    seeds[1] = changed(seeds[1], **lacking)
    (model,) = build_rows(results_of(*seeds))
    assert model.points[0].position_ends == ()


def test_line_has_positions_of_buckets_with_enough_tokens():
    (model,) = build_rows(results_of(ALIBI))
    line = position_line(model)
    assert line.x == pytest.approx([1, 2, 3, math.sqrt(5 * 6)])
    assert line.y == [9, 8, 7, 5]
    assert line.ranges == [(1, 1), (2, 2), (3, 3), (5, 6)]
    assert line.uncertain == [True] * 4
    assert line.style == method_style("ALiBi")
    few = [tokens // 5 for tokens in TOKENS]
    bits = [bits / 5 for bits in ALIBI.position_bits]
    changes = {"position_tokens": few, "position_bits": bits, "tokens": sum(few)}
    short_text = changed(ALIBI, **changes)
    assert drawable(results_of(ALIBI))
    assert not drawable(results_of(short_text))


def test_points_have_standard_errors():
    """Seeds share the windows, so the error of the mean is the mean of the errors."""
    errors = [0.5, 0.25, None, 0.125, 0.125]
    seed1 = record_of(9, 8, 7, 6, 5, seed=1, position_errors=errors)
    (model,) = build_rows(results_of(seed1))
    assert position_line(model).errors == [0.5, 0.25, None, 0.125]
    seed2 = record_of(9, 8, 7, 6, 5, seed=2, position_errors=[0.25, 0.25, None, 0.125, 0.375])
    (model,) = build_rows(results_of(seed1, seed2))
    assert position_line(model).errors == [0.375, 0.25, None, 0.25]
    earlier_version = record_of(9, 8, 7, 6, 5, seed=3)
    (model,) = build_rows(results_of(seed1, earlier_version))
    assert position_line(model).errors == []


def test_caption_explains_standard_errors_only_if_there_are_any():
    with_errors = record_of(9, 8, 7, 6, 5, position_errors=[0.5] * 5)
    assert error_explanation(results_of(ALIBI)) == ""
    assert error_explanation(results_of(with_errors)) == ERRORS
    mixed = error_explanation(results_of(with_errors, ALIBI))
    assert mixed == f"{ERRORS} Results of earlier versions have none."


def test_points_of_many_tokens_are_certain():
    many = [tokens * 10 for tokens in TOKENS]
    bits = [10 * bits for bits in ALIBI.position_bits]
    changes = {"position_tokens": many, "position_bits": bits, "tokens": sum(many)}
    record = changed(ALIBI, **changes)
    (model,) = build_rows(results_of(record))
    line = position_line(model)
    assert line.uncertain == [10 * tokens < 1000 for tokens in TOKENS]
    assert not line.uncertain[-1]


def test_figure_has_line_per_model_and_units(tmp_path):
    errors = [0.5] * 5
    sinusoidal = record_of(9, 8, 7, 6, 11, method="sinusoidal", position_errors=errors)
    path = tmp_path / "figure.svg"
    draw_positions(results_of(ALIBI, sinusoidal), "Loss by position", path)
    texts = figure_texts(path)
    for text in ("ALiBi", "Sinusoidal", "training length", "Loss by position"):
        assert text in texts
    assert "Position in the window (tokens)" in texts
    assert "Loss (bits per token)" in texts
    caption = " ".join(texts)  # broken into lines
    assert "Hollow points rest on" in caption
    assert "one standard error" in caption
