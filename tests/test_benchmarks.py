"""Every benchmark runs from its command line, at toy size, and the page is made of its results."""

from __future__ import annotations

import dataclasses
import importlib
import sys

import pytest
import torch
from results_documents import document

from alibi_fairseq.results.schema import load_document, save_document
from benchmarks import backends, common, generate, methods, models, output_layer, table

TOY = dataclasses.replace(
    models.SMALL,
    name="toy",
    words=64,
    flags=(
        *("--decoder-layers", "1", "--decoder-embed-dim", "16", "--decoder-ffn-embed-dim", "16"),
        *("--decoder-attention-heads", "2"),
    ),
    tokens=64,
)


def peak_memory(module: str, option: str, variant: str, *rest) -> float:
    """Stands in for a process that measures its own."""
    return 100.0 if variant == "sinusoidal" else 150.0


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """Run one benchmark on toy models; returns its cells."""
    monkeypatch.setattr(models, "SMALL", TOY)
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    monkeypatch.setattr(common, "matmul_peak", lambda where, dtype: 1e9)
    monkeypatch.setattr(common, "in_a_process_of_its_own", peak_memory)

    def run(name: str, *arguments: str) -> list[dict]:
        module = importlib.import_module(f"benchmarks.{name}")
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        module.main()
        return load_document(tmp_path / f"{name}-{common.device().type}.json")["cells"]

    return run


def check(cells: list[dict], variants: set[str], key: str = "variant") -> None:
    assert {cell[key] for cell in cells} == variants
    baselines = [cell for cell in cells if cell[key] == cell["baseline"]]
    assert baselines and all(cell["ratio"] == 1 for cell in baselines)
    assert all(cell["ratio"] > 0 for cell in cells)


@pytest.mark.slow
def test_train(bench):
    cells = bench("train", "--lengths", "16", "32", "--rounds", "1")
    check(cells, {"stock", "materialised", "no bias", "sinusoidal", "alibi"})
    assert {cell["batch"] for cell in cells} == {4, 2}
    assert all(
        cell["peak_memory_mb"] == (100 if cell["variant"] == "sinusoidal" else 150)
        for cell in cells
    )


def test_attention(bench):
    cells = bench("attention", "--lengths", "64", "--rounds", "1")
    names = {cell["variant"] for cell in cells}
    assert {"eager", "sdpa", "fold", "skipping"} < names
    check(cells, names)


@pytest.mark.slow
def test_methods(bench):
    cells = bench("methods", "--lengths", "32", "--rounds", "1")
    check(cells, set(models.METHODS), "position_method")
    assert all(cell["evaluation_ratio"] > 0 for cell in cells)
    ratios = {cell["position_method"]: cell["memory_ratio"] for cell in cells}
    assert ratios.pop("sinusoidal") == 1 and set(ratios.values()) == {1.5}
    assert {(cell["phase"], cell["attention_dropout"]) for cell in cells} == {("train", 0.1)}


def rows_of(batch: dict, first: int, last: int) -> dict:
    inputs = {name: tensor[first:last] for name, tensor in batch["net_input"].items()}
    target = batch["target"][first:last]
    return {"net_input": inputs, "target": target, "ntokens": target.numel()}


def test_an_update_in_passes_is_the_same_update(monkeypatch):
    shape = dataclasses.replace(TOY, flags=(*TOY.flags, "--dropout", "0"))
    torch.manual_seed(1)
    model, dictionary = models.build("alibi", shape, 16)
    whole = models.sample(dictionary, 4, 16, torch.device("cpu"))
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    losses, weights = [], []
    for passes, parts in ((1, [whole]), (4, [rows_of(whole, n, n + 1) for n in range(4)])):
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
    assert names < {cell["variant"] for cell in cells} and len(cells) == 10
    check(cells, {cell["variant"] for cell in cells})
    assert all(cell["memory_ratio"] == 1 for cell in cells)


