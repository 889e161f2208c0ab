import shutil

from results_documents import cells_of, document, evaluation_cell

from alibi_fairseq.reporting import own_results
from alibi_fairseq.reporting.collect import collect
from alibi_fairseq.reporting.report import write_report
from alibi_fairseq.results.points import document_points
from alibi_fairseq.results.schema import save_document


def test_stride_table_compares_what_was_measured_in_both_ways():
    points = document_points(
        document(
            evaluation_cell(20.0, length=64),
            evaluation_cell(19.0, length=128),
            evaluation_cell(17.5, length=64, stride=1),
            evaluation_cell(18.0, length=128, stride=1),
            evaluation_cell(18.5, length=128, stride=16),
            evaluation_cell(18.2, length=256),
        )
    )
    assert cells_of(own_results.stride_table(points)) == [
        ["trained", "evaluated at", "non-overlapping", "S=1", "gain", "S=16", "gain"],
        ["ALiBi, L=64", "64", "20.00", "17.50", "+2.50", "missing", "–"],
        ["ALiBi, L=64", "128", "19.00", "18.00", "+1.00", "18.50", "+0.50"],
    ]
    assert own_results.stride_table(p for p in points if p.nonoverlapping) == ""


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
    assert cells_of(own_results.position_table(document_points(measured))) == [
        [
            "position in the window",
            "ALiBi, L=64, evaluated at 128",
            "ALiBi, L=64, evaluated at 64",
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
    points = document_points(measured)
    lines = own_results.position_lines(points)
    assert [line.label for line in lines] == ["ALiBi, L=64 (a.pt)", "ALiBi, L=64 (b.pt)"]
    assert own_results.shared_window(points) == [*("valid", "evaluated at 128", "non-overlapping")]


def test_positions_are_drawn(tmp_path):
    positions = document(position_cell(0, 1, 8.0), position_cell(1, 128, 4.0), kind="position_loss")
    own_results.draw_positions(document_points(positions), "a title", tmp_path / "positions.svg")
    text = (tmp_path / "positions.svg").read_text()
    assert "<!-- a title -->" in text
    assert "Loss (bits per token)" in text and "Context in the window (tokens)" in text


def test_seeds_make_one_line_with_their_spread():
    measured = document(
        *(position_cell(0, 1, 8.0 + seed, seed=seed, checkpoint=f"{seed}.pt") for seed in (1, 2)),
        position_cell(0, 1, 4.0, position_method="none"),
        kind="position_loss",
    )
    assert cells_of(own_results.position_table(document_points(measured))) == [
        ["position in the window", "ALiBi, L=64", "No positions, L=64"],
        ["0", "9.500 ± 0.707", "4.000"],
    ]


def test_files_about_the_same_text_share_a_table_and_a_figure(tmp_path):
    cells = {
        "one": position_cell(0, 1, 8.0, seed=1, checkpoint="1.pt"),
        "two": position_cell(0, 1, 9.0, seed=2, checkpoint="2.pt"),
        "none": position_cell(0, 1, 4.0, position_method="none"),
    }
    for name, cell in cells.items():
        save_document(document(cell, kind="position_loss"), tmp_path / f"{name}.json")
    shutil.copyfile(tmp_path / "two.json", tmp_path / "two-again.json")
    page = write_report(collect([tmp_path]), tmp_path / "report")
    (table,) = (tmp_path / "report" / "tables").glob("*positions*.md")
    assert cells_of(table.read_text()) == [
        ["position in the window", "ALiBi, L=64", "No positions, L=64"],
        ["0", "8.500 ± 0.707", "4.000"],
    ]
    assert page.read_text().count("by position in the window](figures/") == 1
