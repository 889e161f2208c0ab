"""Methods that are trained with a study's configuration and compared with its results."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from results_documents import cells_of
from test_gpu_page import write_config
from test_page import Evaluation, assert_printed, change, read_losses

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.experiment.config_files import from_mapping, load_config
from alibi_fairseq.experiment.plan import plan_from_folder
from alibi_fairseq.files import read_yaml
from studies.__main__ import main
from studies.config import StudyConfig

ROOT = Path(__file__).parents[2]
PRIMARY = ROOT / "results" / "small_models" / "primary"
HOUR = ROOT / "studies" / "gpu" / "hour.yaml"


@pytest.fixture
def study(tmp_path) -> Path:
    """Write a configuration with the primary models, their results, and those of a method.

    The method is rotary embeddings under the name ``root``. Returns the path of the configuration.
    """
    path = write_config(tmp_path / "mine.yaml")
    shutil.copytree(PRIMARY, tmp_path / "results/mine")
    for cell in (tmp_path / "results/mine/cells").glob("*-rotary-*"):
        name = cell.name.replace("rotary", "root")
        added = tmp_path / "root/cells" / name
        added.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(cell, added)
        edit(added, "rotary", "root")
    return path


def edit(model: Path, before: str, after: str) -> None:
    """Replace a text in the results of a model."""
    for path in model.glob("*.json"):
        path.write_text(path.read_text().replace(before, after))


def compare(study: Path) -> str:
    """Compare the method with the study; return the page."""
    results = str(study.parent / "results")
    assert main([str(study), "--results", results, "--with", str(study.parent / "root")]) == 0
    return (study.parent / "root/README.md").read_text()


def changes(page: str) -> dict[str, list[str]]:
    """Return the changes and intervals of a page, by the compared methods."""
    return {row[0]: row[1:] for row in cells_of(page) if row and " vs. " in row[0]}


def test_method_is_placed_next_to_the_study(study):
    published = (study.parent / "results/mine/cells").rglob("*.json")
    before = {path: path.read_bytes() for path in published}
    page = compare(study)
    assert (study.parent / "root/added-methods.svg").is_file()
    perplexities = {row[0]: row[1:] for row in cells_of(page) if len(row) == 7}
    published_page = (ROOT / "results/small_models/README.md").read_text()
    for name in ("ALiBi", "Sinusoidal", "T5 bias"):
        row = next(row for row in cells_of(published_page) if row[0] == name and len(row) == 7)
        assert perplexities[name] == row[1:]
    rotary = next(row for row in cells_of(published_page) if row[0] == "Rotary" and len(row) == 7)
    assert perplexities["root"] == rotary[1:]
    assert not (study.parent / "results/mine/README.md").exists()
    assert {path: path.read_bytes() for path in before} == before


def test_changes_have_intervals(study):
    rows = changes(compare(study))
    assert list(rows) == ["root vs. ALiBi", "root vs. Sinusoidal", "root vs. T5 bias"]
    losses = read_losses("primary")
    for index, length in enumerate((128, 512, 2048)):
        first = Evaluation("wikipedia", "rotary", 128, length, length)
        second = Evaluation("wikipedia", "alibi", 128, length, length)
        shown, interval = rows["root vs. ALiBi"][2 * index : 2 * index + 2]
        assert_printed([shown, *interval.split(" … ")], change(losses, first, second))


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ('"total_num_update": "5856"', '"total_num_update": "6000"', "6000 instead of 5856"),
        ("9746a8db", "00000000", "data.train is 00000000"),
        ("44a79b52", "00000000", "different test articles"),
        ('"score_from": 2048', '"score_from": 1024', "different scored ranges"),
        ('"dropout": "0"', '"dropout": "0.2"', "model.dropout is 0.2 instead of 0"),
        ('"updates": 5856', '"updates": 5000', "updates is 5000 instead of 5856"),
    ],
)
def test_other_settings_are_rejected(study, before, after, named):
    model = study.parent / "root/cells/wikipedia-root-128-seed2"
    edit(model, before, after)
    for seed in (1, 3):  # the checks of seeds of one model come later
        shutil.rmtree(model.with_name(f"wikipedia-root-128-seed{seed}"))
    with pytest.raises(UserInputError, match=named):
        compare(study)


def test_options_of_the_method_are_stated(study):
    for model in (study.parent / "root/cells").iterdir():
        edit(model, '"name": "root"', '"name": "root", "options": {"root_scale": 2}')
    assert "differ from their defaults: `root_scale = 2`." in compare(study)


@pytest.mark.parametrize("method", ["alibi", "t5"])
def test_method_of_the_study_is_rejected(study, method):
    for model in list((study.parent / "root/cells").iterdir()):
        name = model.name.replace("root", method)
        shutil.move(model, model.with_name(name))
        edit(model.with_name(name), "root", method)
    with pytest.raises(UserInputError, match="which the study has"):
        compare(study)


def test_results_of_the_study_are_needed(study):
    shutil.rmtree(study.parent / "results")
    with pytest.raises(UserInputError, match="has no finished model of ALiBi"):
        compare(study)


def test_page_of_the_study_has_added_methods(study):
    (study.parent / "results/mine/added").mkdir()
    shutil.move(study.parent / "root", study.parent / "results/mine/added/root")
    assert main([str(study), "--results", str(study.parent / "results")]) == 0
    page = (study.parent / "results/mine/README.md").read_text()
    before, after = page.split("## Added methods")
    assert "root" not in before
    assert "root vs. ALiBi" in after


def test_configuration_of_another_method_has_the_settings_of_the_study(tmp_path):
    config = load_config(HOUR, StudyConfig)
    other = config.with_methods(["kerple"], None)
    models = other.all_models()
    assert [model.seed for model in models] == [1, 2, 3]
    assert {model.train_length for model in models} == {512}
    ours = plan_from_folder(config, tmp_path).runs[0].settings["options"]
    theirs = plan_from_folder(other, tmp_path).runs[0]
    assert [word if word != "alibi" else "kerple" for word in ours] == theirs.settings["options"]
    assert len(theirs.after) == 3


@pytest.mark.parametrize("name", ["primary", "secondary"])
def test_added_method_is_trained_as_alibi_is_where_groups_differ(name):
    values = read_yaml(ROOT / "studies" / "small_models" / f"{name}.yaml")
    values["tests"] = {"corpus": "wikipedia", "train_length": 128}
    config = from_mapping(values, StudyConfig)
    (group,) = config.with_methods(["kerple"], None).models
    assert group.lr == config.models[0].lr
    assert len(group.lr) > 1  # in primary.yaml, sinusoidal embeddings have another one
    models = config.with_methods(["kerple"], None).all_models()
    assert {model.corpus.name for model in models} == {"wikipedia"}
