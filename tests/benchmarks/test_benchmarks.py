"""Benchmarks at toy size from their command lines, and the page of their results."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from pathlib import Path

import pytest
import torch
from results_documents import PROVENANCE, cells_of

from alibi_fairseq.reporting.markdown import to_markdown
from alibi_fairseq.results.benchmark import BenchmarkFile, save_benchmarks
from alibi_fairseq.results.file import load
from alibi_fairseq.results.provenance import Provenance
from benchmarks import (
    attention,
    backends,
    common,
    evaluate,
    generate,
    huggingface,
    models,
    output_layer,
    summary,
    table,
)
from benchmarks.paper_ratios import paper_ratios
from benchmarks.train import COMPILED_VARIANTS, MODERN_VARIANTS

SHAPE = (
    "--decoder-layers 1 --decoder-embed-dim 16 --decoder-ffn-embed-dim 16 "
    "--decoder-attention-heads 2"
)
TOY = dataclasses.replace(models.SMALL, name="toy", words=64, flags=tuple(SHAPE.split()), tokens=64)


def save_records(path: Path, *records: dict) -> None:
    """Write a results file of benchmarks."""
    measured = [common.make_record(record) for record in records]
    origin = Provenance(**PROVENANCE)
    save_benchmarks(BenchmarkFile(corpus="demo", provenance=origin, records=measured), path)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """Return a function that runs one benchmark on toy models and returns its records."""
    monkeypatch.setattr(models, "SMALL", TOY)
    monkeypatch.setattr(common, "NEW_RESULTS", tmp_path)
    monkeypatch.setattr(common, "matmul_peak", lambda device, dtype: 1e9)

    def fake_peak_memory(config: models.StepConfig) -> float:
        return 100.0 if config.variant == "sinusoidal" else 150.0

    # The real function starts a process for each model.
    monkeypatch.setattr(models, "peak_memory", fake_peak_memory)

    def run(name: str, *arguments: str) -> list[dict]:
        module = importlib.import_module(f"benchmarks.{name}")
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        module.main()
        results = load(tmp_path / f"{name}-{common.device().type}.json")
        cases = [(record.name, record.case) for record in results.benchmarks]
        assert not [case for case in cases if cases.count(case) > 1]  # repeated measurements
        return [{**record.values, "baseline": record.baseline} for record in results.benchmarks]

    return run


def check(cells: list[dict], variants: set[str], key: str = "variant") -> None:
    """Check the variants and ratios of all records of a benchmark."""
    assert {cell[key] for cell in cells} == variants
    baselines = [cell for cell in cells if cell[key] == cell["baseline"]]
    assert baselines
    assert all(cell["ratio"] == 1 for cell in baselines)
    assert all(cell["ratio"] > 0 for cell in cells)


@pytest.mark.parametrize("model", ["alibi", "alibi-modern"])
def test_attention(model, bench, trained):
    weights = ("--path", str(trained(model)), "--data", str(trained.data))
    cells = bench("attention", "--lengths", "64", "--rounds", "1", *weights)
    names = {cell["variant"] for cell in cells}
    assert {"eager", "sdpa", "fold", "skipping"} < names
    check(cells, names)
    assert {cell["weights"] for cell in cells} == {"random", "trained"}
    assert all(0 < cell["kept_share"] <= 1 for cell in cells)


def test_attention_of_a_checkpoint_is_measured_once_per_length(bench, trained, monkeypatch):
    monkeypatch.setattr(attention, "default_shapes", lambda *arguments: [(2, 16, 64), (1, 32, 64)])
    weights = ("--path", str(trained("alibi")), "--data", str(trained.data))
    cells = bench("attention", "--rounds", "1", *weights)  # which refuses repeated measurements
    shapes = {(cell["heads"], cell["head_size"]) for cell in cells if cell["weights"] == "random"}
    assert shapes == {(2, 16), (1, 32)}


def test_backends(bench, monkeypatch):
    small = {"TOKENS": 128, "HEADS": 2, "THREADS": (1,), "HEAD_SIZES": (16,), "LENGTHS": (128,)}
    for name, value in small.items():
        monkeypatch.setattr(backends, name, value)
    cells = bench("backends", "--rounds", "1")
    check(cells, set(backends.CANDIDATES))
    assert {(cell["phase"], cell["weights"]) for cell in cells} == {
        ("train", "random"),
        ("train", "trained"),
        ("evaluate", "random"),
        ("evaluate", "trained"),
    }


def one_layer(shape: models.Shape) -> models.Shape:
    """Return a GPU's shape with one layer and few tokens per update."""
    flags = list(shape.flags)
    flags[flags.index("--decoder-layers") + 1] = "1"
    return dataclasses.replace(shape, flags=tuple(flags), tokens=32)


