"""Published numbers: completeness, and agreement where the paper prints a number twice."""

import itertools
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fairseq_runs import training_config
from results_documents import as_ours, parse_flags, results_of

import alibi_fairseq.paper
from alibi_fairseq.models.config import (
    BookCorpusConfig,
    LargeConfig,
    Wiki103Config,
)
from alibi_fairseq.paper import published as paper
from alibi_fairseq.paper.comparability import incomparability_reason, size_options
from alibi_fairseq.paper.items import items
from alibi_fairseq.paper.recipe import CONFIGS, RECIPES, flags
from alibi_fairseq.paper.seed_noise import Noise, find_noise
from alibi_fairseq.positions.spec import MethodSpec
from alibi_fairseq.results.series import Stage
from alibi_fairseq.results.training_settings import collect_settings
from alibi_fairseq.results.values import TextSummary

GRID = (64, 128, 256, 512, 1024, 1536, 2048, 3072)
UNKNOWN = TextSummary()
SWEEP_METHODS = ("sinusoidal", "rotary", "t5", "alibi")


def model_and_evaluation(measurement):
    """Return method, training length, evaluation length, and split of a measurement."""
    return (
        measurement.method.notation,
        measurement.train_length,
        measurement.case.length,
        measurement.case.split,
    )


def at(item, method, train_length, length, subset="valid"):
    """Return the perplexity that a table or figure prints."""
    perplexities = set()
    for measurement in items()[item].measurements:
        if model_and_evaluation(measurement) == (method, train_length, length, subset):
            perplexities.add(measurement.perplexity)
    [perplexity] = perplexities
    return perplexity


def by_model(item):
    """Return the rows of a table by method and training length."""
    return {(row["position_method"], row["train_length"]): row for row in paper.rows(item)}


def lengths_of(measurements):
    """Return the pairs of training length and evaluation length."""
    return {(measurement.train_length, measurement.case.length) for measurement in measurements}


def longer_pairs(train_lengths, lengths):
    """Return the pairs of a training length and an evaluation length that is not shorter."""
    pairs = set()
    for train_length, length in itertools.product(train_lengths, lengths):
        if length >= train_length:
            pairs.add((train_length, length))
    return pairs


def test_index_lists_every_table():
    tables = [item.key for item in items().values() if item.is_table]
    assert tables == [f"table{number:02d}" for number in range(1, 16)]


def test_index_lists_every_file():
    numbers = {numbers for item in items().values() for numbers in item.numbers}
    files = {path.stem for path in paper.FOLDER.glob("*.csv")}
    assert files == {*numbers, "index", "notes", "noise", "replications", "settings"}
    assert {row["item"] for row in paper.rows("notes")} <= set(items())


def test_index_describes_each_item():
    for row in paper.rows("index"):
        number = row["name"].split()[1]
        assert number.zfill(2) == row["item"][-2:]
        if row["drawing"] != "diagram":
            assert paper.paper_setting(row["corpus"])
        assert "2108.12409" in row["source"]


SWEEPS = pytest.mark.parametrize(
    ("item", "count"), [("table02", 35), ("table03", 35), ("table04", 33)]
)


@SWEEPS
def test_sweeps_have_published_lengths(item, count):
    steps = [0, 1, *range(10, 101, 10), *range(200, 1001, 100), *range(2000, 15001, 1000)]
    lengths = [row["length"] for row in paper.rows(item) if row["position_method"] == "alibi"]
    assert lengths == [lengths[0] + step for step in steps[:count]]
    assert len(items()[item].measurements) == 4 * count


@SWEEPS
def test_sweeps_state_where_t5_ran_out_of_memory(item, count):
    first = paper.rows(item)[0]["length"]
    for measurement in items()[item].measurements:
        assert measurement.case.nonoverlapping
        assert measurement.train_length == first
        is_long = measurement.case.length > 13000 and measurement.case.length != 13072
        failed = measurement.method.notation == "t5" and is_long
        assert measurement.status == ("OOM" if failed else "")
        assert (measurement.perplexity is None) == failed
        assert (measurement.words_per_second is None) == failed


@SWEEPS
def test_sweeps_match_table_5(item, count):
    first = paper.rows(item)[0]["length"]
    for method in SWEEP_METHODS:
        assert at(item, method, first, first) == at("table05", method, first, first)


def test_table_5_is_complete():
    measurements = items()["table05"].measurements
    of_alibi = [
        measurement for measurement in measurements if measurement.method.notation == "alibi"
    ]
    assert lengths_of(of_alibi) == longer_pairs(GRID, GRID)
    assert len(measurements) == 36 + 8 + 3 + 3