def test_joined_projections_compute_the_same():
    torch.manual_seed(1)
    model, dictionary = models.build("alibi", TOY, 16)
    model.eval()
    tokens = models.sample(dictionary, 2, 16, torch.device("cpu"))["net_input"]["src_tokens"]
    results = []
    for change in (lambda model: None, output_layer.join_projections):
        change(model)
        model.zero_grad()
        scores = model(tokens)[0]
        scores.square().mean().backward()
        results.append([scores.detach(), *(p.grad.clone() for p in model.parameters())])
    for found, expected in zip(*results, strict=True):
        assert torch.allclose(found, expected, atol=1e-6)


def test_backends(bench, monkeypatch):
    monkeypatch.setattr(backends, "TOKENS", 128)
    shape = ("--head-sizes", "16", "--heads", "2", "--lengths", "128")
    cells = bench("backends", *shape, "--rounds", "1")
    check(cells, set(backends.CANDIDATES))
    assert {(c["phase"], c["weights"]) for c in cells} == {
        (phase, weights) for phase in ("train", "evaluate") for weights in ("random", "trained")
    }
    (row, _) = table.side_by_side(cells)
    assert row["sdpa"] == 1 and row["fold"] > 0 and row["skipping"] > 0


def test_generate(bench, monkeypatch):
    monkeypatch.setattr(generate, "PROMPTS", {"quick": ((8, 4),), "full": ((8, 4),)})
    check(bench("generate", "--rounds", "1"), {"stock", "sinusoidal", "alibi"})


def test_greedy_decoding_is_the_same_with_and_without_a_cache():
    for name in ("stock", "sinusoidal", "alibi"):
        torch.manual_seed(1)
        model, dictionary = models.build(name, TOY, 32)
        model.eval()
        tokens = models.sample(dictionary, 2, 8, torch.device("cpu"))["net_input"]["src_tokens"]
        cached, grown = generate.decode(model, tokens, 6), tokens
        with torch.no_grad():
            for _ in range(6):
                scores = model(grown)[0][:, -1:]
                grown = torch.cat([grown, scores.argmax(-1)], dim=1)
        assert torch.equal(cached, grown)


def test_skipping_on_a_trained_model(bench, trained):
    options = ("--path", str(trained("alibi")), "--data", str(trained.data), "--lengths", "150")
    cells = bench("skipping", *options)
    assert {(cell["weights"], cell["length"]) for cell in cells} == {
        ("trained", 150),
        ("random", 150),
    }
    assert all(0 <= cell["skipped_share"] < 1 and cell["window"] > 0 for cell in cells)


def test_the_readme_gets_a_sentence_about_peers(tmp_path, monkeypatch):
    assert table.README.read_text(encoding="utf-8").count(table.MARK) == 1
    cells = [
        {"name": f"step, {name}", "variant": name, "length": length, "baseline": "alibi_fairseq"}
        | {"ratio": 0.5, "ours_is_faster": factor * length / 1024}
        for length in (512, 3072)
        for name, factor in (("bloom", 1), ("x-transformers", 2), ("x-transformers, flash", 0.5))
    ]
    save_document(document(*cells, kind="benchmark"), tmp_path / "peers-cpu.json")
    monkeypatch.setattr(table, "RESULTS", tmp_path)
    monkeypatch.setattr(table, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(table, "README", tmp_path / "README.md")
    (tmp_path / "README.md").write_text(f"Before.\n\n{table.MARK}Two\nlines.\n\nBehind.\n")
    table.main()
    found = (tmp_path / "README.md").read_text()
    assert "3,072 tokens takes 3.0 times" in found and "6.0 times" in found and "(1.5" in found
    assert found.startswith(f"Before.\n\n{table.MARK}On 2 CPU threads")
    assert found.endswith("\n\nBehind.\n") and "Two" not in found


def test_the_page_has_a_table_for_each_result(bench, tmp_path, monkeypatch):
    bench("train", "--lengths", "16", "--rounds", "1")
    bench("methods", "--lengths", "32", "--rounds", "1", "--methods", "sinusoidal", "alibi")
    monkeypatch.setattr(table, "RESULTS", tmp_path)
    monkeypatch.setattr(table, "PAGE", tmp_path / "README.md")
    table.main()
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "## Training steps" in page and "| alibi |" in page
    assert "The paper's Table 1" in page