@pytest.fixture
def gpu_sizes(bench, monkeypatch):
    """Return the fixture ``bench`` with the sizes and the precision of a GPU, but on the CPU.

    Widths and vocabularies are those of a GPU.
    """
    monkeypatch.setattr(common, "on_gpu", lambda: True)
    monkeypatch.setattr(common, "precision", lambda device: torch.bfloat16)
    monkeypatch.setattr(models, "WIKI103", one_layer(models.WIKI103))
    monkeypatch.setattr(models, "DENSE_16", one_layer(models.DENSE_16))
    return bench


VARIANTS = {"stock", "materialised", "no bias", "sinusoidal", "alibi"}


def test_attention_at_gpu_sizes(monkeypatch):
    """Take every shape of a GPU, without its length."""
    shapes = attention.default_shapes(torch.device("cuda"), quick=False)
    assert {shape[1] for shape in shapes} == {64, 128}
    monkeypatch.setitem(attention.LAYERS, "cpu", 2)
    for heads, head_size, _ in shapes:
        layers = attention.random_layers((1, heads, 16, head_size), torch.device("cpu"))
        for run_layers in attention.make_variants(layers, torch.device("cpu")).values():
            run_layers()


@pytest.mark.slow  # models of 57 million parameters
def test_train_at_gpu_sizes(gpu_sizes):
    cells = gpu_sizes("train", "--rounds", "1", "--lengths", "16", "--no-memory")
    variants = VARIANTS | {*MODERN_VARIANTS, *COMPILED_VARIANTS}
    check(cells, variants)
    count = len(variants)
    assert [cell["attention_dropout"] for cell in cells] == count * [0.0] + count * [0.1]


@pytest.mark.slow
def test_methods_at_gpu_sizes(gpu_sizes):
    """``gpu_check`` measures these methods, and the baseline is always measured."""
    names = ("rotary", "t5", "alibi")
    cells = gpu_sizes("methods", "--rounds", "1", "--lengths", "16", "--methods", *names)
    check(cells, {"sinusoidal", *names}, "position_method")
    assert all(cell["evaluation_ratio"] > 0 for cell in cells)


def test_generate_at_gpu_sizes(gpu_sizes, monkeypatch):
    monkeypatch.setattr(generate, "PROMPTS", {"quick": ((8, 2), (12, 2))})
    cells = gpu_sizes("generate", "--quick", "--rounds", "1")
    check(cells, {"stock", "sinusoidal", "alibi", "alibi, modern block"})


@pytest.mark.slow  # the C++ compiler takes most of the time
def test_output_layer_at_gpu_sizes(gpu_sizes, monkeypatch):
    monkeypatch.setattr(output_layer, "LENGTH", 16)
    cells = gpu_sizes("output_layer", "--rounds", "1", "--no-memory")
    assert {cell["model"] for cell in cells} == {models.WIKI103.name, models.DENSE_16.name}
    assert len(cells) == 6


@pytest.mark.slow
def test_peers_at_gpu_sizes(gpu_sizes):
    pytest.importorskip("x_transformers")
    cells = gpu_sizes("peers", "--rounds", "1", "--lengths", "16")
    check(cells, {"alibi_fairseq", "bloom", "x-transformers", "x-transformers, flash"})


@pytest.mark.slow  # real sizes
def test_evaluate_quick(bench):
    cells = bench("evaluate", "--quick", "--rounds", "1")
    assert [(cell["model"], cell["stride"]) for cell in cells] == [
        ("alibi_lm_tiny", 1),
        ("alibi_lm_tiny", 512),
    ]
    assert all(cell["ratio"] > 0 for cell in cells)


def test_records_are_saved_when_they_are_measured(bench, monkeypatch, tmp_path):
    def measure(args):
        yield {"name": "first", "baseline": None, "ratio": None}
        raise KeyboardInterrupt

    monkeypatch.setattr(evaluate, "measure", measure)
    with pytest.raises(KeyboardInterrupt):
        bench("evaluate")
    (path,) = tmp_path.glob("evaluate-*.json")
    assert [record.name for record in load(path).benchmarks] == ["first"]


def test_generate(bench, monkeypatch):
    monkeypatch.setattr(generate, "PROMPTS", {"quick": ((8, 4),), "full": ((8, 4),)})
    check(
        bench("generate", "--rounds", "1"), {"stock", "sinusoidal", "alibi", "alibi, modern block"}
    )


@pytest.mark.slow
def test_methods(bench):
    cells = bench("methods", "--lengths", "32", "--rounds", "1")
    check(cells, set(models.METHODS), "position_method")
    ratios = {cell["position_method"]: cell["memory_ratio"] for cell in cells}
    assert ratios.pop("sinusoidal") == 1
    assert set(ratios.values()) == {1.5}


