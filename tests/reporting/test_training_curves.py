from results_documents import cells_of, document

from alibi_fairseq.reporting import training_curves


def training():
    base = {"position_method": "alibi", "train_length": 64}
    return document(
        base | {"updates": 200, "subset": "valid", "loss_bits": 5.0, "tokens_per_second": 1234.5},
        base | {"updates": 100, "subset": "valid", "loss_bits": 6.0},
        base | {"updates": 200, "subset": "train", "loss_bits": 4.0, "gpu_hours": 0.25},
        kind="training",
    )


def test_training_table_shows_where_each_run_ended():
    rows = cells_of(training_curves.training_table(training()))
    assert [row[1:] for row in rows[1:]] == [
        ["train", "200", "4.000", "16.00", "–", "–", "0.25"],
        ["valid", "200", "5.000", "32.00", "1234", "–", "–"],
    ]


def test_a_training_is_drawn(tmp_path):
    training_curves.draw_training(training(), tmp_path / "training.png")
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")
