from results_documents import cells_of, document, evaluation_cell

from alibi_fairseq.reporting import context_tables, more_figures, training_tables
from alibi_fairseq.results.points import evaluation_points


def test_stride_table_compares_what_was_measured_in_both_ways():
    points = evaluation_points(
        document(
            evaluation_cell(20.0, length=64),
            evaluation_cell(19.0, length=128),
            evaluation_cell(17.5, length=64, stride=1),
            evaluation_cell(18.0, length=128, stride=1),
            evaluation_cell(18.5, length=128, stride=16),
            evaluation_cell(18.2, length=256),
        )
    )
    assert cells_of(context_tables.stride_table(points)) == [
        ["trained", "evaluated at", "non-overlapping", "S=1", "gain", "S=16", "gain"],
        ["ALiBi, L=64", "64", "20.00", "17.50", "+2.50", "missing", "–"],
        ["ALiBi, L=64", "128", "19.00", "18.00", "+1.00", "18.50", "+0.50"],
    ]
    assert context_tables.stride_table(p for p in points if p.nonoverlapping) == ""


def position_cell(begin, end, loss, **changes):
    cell = evaluation_cell(**changes)
    del cell["perplexity"]
    return cell | {"position_from": begin, "position_to": end, "loss_bits": loss}


def test_position_table_has_a_column_for_each_evaluation():
    measured = document(
        position_cell(1, 128, 4.0),
        position_cell(0, 1, 8.0),
        position_cell(0, 1, 9.0, length=64),
        kind="position_loss",
    )
    assert cells_of(context_tables.position_table(measured)) == [
        [
            "position in the window",
            "ALiBi, L=64, evaluated at 128, non-overlapping",
            "ALiBi, L=64, evaluated at 64, non-overlapping",
        ],
        ["0", "8.000", "9.000"],
        ["1–127", "4.000", "–"],
    ]


def test_runs_that_differ_do_not_share_a_line():
    measured = document(
        position_cell(0, 1, 8.0, checkpoint="a.pt"),
        position_cell(0, 1, 9.0, checkpoint="b.pt"),
        kind="position_loss",
    )
    series = context_tables.position_series(measured)
    assert [label[-17:] for label in series] == ["(checkpoint a.pt)", "(checkpoint b.pt)"]


def test_positions_and_training_are_drawn(tmp_path):
    positions = document(position_cell(0, 1, 8.0), position_cell(1, 128, 4.0), kind="position_loss")
    more_figures.draw_positions(positions, tmp_path / "positions.svg")
    text = (tmp_path / "positions.svg").read_text()
    assert "Loss (bits per token)" in text and "Context in the window (tokens)" in text
    more_figures.draw_training(training(), tmp_path / "training.png")
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")


def training():
    base = {"position_method": "alibi", "train_length": 64}
    return document(
        base | {"updates": 200, "subset": "valid", "loss_bits": 5.0, "tokens_per_second": 1234.5},
        base | {"updates": 100, "subset": "valid", "loss_bits": 6.0},
        base | {"updates": 200, "subset": "train", "loss_bits": 4.0, "gpu_hours": 0.25},
        kind="training",
    )


def test_training_table_shows_where_each_run_ended():
    rows = cells_of(training_tables.training_table(training()))
    assert [row[1:] for row in rows[1:]] == [
        ["train", "200", "4.000", "16.00", "–", "–", "0.25"],
        ["valid", "200", "5.000", "32.00", "1234", "–", "–"],
    ]
