"""The paper's numbers must agree with each other wherever it prints a number twice."""

import itertools
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from alibi_fairseq.errors import BadInput
from alibi_fairseq.paper import published as paper
from alibi_fairseq.paper.recipe import CONFIGS
from alibi_fairseq.reporting.collect import why_not_comparable
from alibi_fairseq.reporting.paper_tables import Noise, noise_of

GRID = (64, 128, 256, 512, 1024, 1536, 2048, 3072)
SWEEP_METHODS = ("sinusoidal", "rotary", "t5", "alibi")


def at(item, method, train_length, length, subset="valid"):
    [point] = [
        p
        for p in paper.points(item)
        if (p.position_method, p.train_length, p.length, p.subset)
        == (method, train_length, length, subset)
    ]
    return point.perplexity


def test_index_lists_every_table_and_every_file():
    items = [row["item"] for row in paper.rows("index")]
    assert [i for i in items if i.startswith("table")] == [f"table{n:02d}" for n in range(1, 16)]
    files = {path.stem for path in paper.folder().glob("*.csv")}
    assert files == {*items, "index", "notes", "noise", "replications", "settings"}
    for row in paper.rows("index"):
        assert row["name"].split()[1].zfill(2) == row["item"][-2:]
        assert row["corpus"] in paper.corpora() and "2108.12409" in row["source"]
    assert {row["item"] for row in paper.rows("notes")} <= set(items)


def test_alibi_trained_at_512_evaluated_at_3072():
    for item in ("table05", "table06", "figure08"):
        assert at(item, "alibi", 512, 3072) == 18.40


@pytest.mark.parametrize(("item", "count"), [("table02", 35), ("table03", 35), ("table04", 33)])
def test_sweeps_are_complete(item, count):
    rows = paper.rows(item)
    lengths = [row["length"] for row in rows]
    assert len(rows) == count and lengths == sorted(set(lengths))
    first = lengths[0]
    steps = [0, 1, *range(10, 101, 10), *range(200, 1001, 100), *range(2000, 15001, 1000)]
    longest = 13000 if item == "table04" else 15000
    assert lengths == [first + step for step in steps if step <= longest]
    points = paper.points(item)
    assert len(points) == 4 * count
    for point in points:
        assert point.nonoverlapping and point.train_length == first
        failed = point.position_method == "t5" and point.length > 13000 and point.length != 13072
        assert (point.status, point.perplexity is None) == (
            ("OOM", True) if failed else ("", False)
        )
        assert (point.tokens_per_second_batch_1 is None) == failed


@pytest.mark.parametrize("item", ["table02", "table03", "table04"])
def test_sweeps_start_at_table_5(item):
    first = paper.rows(item)[0]["length"]
    for method in SWEEP_METHODS:
        assert at(item, method, first, first) == at("table05", method, first, first)


def test_table_5_is_the_whole_triangle():
    cells = {
        (p.train_length, p.length) for p in paper.points("table05") if p.position_method == "alibi"
    }
    assert cells == {(a, b) for a in GRID for b in GRID if a <= b}
    assert len(paper.points("table05")) == 36 + 8 + 3 + 3
    for train_length in GRID:  # longer windows never hurt ALiBi by more than 0.03
        row = [at("table05", "alibi", train_length, b) for b in GRID if b >= train_length]
        assert all(after <= before + 0.03 for before, after in itertools.pairwise(row))


def test_table_6_repeats_table_5_and_table_1():
    for point in paper.points("table06"):
        if point.subset == "valid":
            expected = at("table05", point.position_method, point.train_length, point.length)
            assert point.perplexity == expected
    speeds = {(r["position_method"], r["train_length"]): r for r in paper.rows("table01")}
    for row in paper.rows("table06"):
        speed = speeds[row["position_method"], row["train_length"]]
        assert row["train_words_per_second"] == speed["train_words_per_second"]


def test_table_1_has_every_case_and_the_ratios_of_the_text():
    speed = {(r["position_method"], r["train_length"]): r for r in paper.rows("table01")}
    assert set(speed) == {(m, n) for m in SWEEP_METHODS for n in (512, 1024, 3072)}

    def ratio(length):
        rows = speed["alibi", length], speed["sinusoidal", length]
        return rows[0]["train_words_per_second"] / rows[1]["train_words_per_second"]

    assert [round(ratio(n), 3) for n in (512, 1024, 3072)] == [0.993, 0.992, 1.013]
    for length in (512, 1024, 3072):
        extra = (
            speed["alibi", length]["train_memory_gb"]
            - speed["sinusoidal", length]["train_memory_gb"]
        )
        assert 0 <= round(extra, 1) <= 0.1  # "0 to 100 MB"


def test_figure_7_repeats_table_1():
    figure = {(r["position_method"], r["train_length"]): r for r in paper.rows("figure07")}
    assert set(figure) == {(m, n) for m in ("alibi", "sinusoidal") for n in GRID}
    for row in paper.rows("table01"):
        case = row["position_method"], row["train_length"]
        if case in figure:
            expected = row["train_words_per_second"]
            assert figure[case]["train_words_per_second"] == pytest.approx(expected, abs=100)


