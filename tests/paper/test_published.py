"""Published numbers: completeness, and agreement where the paper prints a number twice."""

import itertools
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import alibi_fairseq.paper
from alibi_fairseq.paper import published as paper
from alibi_fairseq.paper.recipe import CONFIGS
from alibi_fairseq.paper.report_data import why_not_comparable
from alibi_fairseq.paper.seed_noise import Noise, noise_of

GRID = (64, 128, 256, 512, 1024, 1536, 2048, 3072)
SWEEP_METHODS = ("sinusoidal", "rotary", "t5", "alibi")


def at(item, method, train_length, length, subset="valid"):
    [perplexity] = {
        p.perplexity
        for p in paper.points(item)
        if (p.position_method, p.train_length, p.length, p.subset)
        == (method, train_length, length, subset)
    }
    return perplexity


def by_model(item):
    return {(row["position_method"], row["train_length"]): row for row in paper.rows(item)}


def test_index_lists_every_table_and_file():
    items = [row["item"] for row in paper.rows("index")]
    assert [i for i in items if i.startswith("table")] == [f"table{n:02d}" for n in range(1, 16)]
    files = {path.stem for path in paper.FOLDER.glob("*.csv")}
    assert files == {*items, "index", "notes", "noise", "replications", "settings"}
    for row in paper.rows("index"):
        assert row["name"].split()[1].zfill(2) == row["item"][-2:]
        assert paper.settings(row["corpus"]) and "2108.12409" in row["source"]
    assert {row["item"] for row in paper.rows("notes")} <= set(items)


@pytest.mark.parametrize(("item", "count"), [("table02", 35), ("table03", 35), ("table04", 33)])
def test_sweeps_match_table_5(item, count):
    lengths = [row["length"] for row in paper.rows(item)]
    first = lengths[0]
    points = paper.points(item)
    steps = [0, 1, *range(10, 101, 10), *range(200, 1001, 100), *range(2000, 15001, 1000)]
    assert len(lengths) == count and lengths == [first + step for step in steps[:count]]
    assert len(points) == 4 * count
    for point in points:
        assert point.nonoverlapping and point.train_length == first
        failed = point.position_method == "t5" and point.length > 13000 and point.length != 13072
        expected = ("OOM", True) if failed else ("", False)
        assert (point.status, point.perplexity is None) == expected
        assert (point.tokens_per_second_batch_1 is None) == failed
    for method in SWEEP_METHODS:
        assert at(item, method, first, first) == at("table05", method, first, first)


def test_table_5_is_complete():
    points = paper.points("table05")
    cells = {(p.train_length, p.length) for p in points if p.position_method == "alibi"}
    assert cells == {(a, b) for a in GRID for b in GRID if a <= b}
    assert len(points) == 36 + 8 + 3 + 3
    for train_length in GRID:  # longer windows never hurt ALiBi by more than 0.03
        row = [at("table05", "alibi", train_length, b) for b in GRID if b >= train_length]
        assert all(after <= before + 0.03 for before, after in itertools.pairwise(row))


@pytest.mark.parametrize(
    ("item", "other", "count"),
    [
        ("table06", "table05", 4),
        ("figure08", "table05", 6),
        ("table09", "table08", 2),
        ("figure05", "table11", 4),
        ("table12", "figure06", 4),
    ],
)
def test_repeated_perplexities_agree(item, other, count):
    cases = {(p.position_method, p.train_length, p.length, p.subset) for p in paper.points(other)}
    shared = 0
    for point in paper.points(item):
        case = (point.position_method, point.train_length, point.length, point.subset)
        if case in cases:
            assert point.perplexity == at(other, *case)
            shared += 1
    assert shared >= count, shared
    assert at("table11", "alibi", 512, 1024) == at("table12", "alibi", 512, 1024) == 9.30
    assert at("table11", "alibi", 1024, 2048) == at("table12", "alibi", 1024, 2048) == 8.92


