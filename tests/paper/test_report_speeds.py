"""Speeds in the report: Table 1 and Figure 5."""

from dataclasses import replace

from results_documents import cells_of, document

from alibi_fairseq.paper import published as paper
from alibi_fairseq.paper import report_figures, speed_table
from alibi_fairseq.paper.report import write_report
from alibi_fairseq.paper.report_data import ReportData, collect
from alibi_fairseq.results.measurements import Measurement
from alibi_fairseq.results.results_file import save_results_file


def cell(method="alibi", length=512, rate=1000.0, **changes):
    """Return a result record like those of ``benchmarks.methods``."""
    return {
        "name": f"table 1, {method}",
        "phase": "train",
        "position_method": method,
        "length": length,
        "baseline": None,
        "ratio": None,
        "tokens_per_second": rate,
        "evaluation_tokens_per_second": 3 * rate,
        "peak_memory_mb": 480.0,
        "model": "alibi_lm",
    } | changes


def speeds(*documents):
    return ReportData(documents=[(None, results) for results in documents]).speeds()


def test_speed_ratios_use_our_sinusoidal_model():
    measured = (cell("sinusoidal", rate=2000.0, peak_memory_mb=500.0), cell(rate=3000.0))
    text = speed_table.speed_table(speeds(document(*measured, kind="benchmark")))
    assert "Ours, a processor, 2 threads, fp32, alibi_lm:" in text
    by_model = {tuple(row[:2]): row[2:] for row in cells_of(text[text.index("Ours") :])[1:]}
    assert by_model["Sinusoidal", "512"][:2] == ["2.0k", "1.00"]
    assert by_model["ALiBi", "512"] == ["3.0k", "1.50", "9.0k", "1.50", "480", "-20"]
    assert by_model["T5 bias", "3072"][:2] == ["missing", "–"]
    assert len(by_model) == 12


def test_printed_speed_ratios_use_printed_sinusoidal_model():
    rows = cells_of(speed_table.speed_table({}).partition("Ours")[0])
    by_model = {tuple(row[:2]): row[2:] for row in rows[1:]}
    assert by_model["T5 bias", "3072"][1] == "0.28"
    assert by_model["ALiBi", "512"][3:] == ["1.05", "15300", "+0"]


def test_speeds_separate_machines():
    gpu = {"cpu": "a processor", "cores": 2, "memory_gb": 1.0, "gpu": "a GPU"}
    attention = {"name": "attention", "baseline": "dense", "ratio": 1.5, "length": 16384}
    documents = [
        document(cell(), kind="benchmark"),
        document(cell(rate=5000.0), kind="benchmark", hardware=gpu, precision="bf16"),
        document(attention, kind="benchmark"),  # not part of Table 1
    ]
    assert list(speeds(*documents)) == [
        "a GPU, bf16, alibi_lm",
        "a processor, 2 threads, fp32, alibi_lm",
    ]


def test_report_of_speeds_has_only_table_1(tmp_path):
    save_results_file(document(cell(), cell("t5"), kind="benchmark"), tmp_path / "speed.json")
    results = collect([tmp_path])
    write_report(results, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out" / "tables").iterdir()] == ["table01.md"]
    [(machine, measured)] = results.speeds().items()
    panel, _, _ = report_figures.speed_panels(machine, measured, "tokens")
    assert panel.y == "training (thousand tokens per second)"
    lines = {line.label: [*line.y] for line in panel.lines}
    assert lines == {"ALiBi": [1.0], "T5 bias": [1.0]}


def test_time_curve_uses_hours_of_same_updates():
    row = paper.rows("figure05")[-1]
    assert (row["position_method"], row["train_length"], row["length"]) == ("alibi", 1024, 2048)
    run = {"model": "alibi_lm_1b3", "position_method": "alibi", "train_length": 1024}
    perplexity = {updates: 8.5 + 20_000 / updates for updates in (10_000, 30_000, 50_000)}
    point = Measurement(
        "alibi", 1024, 2048, 2048, "valid", model="alibi_lm_1b3", corpus="cc100-roberta"
    )
    points = [replace(point, updates=n, perplexity=value) for n, value in perplexity.items()]
    run |= {"length": 1024, "subset": "valid", "loss_bits": 3.0}
    validations = [run | {"updates": n, "gpu_hours": n / 9} for n in perplexity]
    results_file = document(*validations, kind="training", corpus="cc100-roberta")
    results = ReportData(documents=[(None, results_file)], measurements=points)
    expected = [(n / 9, value) for n, value in perplexity.items()]
    assert report_figures.time_curve(results, row) == expected
    assert report_figures.time_curve(results, row | {"length": 1024}) == [
        (n / 9, 8.0) for n in perplexity
    ]
    for cell in validations:
        del cell["gpu_hours"]
    assert report_figures.time_curve(results, row) == []