@pytest.mark.parametrize("train_length", GRID)
def test_longer_windows_of_table_5_help_alibi(train_length):
    """A longer window raises ALiBi's perplexity by at most 0.03."""
    lengths = [length for length in GRID if length >= train_length]
    perplexities = [at("table05", "alibi", train_length, length) for length in lengths]
    for shorter, longer in itertools.pairwise(perplexities):
        assert longer <= shorter + 0.03


@pytest.mark.parametrize(
    ("item", "other_item", "count"),
    [
        ("table06", "table05", 4),
        ("figure08", "table05", 6),
        ("table09", "table08", 2),
        ("figure05", "table11", 4),
        ("table12", "figure06", 4),
    ],
)
def test_repeated_perplexities_agree(item, other_item, count):
    in_other_item = {model_and_evaluation(printed) for printed in items()[other_item].measurements}
    num_shared = 0
    for measurement in items()[item].measurements:
        is_printed = measurement.perplexity is not None
        if is_printed and model_and_evaluation(measurement) in in_other_item:
            assert measurement.perplexity == at(other_item, *model_and_evaluation(measurement))
            num_shared += 1
    assert num_shared >= count


@pytest.mark.parametrize("item", ["table11", "table12"])
def test_perplexities_of_the_text_are_in_tables(item):
    assert at(item, "alibi", 512, 1024) == 9.30
    assert at(item, "alibi", 1024, 2048) == 8.92


def test_table_1_is_complete():
    models = itertools.product(SWEEP_METHODS, (512, 1024, 3072))
    assert set(by_model("table01")) == set(models)


@pytest.mark.parametrize(("length", "ratio"), [(512, 0.993), (1024, 0.992), (3072, 1.013)])
def test_table_1_agrees_with_statements_of_the_text(length, ratio):
    table = by_model("table01")
    alibi = table["alibi", length]
    sinusoidal = table["sinusoidal", length]
    speed_ratio = alibi["train_words_per_second"] / sinusoidal["train_words_per_second"]
    assert round(speed_ratio, 3) == ratio
    extra_memory = alibi["train_memory_gb"] - sinusoidal["train_memory_gb"]
    assert 0 <= round(extra_memory, 1) <= 0.1  # "0 to 100 MB"


def test_figure_7_is_complete():
    models = itertools.product(("alibi", "sinusoidal"), GRID)
    assert set(by_model("figure07")) == set(models)


@pytest.mark.parametrize(("item", "count", "tolerance"), [("table06", 5, 0), ("figure07", 6, 100)])
def test_speeds_agree_with_table_1(item, count, tolerance):
    table = by_model("table01")
    shared = 0
    for model, row in by_model(item).items():
        speed = row["train_words_per_second"]
        if model in table and speed:
            expected = table[model]["train_words_per_second"]
            assert speed == pytest.approx(expected, abs=tolerance)
            shared += 1
    assert shared == count


@pytest.mark.parametrize(
    ("item", "method"), [("table13", "sinusoidal"), ("table14", "t5"), ("table15", "alibi")]
)
def test_stride_1_tables_are_complete(item, method):
    train_lengths = (512, 1024, 3072)
    lengths = (512, 1024, 1536, 2048, 3072)
    measurements = items()[item].measurements
    assert {measurement.method.notation for measurement in measurements} == {method}
    assert {measurement.case.stride for measurement in measurements} == {1}
    assert lengths_of(measurements) == longer_pairs(train_lengths, lengths)
    for length in train_lengths:
        assert at(item, method, length, length) < at("table05", method, length, length)


@pytest.mark.parametrize(
    ("corpus", "train_length", "noise"),
    [
        ("wikitext-103", 512, Noise(0.24, 0.9, 2 * 18.67)),
        ("bookcorpus", 3072, Noise(0.15, None, 2 * 14.52)),
        ("bookcorpus", 512, Noise(0.39, None, 2 * 15.38)),
        ("cc100-roberta", 512, None),
    ],
)
def test_noise_is_as_published(corpus, train_length, noise):
    assert find_noise(corpus, train_length) == noise


def test_largest_gap_is_that_of_replications():
    gaps = []
    for row in paper.rows("replications"):
        if "Shortformer" in row["source"] and row["corpus"] == "wikitext-103":
            item = "table05" if row["stride"] > 1 else "table13"
            printed = at(item, "sinusoidal", row["length"], row["length"])
            gaps.append(abs(row["perplexity"] - printed))
    noise = {row["statistic"]: row for row in paper.rows("noise")}
    stated = noise["largest_gap"]["perplexity"]
    assert stated == 0.23
    assert round(max(gaps), 2) == stated
    assert len(gaps) == 10


@pytest.mark.parametrize(
    ("perplexity", "mark"),
    [(20.244, "="), (19.9, "="), (20.25, "~"), (20.9, "~"), (19.09, "≠")],
)
def test_noise_marks(perplexity, mark):
    assert Noise(0.24, 0.9, 37.0).mark(perplexity, 20.0) == mark


