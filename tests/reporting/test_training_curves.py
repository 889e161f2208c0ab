from results_documents import cells_of, document

from alibi_fairseq.reporting import own_results
from alibi_fairseq.reporting.collect import collect
from alibi_fairseq.reporting.report import write_report
from alibi_fairseq.results.points import document_points
from alibi_fairseq.results.schema import save_document


def training():
    base = {"position_method": "alibi", "train_length": 64}
    return document(
        base | {"updates": 200, "subset": "valid", "loss_bits": 5.0, "tokens_per_second": 1234.5},
        base | {"updates": 100, "subset": "valid", "loss_bits": 6.0},
        base | {"updates": 200, "subset": "train", "loss_bits": 4.0, "gpu_hours": 0.25},
        kind="training",
    )


def test_training_table_shows_where_each_run_ended():
    rows = cells_of(own_results.training_table(document_points(training())))
    assert [row[1:] for row in rows[1:]] == [
        ["train", "200", "4.000", "16.00", "–", "–", "0.25"],
        ["valid", "200", "5.000", "32.00", "1234", "–", "–"],
    ]


def test_a_training_is_drawn(tmp_path):
    own_results.draw_training(document_points(training()), "Training", tmp_path / "training.png")
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")


def test_runs_on_the_same_text_share_a_table_and_a_figure(tmp_path):
    for method, loss in (("alibi", 4.0), ("sinusoidal", 5.0)):
        base = {"position_method": method, "train_length": 64, "subset": "valid"}
        cells = [base | {"updates": updates, "loss_bits": loss} for updates in (100, 200)]
        save_document(document(*cells, kind="training"), tmp_path / f"{method}.json")
    page = write_report(collect([tmp_path]), tmp_path / "report").read_text()
    (table,) = (tmp_path / "report" / "tables").glob("*training*.md")
    assert [row[0] for row in cells_of(table.read_text())[1:]] == [
        "ALiBi, L=64",
        "Sinusoidal, L=64",
    ]
    assert page.count("training](figures/") == 1
