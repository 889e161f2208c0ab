from results_documents import cells_of, document

from alibi_fairseq.reporting import speed
from alibi_fairseq.reporting.collect import collect
from alibi_fairseq.reporting.report import write_report
from alibi_fairseq.results.schema import save_document


def cell(phase="train", method="alibi", length=512, rate=1000.0, **more):
    return {
        "name": f"{phase}, {method}",
        "phase": phase,
        "position_method": method,
        "length": length,
        "baseline": None,
        "ratio": None,
        "tokens_per_second": rate,
        "model": "alibi_lm",
    } | more


def rows_of_ours(*documents):
    text = speed.speed_table(documents)
    return text, cells_of(text[text.index("Ours") :])


def test_ratios_are_to_our_own_sinusoidal_model_beside_the_papers():
    text, rows = rows_of_ours(
        document(
            cell("train", "sinusoidal", 512, 2000.0, peak_memory_mb=500.0),
            cell("train", "alibi", 512, 3000.0, peak_memory_mb=480.0),
            cell("evaluate", "alibi", 512, 9000.0),
            kind="benchmark",
        )
    )
    assert "Ours, a processor, 2 threads, fp32, alibi_lm:" in text
    by_case = {(row[0], row[2]): row[3:] for row in rows[1:]}
    assert by_case["Sinusoidal", "512"][:2] == ["2.0k", "1.00"]
    assert by_case["ALiBi", "512"] == ["3.0k", "1.50", "9.0k", "–", "480", "-20"]
    assert by_case["T5 bias", "3072"][:2] == ["missing", "–"]
    assert len(by_case) == 12


def test_the_papers_ratios_are_to_its_sinusoidal_model():
    rows = cells_of(speed.speed_table([]).partition("Ours")[0])
    by_case = {(row[0], row[2]): row[3:] for row in rows[1:]}
    assert by_case["T5 bias", "3072"][1] == "0.28" and by_case["ALiBi", "512"][3:] == [
        "1.05",
        "15300",
        "+0",
    ]


def test_backends_have_a_row_each():
    _, rows = rows_of_ours(
        document(cell(backend="sdpa"), cell(backend="fold", rate=2000.0), kind="benchmark")
    )
    alibi = {row[1]: row[3] for row in rows if row[0] == "ALiBi" and row[2] == "512"}
    assert alibi == {"sdpa": "1.0k", "fold": "2.0k"}


def test_a_gpu_and_a_processor_never_share_a_table():
    gpu = {"cpu": "a processor", "cores": 2, "memory_gb": 1.0, "gpu": "a GPU"}
    documents = [
        document(cell(), kind="benchmark"),
        document(cell(rate=5000.0), kind="benchmark", hardware=gpu, precision="bf16"),
    ]
    assert list(speed.speeds(documents)) == [
        "a GPU, bf16, alibi_lm",
        "a processor, 2 threads, fp32, alibi_lm",
    ]


def test_other_benchmarks_have_no_place_in_table_1():
    other = {"name": "attention", "baseline": "dense", "ratio": 1.5, "length": 16384}
    assert speed.speeds([document(other, kind="benchmark")]) == {}


def test_a_report_of_speeds_is_table_1(tmp_path):
    save_document(document(cell(), kind="benchmark"), tmp_path / "speed.json")
    write_report(collect([tmp_path]), tmp_path / "out")
    assert [path.name for path in (tmp_path / "out" / "tables").iterdir()] == ["table01.md"]


def test_lines_are_drawn_for_what_was_measured():
    [(machine, cases)] = speed.speeds(
        [document(cell(), cell(method="t5"), kind="benchmark")]
    ).items()
    [panel] = speed.speed_panels(machine, cases, "tokens")
    assert panel.y == "training (thousand tokens per second)"
    assert [line.label for line in panel.lines] == ["ALiBi", "T5 bias"]
    assert [[*line.y] for line in panel.lines] == [[1.0], [1.0]]


def test_one_cell_may_hold_a_whole_row_of_table_1():
    """As ``benchmarks.methods`` writes it, with ratios to sinusoidal in the run."""
    row = cell(evaluation_tokens_per_second=4000.0, peak_memory_mb=480.0)
    row |= {"baseline": "sinusoidal", "ratio": 0.99}
    [cases] = speed.speeds([document(row, kind="benchmark")]).values()
    [phases] = cases.values()
    assert phases["train"] == 1000.0
    assert phases["evaluate"] == 4000.0
