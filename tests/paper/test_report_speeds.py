"""Speeds and training times in the report: Table 1, Figures 5, 7, and 8."""

from pathlib import Path

import pytest
from results_documents import (
    cells_of,
    changed,
    document,
    evaluation_record,
    make_benchmark,
    make_record,
)

from alibi_fairseq.paper import published as paper
from alibi_fairseq.paper import speed_figures, speed_table
from alibi_fairseq.paper.report import write_report
from alibi_fairseq.paper.report_data import ReportData, collect, machine_of
from alibi_fairseq.paper.training_time_figure import draw_figure05, time_curve
from alibi_fairseq.reporting import plots
from alibi_fairseq.results.files import save_results_file
from alibi_fairseq.results.record import Benchmark, Validation


def approx(points):
    """Return points that equal others up to rounding."""
    return [pytest.approx(point) for point in points]


def speed_record(method="alibi", length=512, speed=1000.0, **changes):
    """Return a record like those of ``benchmarks.methods``."""
    values = {
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
    return make_benchmark(values | changes)


def speed_without(key):
    """Return a record that lacks a key of ``benchmarks.methods``."""
    record = speed_record()
    del record.case[key]
    return record


def speeds(*results_files):
    """Return the speeds in results files ``0.json``, ``1.json``, and so on."""
    files = []
    for index, results_file in enumerate(results_files):
        files.append((Path(f"results/{index}.json"), results_file))
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
    attention = Benchmark(name="attention", baseline="dense", case={"length": 1}, measured={})
    documents = [
        document(speed_record(), kind="benchmark"),
        document(speed_record(speed=5000.0), kind="benchmark", hardware=gpu, precision="bf16"),
        # Not part of Table 1:
        document(attention, kind="benchmark"),
        document(speed_without("position_method"), kind="benchmark"),
        document(speed_without("length"), kind="benchmark"),
    ]
    assert list(speeds(*documents)) == [
        "a GPU, bf16, alibi_lm",
        "a processor, 2 threads, fp32, alibi_lm",
    ]


def test_speed_ratios_stay_within_a_file():
    first = document(speed_record("sinusoidal", speed=2000.0), speed_record(), kind="benchmark")
    second = document(speed_record("sinusoidal", speed=4000.0), kind="benchmark")
    text = speed_table.speed_table(speeds(first, second))
    _, ours, other = text.split("Ours, a processor, 2 threads, fp32, alibi_lm, ")
    assert ours.startswith("0.json:")
    assert lines_by_model(ours)["ALiBi", "512"][:2] == ["1.0k", "0.50"]
    assert other.startswith("1.json:")
    assert lines_by_model(other)["ALiBi", "512"][:2] == ["missing", "–"]


def test_machine_is_the_device_of_all_records():
    gpu = {"cpu": "a processor", "cores": 2, "memory_gb": 1.0, "gpu": "a GPU"}
    on_cpu = evaluation_record(device="cpu")
    on_gpu = evaluation_record(length=256, device="cuda")
    assert machine_of(document(on_cpu, hardware=gpu)) == "a processor, 2 threads, fp32"
    assert machine_of(document(on_cpu, on_gpu, hardware=gpu)) == "a GPU, fp32"


def test_report_of_speeds_has_only_table_1(tmp_path):
    measured = document(speed_record(), speed_record("t5"), kind="benchmark")
    save_results_file(measured, tmp_path / "speed.json")
    results = collect([tmp_path])
    write_report(results, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out" / "tables").iterdir()] == ["table01.md"]
    [(machine, speeds_and_memory)] = results.speeds().items()
    panel, _, _ = speed_figures.speed_panels(machine, speeds_and_memory, "tokens")
    assert panel.y == "training (thousand tokens per second)"
    lines = {line.label: list(line.y) for line in panel.lines}
    assert lines == {"ALiBi": [1.0], "T5 bias": [1.0]}


def curve_row(length=2048):
    """Return the row of Figure 5 of ALiBi trained at 1024 and evaluated at 2048, or at another."""
    row = paper.rows("figure05")[-1]
    assert (row["position_method"], row["train_length"], row["length"]) == ("alibi", 1024, 2048)
    return {**row, "length": length}


def validation(updates, **changes):
    """Return a validation of ALiBi trained at 1024."""
    values = {
        "architecture": "alibi_lm_1b3",
        "position_method": "alibi",
        "train_length": 1024,
        "length": 1024,
        "subset": "valid",
        "loss_bits": 3.0,
        "updates": updates,
        "gpu_hours": updates / 9,
    }
    return make_record(Validation, **values | changes)


def evaluation(updates, perplexity, seed=1, **changes):
    """Return an evaluation of a checkpoint at 2048 tokens."""
    return evaluation_record(
        perplexity,
        train_length=1024,
        length=2048,
        corpus="cc100-roberta",
        architecture="alibi_lm_1b3",
        updates=updates,
        seed=seed,
        **changes,
    )


def training(*validations, corpus="cc100-roberta", seed=1, **provenance):
    """Return path and content of the results file of a training."""
    return None, document(*validations, kind="training", corpus=corpus, seed=seed, **provenance)


def test_time_curve_uses_hours_of_same_updates():
    evaluations = []
    validations = []
    curve = []
    for updates in (10_000, 30_000, 50_000):
        perplexity = 8.5 + 20_000 / updates
        evaluations.append(evaluation(updates, perplexity))
        validations.append(validation(updates))
        curve.append((updates / 9, perplexity))
    results = ReportData(files=[training(*validations)], measurements=evaluations)
    assert time_curve(results, curve_row()) == approx(curve)
    curve_at_train_length = [(hours, 8.0) for hours, _ in curve]
    assert time_curve(results, curve_row(length=1024)) == curve_at_train_length
    for record in results.files[0][1].records:
        record.gpu_hours = None
    assert time_curve(results, curve_row()) == []


def test_time_curve_averages_seeds():
    trainings = [
        training(validation(30_000, gpu_hours=3000.0, loss_bits=3.0), seed=1),
        training(validation(30_000, gpu_hours=5000.0, loss_bits=4.0), seed=2),
    ]
    evaluations = [evaluation(30_000, 9.0, seed=1), evaluation(30_000, 10.0, seed=2)]
    results = ReportData(files=trainings, measurements=evaluations)
    assert time_curve(results, curve_row()) == approx([(4000.0, 9.5)])
    assert time_curve(results, curve_row(length=1024)) == [(4000.0, 12.0)]
    # Seed 3 was evaluated, but its training is not among the results.
    results.measurements.append(evaluation(30_000, 99.0, seed=3))
    assert time_curve(results, curve_row()) == approx([(4000.0, 9.5)])


def test_time_curve_ignores_scored_ranges():
    scored_range = evaluation(30_000, 5.0, score_from=512)
    results = ReportData(files=[training(validation(30_000))], measurements=[scored_range])
    assert time_curve(results, curve_row()) == []


def test_time_curve_ignores_other_splits_and_changed_models():
    checkpoint = evaluation(30_000, 5.0)
    ignored = [
        changed(checkpoint, subset="test"),
        changed(checkpoint, overrides={"alibi_scale": "dynamic"}),
    ]
    results = ReportData(files=[training(validation(30_000))], measurements=ignored)
    assert time_curve(results, curve_row()) == []


def test_time_curve_ignores_validations_of_other_splits():
    test_split = validation(40_000, subset="test")
    results = ReportData(files=[training(validation(30_000), test_split)])
    assert time_curve(results, curve_row(length=1024)) == [(30_000 / 9, 8.0)]


def test_time_curve_has_only_longest_of_different_trainings():
    slow = {"lr": "0.1"}
    fast = {"lr": "0.3"}
    trainings = [
        training(validation(30_000, gpu_hours=3000.0, loss_bits=3.0, options=slow)),
        training(validation(20_000, gpu_hours=1000.0, loss_bits=4.0, options=fast)),
        training(validation(30_000, gpu_hours=1500.0, loss_bits=4.0, options=fast)),
    ]
    evaluations = [
        evaluation(30_000, 9.0, options=slow),
        evaluation(30_000, 7.0, options=fast),
    ]
    results = ReportData(files=trainings, measurements=evaluations)
    assert time_curve(results, curve_row()) == approx([(3000.0, 9.0)])
    assert time_curve(results, curve_row(length=1024)) == [(3000.0, 8.0)]


@pytest.mark.parametrize("other_data", ["c", "d"], ids=["same split", "several splits"])
def test_trainings_belong_to_their_text(other_data):
    other_text = {"data_sha256": "c" * 64, "dictionary_sha256": "e" * 64}
    other_evaluation = {**other_text, "data_sha256": other_data * 64}
    files = [
        training(validation(30_000, gpu_hours=3000.0)),
        training(validation(30_000, gpu_hours=5000.0), **other_text),
        (None, document(corpus="cc100-roberta")),
        (None, document(corpus="cc100-roberta", **other_evaluation)),
    ]
    evaluations = [
        evaluation(30_000, 9.0, data_sha256="a" * 64),
        evaluation(30_000, 10.0, data_sha256=other_data * 64),
    ]
    curves = []
    for _, results in ReportData(files, evaluations).by_text("cc100-roberta"):
        curves.append(time_curve(results, curve_row()))
    assert curves == [approx([(3000.0, 9.0)]), approx([(5000.0, 10.0)])]


def test_training_speed_is_that_of_the_last_validation_averaged_over_seeds():
    wiki = {"architecture": "alibi_lm_wiki103", "processes": 8}
    trainings = [
        training(
            validation(285_000, tokens_per_second_per_process=10.0, **wiki),
            validation(286_000, tokens_per_second_per_process=20.0, **wiki),
            corpus="wikitext-103",
            seed=1,
        ),
        training(
            validation(286_000, tokens_per_second_per_process=40.0, **wiki),
            corpus="wikitext-103",
            seed=2,
        ),
        training(
            validation(10, tokens_per_second_per_process=1000.0, **wiki),
            corpus="wikitext-103",
            seed=3,
        ),
        training(
            validation(286_000, tokens_per_second_per_process=1000.0, layers=2, width=64, **wiki),
            corpus="wikitext-103",
            seed=4,
        ),
        training(
            validation(
                286_000,
                tokens_per_second_per_process=1000.0,
                options={"decoder_attention_heads": "4"},
                **wiki,
            ),
            corpus="wikitext-103",
            seed=5,
        ),
        training(
            validation(
                286_000,
                tokens_per_second_per_process=1000.0,
                trained_tokens=286_000 * 9_216,
                **wiki,
            ),
            corpus="wikitext-103",
            seed=6,
        ),
    ]
    speeds = speed_figures.recorded_train_speeds(ReportData(files=trainings))
    assert speeds == {("alibi", 1024): 30.0}


@pytest.fixture
def drawn_panels(monkeypatch):
    """Return the panels of the figures that are drawn, which are not written."""
    drawn = []
    monkeypatch.setattr(plots, "draw", lambda title, panels, *paths: drawn.extend(panels))
    return drawn


def points_of(panel, label):
    """Return the points of a line of a panel."""
    lines = {line.label: line for line in panel.lines}
    return list(zip(lines[label].x, lines[label].y))


def test_figure_5_has_end_points_of_the_paper(drawn_panels):
    draw_figure05(ReportData())
    left, right = drawn_panels
    assert points_of(left, "ALiBi, L=512 (paper, end point)") == [(5546, 9.3)]
    assert points_of(right, "ALiBi, L=1024 (paper, end point)") == [(5974, 8.92)]


def test_figure_7_has_speeds_and_ratios_of_the_paper(drawn_panels):
    speed_figures.draw_figure07(ReportData())
    speed_panel, ratio_panel = drawn_panels
    assert points_of(speed_panel, "ALiBi")[-1] == (3072, 15.528)
    ratios = points_of(ratio_panel, "ALiBi / sinusoidal, the paper, one V100 (words)")
    assert ratios[-1] == (3072, pytest.approx(15528 / 15376))


def test_figure_8_has_speeds_and_perplexities_of_the_paper(drawn_panels):
    speed_figures.draw_figure08(ReportData())
    (panel,) = drawn_panels
    assert points_of(panel, "Sinusoidal (paper)") == [(15.376, 18.67)]
    assert points_of(panel, "ALiBi (paper)")[0] == (28.304, 18.4)