def test_mark_without_range_of_seeds():
    assert Noise(0.15, None, 37.0).mark(20.2, 20.0) == "≠"


def test_models_that_fail_have_no_mark():
    """The noise of their perplexities has not been measured."""
    assert Noise(0.24, 0.9, 37.0).mark(400.1, 400.0) == ""


def trained_with(flags: str, method: str = "alibi") -> dict:
    """Return the options of the training of a model, and its position method as in ``compare``."""
    options = {"task": "language_modeling", **parse_flags(flags)}
    return {"options": options, "method": MethodSpec.parse(method)}


def with_method(method: str) -> dict:
    """Return the position method of a model, given as in ``compare``."""
    return trained_with("", method)


EIGHT_GPUS = "--max-tokens 9216 --distributed-world-size 8 --required-batch-size-multiple 1"


@pytest.mark.parametrize(
    ("corpus", "changes", "why"),
    [
        ("wikitext-103", {}, None),
        ("wikitext-103", {"overrides": {"attention_backend": "eager"}}, None),
        ("bookcorpus", {"architecture": "alibi_lm_bookcorpus", "updates": None}, None),
        # In folders of these names.
        ("bookcorpus", {"architecture": "alibi_lm_bookcorpus", "text": UNKNOWN}, "no manifest"),
        ("cc100-roberta", {"architecture": "alibi_lm_1b3", "text": UNKNOWN}, "no manifest"),
        ("wikitext-103", {"text": UNKNOWN}, None),
        ("wikitext-103", {"layers": 16, "width": 1024}, None),
        ("wikitext-103", {"layers": 2, "width": 64}, "2 layers of width 64, the paper's 16"),
        ("wikitext-103", {"width": 64}, "16 layers of width 64"),
        ("wikitext-103", {"vocabulary": 267_744}, None),
        ("wikitext-103", {"vocabulary": 32_000}, "32,000 entries, the paper's 267,744"),
        (
            "wikitext-103",
            trained_with("--decoder-attention-heads 4"),
            "--decoder-attention-heads 4",
        ),
        (
            "wikitext-103",
            trained_with("--decoder-ffn-embed-dim 256"),
            "--decoder-ffn-embed-dim 256",
        ),
        (
            "wikitext-103",
            trained_with("--decoder-attention-heads 8 --decoder-input-dim 1024"),
            None,
        ),
        ("demo", {}, "not a corpus"),
        ("wikitext-103", {"architecture": "alibi_lm_tiny"}, "alibi_lm_wiki103"),
        ("wikitext-103", {"updates": None}, "not recorded"),
        ("wikitext-103", {"updates": 1000}, "286,000"),
        ("wikitext-103", {"overrides": {"alibi_scale": 2}}, "options of the model"),
        ("wikitext-103", {"score_from": 512}, "only a part of the tokens"),
        ("wikitext-103", {"score_to": 512}, "only a part of the tokens"),
        ("wikitext-103", with_method("alibi/alibi_bias_max=8/attention_window=0"), None),
        ("wikitext-103", with_method("transformer_xl/mem_len=512"), None),
        ("wikitext-103", trained_with(EIGHT_GPUS), None),
        (
            "wikitext-103",
            trained_with(EIGHT_GPUS.replace("-size 8", "-size 1")),
            "9,216 tokens per update, the paper 73,728",
        ),
        (
            "wikitext-103",
            trained_with(EIGHT_GPUS + " --update-freq 2"),
            "147,456 tokens per update",
        ),
        (
            "wikitext-103",
            trained_with(EIGHT_GPUS + " --sample-break-mode eos"),
            "trains without --sample-break-mode eos",
        ),
        ("wikitext-103", with_method("alibi/attention_window=16"), "--attention-window 16"),
        ("wikitext-103", trained_with("--block-diagonal=eos"), "--block-diagonal eos"),
        ("wikitext-103", with_method("alibi/score_scaling=logn"), "--score-scaling logn"),
        ("wikitext-103", with_method("alibi/alibi_bias_max=16"), "--alibi-bias-max 16"),
        ("wikitext-103", with_method("t5/t5_max_distance=20"), "--t5-max-distance 20"),
        ("wikitext-103", with_method("alibi/alibi_scale=4"), "--alibi-scale 4"),
        ("wikitext-103", with_method("rotary/rotary_scaling=pi:4"), "--rotary-scaling pi:4"),
        (
            "wikitext-103",
            with_method("learned/clamp_learned_positions=true"),
            "--clamp-learned-positions",
        ),
        ("wikitext-103", trained_with("--ffn swiglu"), "--ffn swiglu"),
        ("wikitext-103", trained_with("--no-linear-biases"), "--no-linear-biases"),
        ("wikitext-103", trained_with("--normalize-queries-keys"), "--normalize-queries-keys"),
    ],
)
def test_why_not_comparable_requires_paper_setting(corpus, changes, why):
    settings = {"architecture": "alibi_lm_wiki103", "updates": 286000, "corpus": corpus}
    ours = as_ours(items()["table05"].measurements[0], **settings | changes)
    (result,) = results_of(ours)
    reason = incomparability_reason(result)
    if why is None:
        assert reason is None
    else:
        assert why in reason


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, None),
        (trained_with(EIGHT_GPUS.replace("-size 8", "-size 4") + " --update-freq 2"), None),
        (trained_with(EIGHT_GPUS + " --bf16"), None),
        ({"train_length": 512}, "the model was ALiBi, L=512"),
        ({"method": MethodSpec.plain("rotary")}, "the model was Rotary, L=64"),
        (trained_with(EIGHT_GPUS + " --update-freq 2"), "147,456 tokens per update"),
        (trained_with(EIGHT_GPUS + " --block-diagonal eos"), "--block-diagonal eos"),
    ],
)
def test_resumed_training_requires_paper_setting_from_its_start(changes, why):
    settings = {"architecture": "alibi_lm_wiki103", "updates": 286000, "corpus": "wikitext-103"}
    settings |= trained_with(EIGHT_GPUS)
    printed = items()["table05"].measurements[0]
    result, earlier = results_of(
        as_ours(printed, **settings), as_ours(printed, **settings | changes)
    )
    history = (Stage(1000, earlier.series.settings),)
    resumed = replace(result, series=replace(result.series, history=history))
    reason = incomparability_reason(resumed)
    if why is None:
        assert reason is None
    else:
        assert reason.startswith("before update 1,000: ")
        assert why in reason


