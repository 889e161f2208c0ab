"""Every benchmark runs from its command line, at toy size, and the page is made of its results."""

from __future__ import annotations

import dataclasses
import importlib
import sys

import pytest
import torch
from results_documents import cells_of, document

from alibi_fairseq.results.schema import load_results_file, save_results_file
from benchmarks import backends, common, generate, methods, models, output_layer, table

SHAPE = (
    "--decoder-layers 1 --decoder-embed-dim 16 --decoder-ffn-embed-dim 16 "
    "--decoder-attention-heads 2"
)
TOY = dataclasses.replace(models.SMALL, name="toy", words=64, flags=tuple(SHAPE.split()), tokens=64)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """Run one benchmark on toy models; returns its cells."""
    monkeypatch.setattr(models, "SMALL", TOY)
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    monkeypatch.setattr(common, "matmul_peak", lambda where, dtype: 1e9)
    # Each takes a process of its own.
    memory = lambda variant, *rest: 100.0 if variant == "sinusoidal" else 150.0  # noqa: E731
    monkeypatch.setattr(models, "peak_memory", memory)

    def run(name: str, *arguments: str) -> list[dict]:
        module = importlib.import_module(f"benchmarks.{name}")
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        module.main()
        return load_results_file(tmp_path / f"{name}-{common.device().type}.json")["cells"]

    return run


def check(cells: list[dict], variants: set[str], key: str = "variant") -> None:
    assert {cell[key] for cell in cells} == variants
    baselines = [cell for cell in cells if cell[key] == cell["baseline"]]
    assert baselines and all(cell["ratio"] == 1 for cell in baselines)
    assert all(cell["ratio"] > 0 for cell in cells)


def test_attention(bench, trained):
    weights = ("--path", str(trained("alibi")), "--data", str(trained.data))
    cells = bench("attention", "--lengths", "64", "--rounds", "1", *weights)
    names = {cell["variant"] for cell in cells}
    assert {"eager", "sdpa", "fold", "skipping"} < names
    check(cells, names)
    assert {cell["weights"] for cell in cells} == {"random", "trained"}
    assert all(0 < cell["kept_share"] <= 1 for cell in cells)


def test_backends(bench, monkeypatch):
    small = {"TOKENS": 128, "HEADS": 2, "THREADS": (1,), "WIDTHS": (16,), "LENGTHS": (128,)}
    for name, value in small.items():
        monkeypatch.setattr(backends, name, value)
    cells = bench("backends", "--rounds", "1")
    check(cells, set(backends.CANDIDATES))
    assert {(c["phase"], c["weights"]) for c in cells} == {
        (phase, weights) for phase in ("train", "evaluate") for weights in ("random", "trained")
    }


def test_generate(bench, monkeypatch):
    monkeypatch.setattr(generate, "PROMPTS", {"quick": ((8, 4),), "full": ((8, 4),)})
    check(bench("generate", "--rounds", "1"), {"stock", "sinusoidal", "alibi"})


@pytest.mark.slow
def test_methods(bench):
    cells = bench("methods", "--lengths", "32", "--rounds", "1")
    check(cells, set(models.METHODS), "position_method")
    ratios = {cell["position_method"]: cell["memory_ratio"] for cell in cells}
    assert ratios.pop("sinusoidal") == 1 and set(ratios.values()) == {1.5}


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
    assert names < {cell["variant"] for cell in cells} and len(cells) == 6
    check(cells, {cell["variant"] for cell in cells})


@pytest.mark.slow
def test_peak_memory_is_that_of_a_process_of_its_own():
    wide = (*TOY.flags, "--decoder-ffn-embed-dim", "200000")
    small, large = (dataclasses.replace(TOY, tokens=16, flags=flags) for flags in (TOY.flags, wide))
    before, after = (models.peak_memory("alibi", shape, 16) for shape in (small, large))
    # Weights, gradients and Adam's two moments in fp32, and some activations.
    assert 1 < (after - before) / (2 * 200_000 * 16 * 16 / 1e6) < 3


def row_of(batch: dict, n: int) -> dict:
    inputs = {name: tensor[n : n + 1] for name, tensor in batch["net_input"].items()}
    target = batch["target"][n : n + 1]
    return {"net_input": inputs, "target": target, "ntokens": target.numel()}


def test_an_update_in_passes_is_the_same_update(monkeypatch):
    shape = dataclasses.replace(TOY, flags=(*TOY.flags, "--dropout", "0"))
    model, dictionary = models.build("alibi", shape, 16)
    whole = models.sample(dictionary, 4, 16, torch.device("cpu"))
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    losses, weights = [], []
    for passes, parts in ((1, [whole]), (4, [row_of(whole, n) for n in range(4)])):
        model.load_state_dict(start)
        monkeypatch.setattr(models, "sample", lambda *_, drawn=iter(parts): next(drawn))  # noqa: B008
        losses.append(models.training_step(model, dictionary, shape, 16, passes)())
        weights.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for name in start:
        assert torch.allclose(weights[0][name], weights[1][name], atol=1e-5), name
    assert models.WIKI103.paper_passes(3072) == 3 and models.WIKI103.paper_passes(1024) == 1


def test_methods_stand_beside_the_paper():
    ratios = methods.paper_ratios()
    assert ratios["t5", 3072]["paper_ratio"] == pytest.approx(4_300 / 15_300, abs=1e-3)
    assert ratios["alibi", 512]["paper_ratio"] == pytest.approx(28_300 / 28_500, abs=1e-3)


def test_greedy_decoding_is_the_same_with_and_without_a_cache():
    for name in ("stock", "sinusoidal", "alibi"):
        model, dictionary = models.build(name, TOY, 32)
        model.eval()
        tokens = models.sample(dictionary, 2, 8, torch.device("cpu"))["net_input"]["src_tokens"]
        cached, grown = generate.decode(model, tokens, 6), tokens
        with torch.no_grad():
            for _ in range(6):
                scores = model(grown)[0][:, -1:]
                grown = torch.cat([grown, scores.argmax(-1)], dim=1)
        assert torch.equal(cached, grown)


def test_the_page_has_a_table_for_each_result(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(table, "RESULTS", tmp_path)
    monkeypatch.setattr(table, "PAGE", tmp_path / "page.md")
    variants = {"stock", "materialised", "no bias", "sinusoidal", "alibi"}
    trained = bench("train", "--lengths", "16", "32", "--rounds", "1", "--no-memory")
    check(trained, variants)
    shared = {"length": 512, "baseline": "ours", "ratio": 1}
    made = [
        {"name": f"step, {name}", "variant": name, "ours_is_faster": ratio} | shared
        for name, ratio in (("ours", 1.0), ("bloom", 3.0))
    ]
    save_results_file(document(*made, kind="benchmark"), tmp_path / "peers-cpu.json")
    table.main()
    page = (tmp_path / "page.md").read_text()
    assert page.index("## Training steps\n") < page.index("## Training steps beside other")
    assert "a processor, 2 threads" in page and ["bloom", "3.00"] in cells_of(page)
    assert ["variant", "× stock, 16", "× stock, 32"] in cells_of(page)
    (row,) = (row for row in cells_of(page) if row[0] == "alibi" and len(row) == 3)
    measured = [cell["ratio"] for cell in trained if cell["variant"] == "alibi"]
    assert row == ["alibi", *(f"{ratio:.2f}" for ratio in measured)]


def test_the_committed_page_is_made_of_the_committed_results(tmp_path, monkeypatch):
    committed = table.PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(table, "PAGE", tmp_path / "page.md")
    table.main()
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == committed