def test_huggingface(bench, monkeypatch):
    """Test the records; the memory of tiny models is noise."""
    measured = []

    def measure_here(function, name, variant, length, phase):
        measured.append(function(name, variant, length, phase))
        return 50.0 if variant == "alibi_fairseq" else 100.0

    monkeypatch.setattr(huggingface, "LENGTHS", (40, 48))
    monkeypatch.setattr(common, "run_in_new_process", measure_here)
    records = bench("huggingface", "--quick")
    assert len(records) == len(measured) == 2 * 3 * 2 * 2
    for record in records:
        expected = 0.5 if record["variant"] == "alibi_fairseq" else 1.0
        assert record["memory_ratio"] == expected
    assert {record["baseline"] for record in records} == {"eager", "sdpa"}


def test_attention_of_model_without_alibi_is_rejected(bench, trained, capsys):
    weights = ("--path", str(trained("rotary")), "--data", str(trained.data))
    with pytest.raises(SystemExit, match="2"):
        bench("attention", "--lengths", "64", "--rounds", "1", *weights)
    assert "is not an ALiBi model" in capsys.readouterr().err


@pytest.mark.slow  # the C++ compiler takes most of the time
def test_output_layer(bench, monkeypatch):
    flags = (*TOY.flags, "--adaptive-softmax-cutoff", "16,32")
    adaptive = dataclasses.replace(
        TOY, name="toy, adaptive", flags=flags, criterion="adaptive_loss"
    )
    monkeypatch.setattr(output_layer, "LARGE_VOCABULARY", adaptive)
    monkeypatch.setattr(output_layer, "LENGTH", 16)
    cells = bench("output_layer", "--rounds", "1")
    names = {"adaptive_loss", "chunked_adaptive_loss", "cross_entropy", "chunked_cross_entropy"}
    assert names < {cell["variant"] for cell in cells}
    assert len(cells) == 6
    check(cells, {cell["variant"] for cell in cells})


@pytest.mark.slow
def test_peak_memory_grows_with_the_model():
    small = dataclasses.replace(TOY, tokens=16)
    large = dataclasses.replace(small, flags=(*TOY.flags, "--decoder-ffn-embed-dim", "200000"))
    before = models.peak_memory(models.StepConfig("alibi", small, 16))
    after = models.peak_memory(models.StepConfig("alibi", large, 16))
    # Weights, gradients, and Adam's two moments in fp32, and some activations.
    expected = 2 * 200_000 * 16 * 16 / 1e6  # MB
    assert 1 < (after - before) / expected < 3


def row_of(batch: dict, index: int) -> dict:
    """Return one sequence of a batch as a batch."""
    row = slice(index, index + 1)
    inputs = {name: tensor[row] for name, tensor in batch["net_input"].items()}
    target = batch["target"][row]
    return {"net_input": inputs, "target": target, "ntokens": target.numel()}


