"""The page of a GPU study, written from the results of the small models."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from test_small_models_pages import record_divergence

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.experiment.config_files import load_config
from alibi_fairseq.experiment.planned_evaluations import plan_sweeps
from studies.__main__ import main
from studies.config import StudyConfig

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "small_models"
GPU_CONFIGS = sorted((ROOT / "studies" / "gpu").glob("*.yaml"))


def write_config(path: Path, small_models: str = "primary", **changes) -> Path:
    """Write a configuration of the small models that has a separate page; return its path."""
    config = yaml.safe_load((ROOT / f"studies/small_models/{small_models}.yaml").read_text())
    config["tests"] = {"corpus": "wikipedia", "train_length": 128}
    path.write_text(yaml.safe_dump(config | changes))
    return path


@pytest.fixture
def page(tmp_path) -> str:
    """Return the page of a configuration with the models of the small study."""
    path = write_config(tmp_path / "larger.yaml", title="Models on a GPU")
    shutil.copytree(RESULTS / "primary", tmp_path / "results/larger")
    assert main([str(path), "--results", str(tmp_path / "results")]) == 0
    assert not (tmp_path / "results/README.md").exists()
    return (tmp_path / "results/larger/README.md").read_text()


def test_page_has_the_tables_of_the_same_results(page):
    small_models_page = (RESULTS / "README.md").read_text()
    for first_line in ("| test ", "|     | condition", "| evaluated at →"):
        table = small_models_page[small_models_page.index(first_line) :].partition("\n\n")[0]
        assert table in page
    assert page.startswith("# Models on a GPU\n")
    assert "](wikipedia-128-on-wikipedia.svg)" in page


def test_page_has_all_texts_and_training_lengths(tmp_path):
    path = write_config(tmp_path / "mine.yaml", "secondary")
    cells = tmp_path / "results/mine/cells"
    for model in ("books-alibi-128-seed1", "wikipedia-alibi-512-seed1"):
        shutil.copytree(RESULTS / "secondary/cells" / model, cells / model)
    assert main([str(path), "--results", str(tmp_path / "results")]) == 0
    page = (tmp_path / "results/mine/README.md").read_text()
    groups = [("books", 128, "books"), ("wikipedia", 512, "books"), ("wikipedia", 512, "wikipedia")]
    for corpus, train_length, tested_on in groups:
        assert f"Trained on {corpus} with L = {train_length}, tested on {tested_on}:" in page
        # A figure of a single line would show no more than its table.
        assert not list((tmp_path / "results/mine").glob("*-on-*.svg"))


def test_template_next_to_a_configuration_is_its_page(tmp_path):
    path = write_config(tmp_path / "mine.yaml", title="My models")
    path.with_suffix(".md").write_text("# {{title}}, briefly\n\n{{perplexity}}\n")
    shutil.copytree(RESULTS / "primary", tmp_path / "results/mine")
    assert main([str(path), "--results", str(tmp_path / "results")]) == 0
    page = (tmp_path / "results/mine/README.md").read_text()
    assert page.startswith("# My models, briefly\n\nTrained on wikipedia with L = 128")
    assert "| evaluated at →" in page
    assert "##" not in page


def test_page_lists_diverged_models(tmp_path):
    name = "text-alibi-1024-seed2"
    record_divergence(tmp_path / "haviv-125M/cells" / name)
    assert main([str(GPU_CONFIGS[0]), "--results", str(tmp_path)]) == 0
    page = (tmp_path / "haviv-125M/README.md").read_text()
    assert f"diverged. They are not replaced: `{name}`." in page


def test_configuration_without_tests_or_page_is_rejected(tmp_path):
    path = tmp_path / "mine.yaml"
    shutil.copy(ROOT / "studies/small_models/secondary.yaml", path)
    with pytest.raises(UserInputError, match="Add tests: {corpus: NAME, train_length: L}"):
        main([str(path), "--results", str(tmp_path / "results")])
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("path", GPU_CONFIGS, ids=lambda path: path.stem)
def test_page_without_results_states_that_no_test_was_run(tmp_path, path):
    assert main([str(path), "--results", str(tmp_path)]) == 0
    page = (tmp_path / path.stem / "README.md").read_text()
    assert page.count("| not run ") == 6
    assert "No model is finished yet." in page


@pytest.mark.parametrize("path", GPU_CONFIGS, ids=lambda path: path.stem)
def test_configurations_have_the_evaluations_of_all_six_tests(path):
    config = load_config(path, StudyConfig)
    assert config.tests is not None
    short = config.tests.train_length
    evaluations = set()
    assert config.seeds == (1, 2, 3)
    for model in config.all_models():
        assert model.corpus.name == config.tests.corpus
        for sweep in plan_sweeps(model):
            for length, stride in sweep.config.windows():
                trained = (model.method.notation, model.train_length)
                evaluations.add((*trained, length, stride, sweep.variant))
    needed = {("alibi", short, n * short, n * short, "") for n in (1, 2, 4, 16)}
    needed |= {("alibi", short, n * short, short // 8, "") for n in (1, 2, 4)}
    needed |= {("alibi", short, n * short, n * short, "limited") for n in (2, 4)}
    for method in ("sinusoidal", "rotary", "t5"):
        needed.add((method, short, 4 * short, 4 * short, ""))
    for method in ("sinusoidal", "rotary"):
        needed.add((method, short, short, short, ""))
    for method in ("alibi", "sinusoidal", "none"):
        needed.add((method, 4 * short, 4 * short, 4 * short, ""))
    assert needed <= evaluations


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"tests": {"corpus": "txt", "train_length": 1024}}, "the corpus 'txt'"),
        ({"tests": {"corpus": "text", "train_length": 777}}, "the training length 777"),
        ({"tests": {"corpus": "text", "train_length": -1}}, "the training length -1"),
        ({"per_document": None}, "per_document"),
        ({"score_from": None}, "score_from: it must be at least 16384"),
        ({"score_from": 8192}, "score_from: it must be at least 16384"),
        ({"score_to": None}, "score_to: it must be at least 32768"),
        ({"eval_lengths": [1024, 2048, 4096, 8192]}, "alibi .* 1024 at 16384 tokens;"),
        ({"eval_lengths": [1024, 2048, 8192, 16384]}, "4096 at 4096 tokens;"),
        ({"variants": {}}, "alibi .* at 2048 tokens, variant limited;"),
        ({"sliding": {}}, "alibi .* at 2048 tokens, S = 128;"),
    ],
)
def test_configuration_without_a_needed_evaluation_is_rejected(changes, named, tmp_path):
    config = yaml.safe_load(GPU_CONFIGS[0].read_text())
    for key, value in changes.items():
        if key == "tests":
            config["tests"] = value
        elif key == "sliding":
            config["models"][0]["sliding"] = value
        else:
            config["evaluation"][key] = value
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(config))
    with pytest.raises(UserInputError, match=named):
        load_config(path, StudyConfig)