def test_speeds_agree_with_table_1_and_text():
    speed = by_model("table01")
    assert set(speed) == {(m, n) for m in SWEEP_METHODS for n in (512, 1024, 3072)}
    for length, ratio in ((512, 0.993), (1024, 0.992), (3072, 1.013)):
        ours = speed["alibi", length]
        theirs = speed["sinusoidal", length]
        key = "train_words_per_second"
        assert round(ours[key] / theirs[key], 3) == ratio
        extra = ours["train_memory_gb"] - theirs["train_memory_gb"]
        assert 0 <= round(extra, 1) <= 0.1  # "0 to 100 MB"
    figure = by_model("figure07")
    assert set(figure) == {(m, n) for m in ("alibi", "sinusoidal") for n in GRID}
    for item, tolerance in (("table06", 0), ("figure07", 100)):
        for case, row in by_model(item).items():
            if case in speed and row["train_words_per_second"]:
                expected = speed[case]["train_words_per_second"]
                assert row["train_words_per_second"] == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize(
    ("item", "method"), [("table13", "sinusoidal"), ("table14", "t5"), ("table15", "alibi")]
)
def test_stride_1_tables_are_complete(item, method):
    points = paper.points(item)
    assert {p.position_method for p in points} == {method} and {p.stride for p in points} == {1}
    assert {(p.train_length, p.length) for p in points} == {
        (a, b) for a in (512, 1024, 3072) for b in (512, 1024, 1536, 2048, 3072) if a <= b
    }
    for length in (512, 1024, 3072):
        assert at(item, method, length, length) < at("table05", method, length, length)


def test_noise_matches_replications():
    assert noise_of("wikitext-103", 512) == Noise(0.24, 0.9, 2 * 18.67)
    assert noise_of("bookcorpus", 3072) == Noise(0.15, None, 2 * 14.52)
    assert noise_of("bookcorpus", 512) == Noise(0.39, None, 2 * 15.38)
    assert noise_of("cc100-roberta", 512) is None
    gaps = []
    for row in paper.rows("replications"):
        if "Shortformer" in row["source"] and row["corpus"] == "wikitext-103":
            item = "table05" if row["stride"] > 1 else "table13"
            printed = at(item, "sinusoidal", row["length"], row["length"])
            gaps.append(abs(row["perplexity"] - printed))
    [stated] = [r["perplexity"] for r in paper.rows("noise") if r["statistic"] == "largest_gap"]
    assert round(max(gaps), 2) == stated == 0.23 and len(gaps) == 10


def test_noise_verdicts():
    noise = Noise(0.24, 0.9, 37.0)
    ours = (20.244, 19.9, 20.25, 20.9, 19.09)
    assert [noise.verdict(perplexity, 20.0) for perplexity in ours] == list("==~~≠")
    assert Noise(0.15, None, 37.0).verdict(20.2, 20.0) == "≠"
    assert noise.verdict(400.1, 400.0) == ""  # the noise of models that fail is not known


@pytest.mark.parametrize(
    ("corpus", "changes", "why"),
    [
        ("wikitext-103", {}, None),
        ("wikitext-103", {"model_overrides": '{"attention_backend": "eager"}'}, None),
        ("bookcorpus", {"model": "alibi_lm_bookcorpus", "updates": None}, None),
        ("demo", {}, "not a corpus"),
        ("wikitext-103", {"model": "alibi_lm_tiny"}, "alibi_lm_wiki103"),
        ("wikitext-103", {"updates": None}, "not recorded"),
        ("wikitext-103", {"updates": 1000}, "286,000"),
        ("wikitext-103", {"model_overrides": '{"alibi_scale": 2}'}, "options of the model"),
    ],
)
def test_why_not_comparable_requires_paper_setting(corpus, changes, why):
    ours = replace(paper.points("table05")[0], model="alibi_lm_wiki103", updates=286000)
    reason = why_not_comparable(corpus, replace(ours, **changes))
    if why is None:
        assert reason is None
    else:
        assert why in reason


def test_installation_contains_tables_and_recipes(tmp_path, monkeypatch):
    source = Path(__file__).parents[2]
    for name in ("setup.py", "README.md"):
        shutil.copy(source / name, tmp_path)
    shutil.copytree(source / "alibi_fairseq", tmp_path / "alibi_fairseq")
    for folder in ("results/paper", "configs"):
        shutil.copytree(source / folder, tmp_path / folder)
    build = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", "built"]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True)
    installed = tmp_path / "built" / "alibi_fairseq" / "paper_data"
    brought = {path.name: path.read_bytes() for path in installed.iterdir()}
    assert brought == {path.name: path.read_bytes() for path in paper.FOLDER.glob("*.csv")}
    recipes = {str(p.relative_to(CONFIGS)) for p in CONFIGS.glob("*/*.yaml")}
    built = installed.with_name("configs")
    assert {str(p.relative_to(built)) for p in built.rglob("*.yaml")} == recipes
    monkeypatch.setattr(alibi_fairseq.paper, "__file__", str(built.with_name("paper") / "a.py"))
    assert alibi_fairseq.paper.data_folder("results/paper", "paper_data") == installed
    assert alibi_fairseq.paper.data_folder("configs", "configs") == built
