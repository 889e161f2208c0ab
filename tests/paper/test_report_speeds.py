"""Speeds in the report: Table 1 and Figure 5."""

from dataclasses import replace

from results_documents import cells_of, document

from alibi_fairseq.paper import published as paper
from alibi_fairseq.paper import report_figures, speed_table
from alibi_fairseq.paper.report import write_report
from alibi_fairseq.paper.report_data import ReportData, collect
from alibi_fairseq.results.measurements import Measurement
from alibi_fairseq.results.results_file import save_results_file


def speed_record(method="alibi", length=512, speed=1000.0, **changes):
    """Return a result record like those of ``benchmarks.methods``."""
    record = {
        "name": f"table 1, {method}",
        "phase": "train",
        "position_method": method,
        "length": length,
        "baseline": None,
        "ratio": None,
        "tokens_per_second": speed,
        "evaluation_tokens_per_second": 3 * speed,
        "peak_memory_mb": 480.0,
        "model": "alibi_lm",
    }
    return record | changes


def speeds(*results_files):
    """Return the speeds in results files."""
    files = [(None, results_file) for results_file in results_files]
    return ReportData(files=files).speeds()


def lines_by_model(text):
    """Return the lines of a table of speeds by method and length."""
    lines = {}
    for method, length, *line in cells_of(text)[1:]:
        lines[method, length] = line
    return lines


def test_speed_ratios_use_our_sinusoidal_model():
    sinusoidal = speed_record("sinusoidal", speed=2000.0, peak_memory_mb=500.0)
    alibi = speed_record(speed=3000.0)
    text = speed_table.speed_table(speeds(document(sinusoidal, alibi, kind="benchmark")))
    _, title, ours = text.partition("Ours, a processor, 2 threads, fp32, alibi_lm:")
    assert title
    lines = lines_by_model(ours)
    assert lines["Sinusoidal", "512"][:2] == ["2.0k", "1.00"]
    assert lines["ALiBi", "512"] == ["3.0k", "1.50", "9.0k", "1.50", "480", "-20"]
    assert lines["T5 bias", "3072"][:2] == ["missing", "–"]
    assert len(lines) == 12


def test_printed_speed_ratios_use_printed_sinusoidal_model():
    printed, _, _ = speed_table.speed_table({}).partition("Ours")
    lines = lines_by_model(printed)
    assert lines["T5 bias", "3072"][1] == "0.28"
    assert lines["ALiBi", "512"][3:] == ["1.05", "15300", "+0"]


def test_speeds_separate_machines():
    gpu = {"cpu": "a processor", "cores": 2, "memory_gb": 1.0, "gpu": "a GPU"}
    attention = {"name": "attention", "baseline": "dense", "ratio": 1.5, "length": 16384}
    documents = [
        document(speed_record(), kind="benchmark"),
        document(speed_record(speed=5000.0), kind="benchmark", hardware=gpu, precision="bf16"),
        document(attention, kind="benchmark"),  # not part of Table 1
    ]
    assert list(speeds(*documents)) == [
        "a GPU, bf16, alibi_lm",
        "a processor, 2 threads, fp32, alibi_lm",
    ]


def test_report_of_speeds_has_only_table_1(tmp_path):
    measured = document(speed_record(), speed_record("t5"), kind="benchmark")
    save_results_file(measured, tmp_path / "speed.json")
    results = collect([tmp_path])
    write_report(results, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out" / "tables").iterdir()] == ["table01.md"]
    [(machine, speeds_and_memory)] = results.speeds().items()
    panel, _, _ = report_figures.speed_panels(machine, speeds_and_memory, "tokens")
    assert panel.y == "training (thousand tokens per second)"
    lines = {line.label: list(line.y) for line in panel.lines}
    assert lines == {"ALiBi": [1.0], "T5 bias": [1.0]}


def test_time_curve_uses_hours_of_same_updates():
    row = paper.rows("figure05")[-1]
    assert (row["position_method"], row["train_length"], row["length"]) == ("alibi", 1024, 2048)
    evaluation = Measurement(
        "alibi", 1024, 2048, 2048, "valid", model="alibi_lm_1b3", corpus="cc100-roberta"
    )
    validation = {
        "model": "alibi_lm_1b3",
        "position_method": "alibi",
        "train_length": 1024,
        "length": 1024,
        "subset": "valid",
        "loss_bits": 3.0,
    }
    evaluations = []
    validations = []
    curve = []
    for updates in (10_000, 30_000, 50_000):
        perplexity = 8.5 + 20_000 / updates
        evaluations.append(replace(evaluation, updates=updates, perplexity=perplexity))
        validations.append({**validation, "updates": updates, "gpu_hours": updates / 9})
        curve.append((updates / 9, perplexity))
    training = document(*validations, kind="training", corpus="cc100-roberta")
    results = ReportData(files=[(None, training)], measurements=evaluations)
    assert report_figures.time_curve(results, row) == curve
    curve_at_train_length = [(hours, 8.0) for hours, _ in curve]
    assert report_figures.time_curve(results, {**row, "length": 1024}) == curve_at_train_length
    for record in validations:
        del record["gpu_hours"]
    assert report_figures.time_curve(results, row) == []