def copy_state(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return a copy of the state dict of a model."""
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_update_is_independent_of_number_of_passes(monkeypatch):
    shape = dataclasses.replace(TOY, flags=(*TOY.flags, "--dropout", "0"))
    model, dictionary = models.build("alibi", shape, 16)
    batch = models.make_sample(dictionary, 4, 16, torch.device("cpu"))
    start = copy_state(model)

    def update(samples: list[dict]) -> tuple[float, dict]:
        model.load_state_dict(start)
        remaining = iter(samples)
        monkeypatch.setattr(models, "make_sample", lambda *arguments: next(remaining))
        step = models.make_training_step(model, dictionary, shape, 16, passes=len(samples))
        loss = step()
        return loss, copy_state(model)

    loss, weights = update([batch])
    loss_of_passes, weights_of_passes = update([row_of(batch, index) for index in range(4)])
    assert loss == pytest.approx(loss_of_passes, rel=1e-5)
    for name in start:
        assert torch.allclose(weights[name], weights_of_passes[name], atol=1e-5), name


def test_passes_per_update_follow_the_paper():
    assert models.WIKI103.paper_passes(3072) == 3
    assert models.WIKI103.paper_passes(1024) == 1


def test_paper_ratios_match_table_1():
    ratios = paper_ratios()
    assert ratios["t5", 3072]["paper_ratio"] == pytest.approx(4_300 / 15_300, abs=1e-3)
    assert ratios["alibi", 512]["paper_ratio"] == pytest.approx(28_300 / 28_500, abs=1e-3)


@pytest.mark.parametrize("name", ["stock", "sinusoidal", "alibi"])
def test_cached_decoding_matches_full_passes(name):
    model, dictionary = models.build(name, TOY, 32)
    model.eval()
    sample = models.make_sample(dictionary, 2, 8, torch.device("cpu"))
    prompt = sample["net_input"]["src_tokens"]
    tokens = prompt
    with torch.no_grad():
        for _ in range(6):
            logits, _ = model(tokens)
            tokens = torch.cat([tokens, logits[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(generate.decode(model, prompt, 6), tokens)


def test_page_has_one_table_per_results_file(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(table, "RESULTS", tmp_path)
    monkeypatch.setattr(table, "PAGE", tmp_path / "page.md")
    trained = bench("train", "--lengths", "16", "32", "--rounds", "1", "--no-memory")
    check(trained, VARIANTS | set(MODERN_VARIANTS))
    ours = {
        "name": "step, ours",
        "variant": "ours",
        "ours_is_faster": 1.0,
        "length": 512,
        "baseline": "ours",
        "ratio": 1,
    }
    bloom = {**ours, "name": "step, bloom", "variant": "bloom", "ours_is_faster": 4.0}
    bloom["ratio"] = 0.25
    save_records(tmp_path / "peers-cpu.json", ours, bloom)
    table.main()
    page = (tmp_path / "page.md").read_text()
    assert page.index("## Training steps\n") < page.index("## Training steps compared")
    assert "a processor (model not recorded), 2 threads" in page
    assert "; fp32; 1 round; " in page
    assert "; commit 0000000; " in page
    assert ["bloom", "0.25"] in cells_of(page)
    assert ["variant", "× stock, 16", "× stock, 32"] in cells_of(page)
    rows = [row for row in cells_of(page) if row[0] == "alibi" and len(row) == 3]
    ratios = [cell["ratio"] for cell in trained if cell["variant"] == "alibi"]
    assert rows == [["alibi", *(f"{ratio:.2f}" for ratio in ratios)]]


def attention_records(variant: str) -> list[dict]:
    """Return a record of random weights for each shape of a GPU, each with another ratio."""
    records = []
    for heads, head_size, length in attention.default_shapes(torch.device("cuda"), quick=False):
        record = {"variant": variant, "heads": heads, "head_size": head_size, "length": length}
        records.append({**record, "weights": "random", "ratio": float(len(records))})
    return records


def test_attention_of_two_shapes_has_a_cell_each():
    records = attention_records("flex")
    text = to_markdown([table.measured_table(table.TABLES["attention"], records)])
    headers, *rows = cells_of(text)
    cells = {(*row[:2], header): cell for row in rows for header, cell in zip(headers, row)}
    for record in records:
        shape = (str(record["heads"]), str(record["head_size"]))
        column = f"random, {record['length']}"
        assert cells[(*shape, column)] == f"{record['ratio']:.2f}"
    assert cells["16", "64", "random, 512"] == "–"


def test_records_of_one_cell_are_no_table():
    (record, *_) = attention_records("flex")
    with pytest.raises(AssertionError, match="identify a record"):
        table.measured_table(table.TABLES["attention"], [record, {**record, "batch": 2}])


def test_summary_has_the_speed_of_random_weights():
    records = attention_records("flex")
    (random,) = [record for record in records if record["length"] == summary.GPU_LENGTH]
    records.append({**random, "weights": "trained", "ratio": 99.0})
    assert summary.gpu_speed({"attention-cuda": records}, "flex") == random["ratio"]


def test_page_rounds_the_ratios_of_the_paper_once(tmp_path, monkeypatch):
    """Evaluation of ALiBi at 512 tokens: 85.8 / 82.1 = 1.0451, and not 1.045 rounded again."""
    monkeypatch.setattr(table, "RESULTS", tmp_path)
    monkeypatch.setattr(table, "PAGE", tmp_path / "page.md")
    alibi = {"position_method": "alibi", "train_length": 512, "length": 512, "baseline": "alibi"}
    record = {**alibi, "name": "table 1", "ratio": 1.0, "paper_evaluation_ratio": 1.045}
    save_records(tmp_path / "methods-cpu.json", record)
    table.main()
    (_, row) = cells_of((tmp_path / "page.md").read_text())
    assert row == ["1.00", "0.99", "1.05", "1.00"]


def test_evaluation_is_recorded_in_fp32_on_gpu(bench, monkeypatch, tmp_path):
    monkeypatch.setattr(common, "precision", lambda device: torch.bfloat16)
    record = {"name": "evaluation", "baseline": None, "ratio": None}
    monkeypatch.setattr(evaluate, "measure", lambda args: [record])
    bench("evaluate")
    results = load(tmp_path / f"evaluate-{common.device().type}.json")
    assert results.provenance.precision == "fp32"
