import csv
import io

import pytest
from results_documents import cells_of, document, evaluation_cell

from alibi_fairseq.reporting import markdown, own_results
from alibi_fairseq.results.points import document_points


def length_table(measured):
    return own_results.length_table(document_points(measured))


def test_markdown_columns_line_up():
    text = markdown.table(["name", "x"], [["a", "1.00"], ["longer", "–"]])
    assert text == (
        "| name   |    x |\n"
        "| ------ | ---: |\n"
        "| a      | 1.00 |\n"
        "| longer |    – |\n"
    )  # fmt: skip
    with pytest.raises(ValueError, match="under 2 headers"):
        markdown.table(["name", "x"], [["a"]])


def test_numbers_are_shown_as_the_paper_shows_them():
    assert [markdown.perplexity(v) for v in (18.3951, 999.994, 1000.4, 2.5e7)] == [
        "18.40",
        "999.99",
        "1000",
        "2.50e+07",
    ]
    assert [markdown.difference(v) for v in (0.034, -1.2, 12345.0)] == [
        "+0.03",
        "-1.20",
        "+1.2e+04",
    ]
    assert [markdown.thousands(v) for v in (28300, 999.6, 3.2)] == ["28.3k", "1000", "3"]


def test_length_table_has_a_row_per_model_and_says_what_is_missing():
    shown = length_table(
        document(
            evaluation_cell(70.0, position_method="sinusoidal", length=64),
            evaluation_cell(60.0, length=64),
            evaluation_cell(59.0, length=256),
            evaluation_cell(50.0, train_length=128, length=256),
        )
    )
    assert shown.startswith("Perplexity on valid, non-overlapping:")
    assert cells_of(shown) == [
        ["trained ↓ evaluated at →", "64", "256"],
        ["ALiBi, L=64", "60.00", "59.00"],
        ["ALiBi, L=128", "–", "50.00"],
        ["Sinusoidal, L=64", "70.00", "missing"],
    ]


def test_each_split_and_stride_has_its_own_table():
    shown = length_table(
        document(
            evaluation_cell(1.5, subset="test"),
            evaluation_cell(2.5, stride=16),
            evaluation_cell(3.5, stride=1),
            evaluation_cell(4.5),
        )
    )
    titles = [line for line in shown.splitlines() if line.startswith("Perplexity")]
    assert titles == [
        "Perplexity on valid, non-overlapping:",
        "Perplexity on valid, S=1:",
        "Perplexity on valid, S=16:",
        "Perplexity on test, non-overlapping:",
    ]
    assert [row[1] for row in cells_of(shown)[1::2]] == ["4.50", "3.50", "2.50", "1.50"]


def test_seeds_are_averaged_and_said():
    shown = length_table(document(evaluation_cell(10.0, seed=1), evaluation_cell(12.0, seed=2)))
    assert cells_of(shown)[1] == ["ALiBi, L=64", "11.00 ± 1.41 (2 seeds)"]


def test_runs_that_differ_are_never_averaged():
    by_updates = length_table(
        document(
            evaluation_cell(20.0, updates=100, checkpoint="a.pt"),
            evaluation_cell(10.0, updates=900, checkpoint="b.pt"),
        )
    )
    assert cells_of(by_updates)[1:] == [
        ["ALiBi, L=64 (100 updates)", "20.00"],
        ["ALiBi, L=64 (900 updates)", "10.00"],
    ]
    three = length_table(
        document(
            evaluation_cell(20.0, updates=100, checkpoint="a.pt"),
            evaluation_cell(10.0, updates=900, checkpoint="b.pt"),
            evaluation_cell(11.0, updates=900, checkpoint="c.pt"),
        )
    )
    assert [row[0] for row in cells_of(three)[1:]] == [
        "ALiBi, L=64 (100 updates, a.pt)",
        "ALiBi, L=64 (900 updates, b.pt)",
        "ALiBi, L=64 (900 updates, c.pt)",
    ]


def test_checkpoints_are_named_without_the_folders_they_share():
    paths = ["/home/me/runs/a/best.pt", "/home/me/runs/b/best.pt"]
    cells = [evaluation_cell(10.0 + n, checkpoint=path) for n, path in enumerate(paths)]
    assert [row[0] for row in cells_of(length_table(document(*cells)))[1:]] == [
        "ALiBi, L=64 (a/best.pt)",
        "ALiBi, L=64 (b/best.pt)",
    ]
    mixed = [*cells, evaluation_cell(9.0, checkpoint="runs/c/best.pt"), evaluation_cell(8.0)]
    assert [row[0] for row in cells_of(length_table(document(*mixed)))[1:]] == [
        f"ALiBi, L=64 ({name})" for name in (*paths, "runs/c/best.pt", "unnamed")
    ]


def test_overrides_tell_runs_apart():
    shown = length_table(
        document(
            evaluation_cell(20.0),
            evaluation_cell(10.0, model_overrides='{"alibi_scale": 2}'),
        )
    )
    assert cells_of(shown)[1:] == [
        ["ALiBi, L=64 (as trained)", "20.00"],
        ['ALiBi, L=64 ({"alibi_scale": 2})', "10.00"],
    ]


def test_methods_from_outside_keep_their_name():
    shown = length_table(
        document(evaluation_cell(position_method="mine"), evaluation_cell(position_method="none"))
    )
    assert [row[0] for row in cells_of(shown)[1:]] == ["mine, L=64", "No positions, L=64"]


def test_csv_holds_every_cell_unrounded():
    cells = [evaluation_cell(70.123456, length=64), evaluation_cell(71.5, subset="test")]
    read = list(csv.DictReader(io.StringIO(own_results.length_csv(document(*cells)))))
    assert [float(row["perplexity"]) for row in read] == [70.123456, 71.5]
    assert [row["subset"] for row in read] == ["valid", "test"]
    assert float(read[0]["loss_bits"]) == cells[0]["loss_bits"]


def test_what_is_no_better_than_a_guess_is_marked():
    cells = [
        evaluation_cell(perplexity, length=length, vocabulary=600)
        for perplexity, length in ((20.0, 64), (450.0, 128))
    ]
    shown = length_table(document(*cells))
    assert cells_of(shown)[1] == ["ALiBi, L=64", "20.00", "450.00 (chance)"]
    assert shown.endswith(
        "\nchance: at least nine tenths of the bits per token of guessing any entry of the "
        "dictionary; the model is untrained or has diverged.\n"
    )
    assert "chance" not in length_table(document(cells[0]))