def test_training_from_other_weights_is_not_comparable():
    ours = as_ours(
        items()["table05"].measurements[0],
        architecture="alibi_lm_wiki103",
        updates=286000,
        corpus="wikitext-103",
    )
    (result,) = results_of(ours)
    finetuned = replace(result, series=replace(result.series, start="a" * 64))
    assert incomparability_reason(finetuned) == "the training started from a checkpoint"


WIKITEXT = [recipe for recipe in RECIPES.values() if recipe.folder == "wikitext-103"]


@pytest.mark.ci
@pytest.mark.parametrize("recipe", WIKITEXT, ids=lambda recipe: recipe.name)
def test_recipes_of_paper_are_comparable(recipe):
    ours = as_ours(
        items()["table05"].measurements[0],
        corpus="wikitext-103",
        architecture="alibi_lm_wiki103",
        updates=286000,
        method=recipe.position_method,
        train_length=recipe.train_length,
    )
    for gpus in (recipe.batch.gpus, 1):
        config = training_config(*flags(recipe.settings(gpus)))
        (result,) = results_of(ours)
        series = replace(result.series, settings=collect_settings(config, gpus, None, None))
        reason = incomparability_reason(replace(result, series=series))
        if recipe.name.endswith("-corrected"):
            assert reason == "73,728 tokens per update, the paper 65,536"
        else:
            assert reason is None


@pytest.mark.parametrize(
    ("corpus", "config"),
    [
        ("wikitext-103", Wiki103Config),
        ("bookcorpus", BookCorpusConfig),
        ("cc100-roberta", LargeConfig),
    ],
)
def test_comparability_knows_sizes_of_models(corpus, config):
    for option, value in size_options(paper.paper_setting(corpus)).items():
        default = getattr(config, option)
        if default is not None:  # widths of input and output are the model's
            assert value == default


@pytest.fixture
def installed(tmp_path):
    """Build the package from a copy, and return the package's folder as installed."""
    source = Path(__file__).parents[2]
    for name in ("setup.py", "README.md"):
        shutil.copy(source / name, tmp_path)
    for folder in ("alibi_fairseq", "results/paper", "configs"):
        shutil.copytree(source / folder, tmp_path / folder)
    build = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", "built"]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True)
    return tmp_path / "built" / "alibi_fairseq"


def test_installation_contains_tables_and_recipes(installed, monkeypatch):
    tables = installed / "paper_data"
    contents = {path.name: path.read_bytes() for path in tables.iterdir()}
    assert contents == {path.name: path.read_bytes() for path in paper.FOLDER.glob("*.csv")}

    configs = installed / "configs"
    for pattern in ("*/*.yaml", "*/*.csv", "*.csv"):
        files = {str(path.relative_to(CONFIGS)) for path in CONFIGS.glob(pattern)}
        assert files
        assert {str(path.relative_to(configs)) for path in configs.glob(pattern)} == files

    monkeypatch.setattr(alibi_fairseq.paper, "__file__", str(installed / "paper" / "a.py"))
    assert alibi_fairseq.paper.packaged_folder("results/paper", "paper_data") == tables
    assert alibi_fairseq.paper.packaged_folder("configs", "configs") == configs