def test_figure_8_repeats_table_5():
    for point in paper.points("figure08"):
        expected = at("table05", point.position_method, point.train_length, 3072)
        assert point.perplexity == expected and point.length == 3072


def test_books_agree_between_tables():
    assert len(paper.points("table08")) == 9
    for point in paper.points("table09"):
        if point.subset == "valid":
            expected = at("table08", point.position_method, point.train_length, point.length)
            assert point.perplexity == expected
    assert {p.stride for p in (*paper.points("table07"), *paper.points("table10"))} == {512}
    assert at("table10", "alibi", 512, 3072) > at("table09", "alibi", 512, 3072)  # as noted


def test_large_models_agree_between_tables_and_figures():
    assert at("table11", "alibi", 512, 1024) == at("table12", "alibi", 512, 1024) == 9.30
    assert at("table11", "alibi", 1024, 2048) == at("table12", "alibi", 1024, 2048) == 8.92
    for item, count in (("table11", 4), ("table12", 12), ("figure05", 4), ("figure06", 49)):
        assert len(paper.rows(item)) == count
    for point in paper.points("figure05"):
        expected = at("table11", point.position_method, point.train_length, point.length)
        assert point.perplexity == expected
    for method in ("alibi", "sinusoidal"):
        for length in (512, 1024):
            assert at("figure06", method, length, length) == at("table12", method, length, length)


@pytest.mark.parametrize(
    ("item", "method"), [("table13", "sinusoidal"), ("table14", "t5"), ("table15", "alibi")]
)
def test_stride_1_tables_are_complete(item, method):
    points = paper.points(item)
    assert {p.position_method for p in points} == {method} and {p.stride for p in points} == {1}
    assert {(p.train_length, p.length) for p in points} == {
        (a, b) for a in (512, 1024, 3072) for b in (512, 1024, 1536, 2048, 3072) if a <= b
    }


def test_stride_1_is_never_worse_than_non_overlapping_at_the_training_length():
    for item, method in (("table13", "sinusoidal"), ("table14", "t5"), ("table15", "alibi")):
        for length in (512, 1024, 3072):
            sliding = at(item, method, length, length)
            assert sliding < at("table05", method, length, length)


def test_noise_band_is_what_the_reruns_show():
    assert noise_of("wikitext-103", 512) == Noise(0.24, 0.9, 2 * 18.67)
    assert noise_of("bookcorpus", 3072) == Noise(0.15, None, 2 * 14.52)
    assert noise_of("bookcorpus", 512) == Noise(0.39, None, 2 * 15.38)
    assert noise_of("cc100-roberta", 512) is None
    reruns = [r for r in paper.rows("replications") if "Shortformer" in r["source"]]
    gaps = [
        abs(
            r["perplexity"]
            - at(
                "table05" if r["stride"] > 1 else "table13", "sinusoidal", r["length"], r["length"]
            )
        )
        for r in reruns
        if r["corpus"] == "wikitext-103"
    ]
    [stated] = [r["perplexity"] for r in paper.rows("noise") if r["statistic"] == "largest_gap"]
    assert round(max(gaps), 2) == stated == 0.23 and len(gaps) == 10


def test_verdicts():
    noise = Noise(0.24, 0.9, 37.0)
    ours = (20.244, 19.9, 20.25, 20.9, 19.09)
    assert [noise.verdict(perplexity, 20.0) for perplexity in ours] == list("==~~≠")
    assert Noise(0.15, None, 37.0).verdict(20.2, 20.0) == "≠"
    assert noise.verdict(400.1, 400.0) == ""  # the noise of models that fail is not known


def test_only_the_papers_setting_is_comparable():
    ours = replace(paper.points("table05")[0], model="alibi_lm_wiki103", updates=286000)
    assert why_not_comparable("wikitext-103", ours) is None
    assert why_not_comparable("wikitext-103", replace(ours, updates=280000)) is None
    for corpus, changes, why in (
        ("demo", {}, "not a corpus"),
        ("wikitext-103", {"model": "alibi_lm_tiny"}, "alibi_lm_wiki103"),
        ("wikitext-103", {"model": None}, "alibi_lm_wiki103"),
        ("wikitext-103", {"updates": None}, "not recorded"),
        ("wikitext-103", {"updates": 1000}, "286,000"),
    ):
        assert why in why_not_comparable(corpus, replace(ours, **changes))
    books = replace(ours, model="alibi_lm_bookcorpus", updates=None)
    assert why_not_comparable("bookcorpus", books) is None


def test_missing_tables_are_said(monkeypatch, tmp_path):
    monkeypatch.setattr(paper, "_FOLDERS", (tmp_path,))
    with pytest.raises(BadInput, match="not installed"):
        paper.folder()


def test_an_installed_copy_brings_tables_and_recipes(tmp_path):
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
    assert brought == {path.name: path.read_bytes() for path in paper.folder().glob("*.csv")}
    assert installed.name == paper._FOLDERS[1].name
    recipes = {str(p.relative_to(CONFIGS)) for p in CONFIGS.glob("*/*.yaml")}
    built = installed.with_name("configs")
    assert {str(p.relative_to(built)) for p in built.rglob("*.yaml")} == recipes
