"""Results of a run that are missing, after real trainings and evaluations of a small model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from fakes import TINY, Commands, in_this_process

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.experiment import child_process
from alibi_fairseq.experiment.config_files import from_mapping
from alibi_fairseq.experiment.plan import plan_from_folder
from alibi_fairseq.experiment.run import Run
from alibi_fairseq.results.file import load
from alibi_fairseq.results.result import Result

#: Split, length, and stride.
CASE = ("valid", 16, 16)


@pytest.fixture(scope="module")
def finished(data_bin, tmp_path_factory):
    """Return a folder with data, and a run of two updates that was evaluated on it."""
    folder = tmp_path_factory.mktemp("finished")
    shutil.copytree(data_bin, folder / "data-bin")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(child_process, "execute_command", in_this_process)
        (run,) = runs_in(folder)
        run.execute()
    return folder


@pytest.fixture
def folder(finished, tmp_path):
    """Return a copy of the folder, which a test may change."""
    return Path(shutil.copytree(finished, tmp_path / "copy"))


@pytest.fixture
def commands(monkeypatch):
    """Return the names of the commands of runs, which are executed in this process."""
    names = []

    def execute(words, *arguments, **keywords):
        names.append(words[words.index("alibi_fairseq") + 1])
        return in_this_process(words, *arguments, **keywords)

    monkeypatch.setattr(child_process, "execute_command", execute)
    return names


def values_in(folder: Path) -> dict:
    """Return the keys of a comparison on the data in a folder."""
    return {
        "corpora": [{"name": "mine", "data": str(folder / "data-bin")}],
        "methods": "alibi",
        "train_lengths": 16,
        "eval_lengths": 16,
        "updates": 2,
        "tokens_per_update": 128,
        "train_flags": TINY,
    }


def runs_in(folder: Path, **changes) -> list[Run]:
    """Return the runs of a comparison on the data in a folder."""
    config = from_mapping(values_in(folder) | changes)
    return list(plan_from_folder(config, folder / "out").runs)


def run_in(folder: Path, **changes) -> Run:
    (run,) = runs_in(folder, **changes)
    return run


def records_of(run: Run) -> list[Result]:
    """Return what the steps of a run report."""
    records = []
    for step in run.eval_steps:
        records += step.load_results().results
    return records


def change_weights(run: Run) -> None:
    """Replace the checkpoint of a run, as if it had been trained again."""
    path = run.checkpoint_path(run.updates)
    state = torch.load(path, weights_only=False)
    state["model"]["decoder.layers.0.fc1.bias"] += 1
    torch.save(state, path)


def cases_of(run: Run) -> list[tuple[str, int, int]]:
    cases = [record.case for record in records_of(run)]
    return [(case.split, case.length, case.stride) for case in cases]


CHANGES = {
    "length": ({"eval_lengths": [16, 24]}, [CASE, ("valid", 24, 24)]),
    "stride": ({"strides": ["full", 8]}, [CASE, ("valid", 16, 8)]),
    "only another stride": ({"strides": 8}, [("valid", 16, 8)]),
    "sliding": ({"sliding": {4: "1x"}}, [CASE, ("valid", 16, 4)]),
    "split": ({"subset": "test"}, [("test", 16, 16)]),
    "score range": ({"score_from": 8}, [CASE]),
    "documents": ({"per_document": "empty-lines"}, [CASE]),
    "variant": ({"variants": {"alibi": {"limited": {"attention_window": 8}}}}, [CASE, CASE]),
}


@pytest.mark.ci
@pytest.mark.parametrize("change", CHANGES)
def test_only_what_is_new_is_evaluated(folder, commands, change):
    first = run_in(folder)
    before = records_of(first)
    assert first.is_complete
    changes, cases = CHANGES[change]
    (folder / "data-bin" / "documents.json").write_text('{"valid": [0, 20]}')
    run = run_in(folder, **changes)
    assert not run.is_complete
    run.execute()
    assert commands == ["eval"]
    assert run.is_complete
    assert cases_of(run) == cases
    # Going back needs nothing, because no result was deleted.
    assert first.is_complete
    if change == "documents":
        assert records_of(first)[0].values.loss_bits == before[0].values.loss_bits
    else:
        assert records_of(first) == before
    run.execute()
    first.execute()
    assert commands == ["eval"]


@pytest.mark.ci
@pytest.mark.parametrize("options", [{}, {"score_from": 8}], ids=["whole text", "range"])
def test_edited_documents_are_evaluated_again(folder, commands, options):
    documents = folder / "data-bin" / "documents.json"
    documents.write_text('{"valid": [0, 20]}')
    run = run_in(folder, per_document="empty-lines", **options)
    run.execute()
    assert run.is_complete
    documents.write_text('{"valid": [0, 30]}')
    assert not run.is_complete
    assert run_in(folder).is_complete
    run.execute()
    assert commands == ["eval", "eval"]
    (record,) = records_of(run)
    assert record.values.document_tokens[0] == 30 - options.get("score_from", 0)
    assert run.is_complete
    documents.write_text(json.dumps({"valid": [0, 20], "test": [0, 9]}))
    assert run.is_complete == bool(options)  # losses of other documents are other results


@pytest.mark.ci
def test_documents_that_follow_from_the_text_are_known(folder, commands):
    run = run_in(folder, per_document="empty-lines")
    with pytest.raises(UserInputError, match="finds only one document"):
        run.is_complete  # noqa: B018


@pytest.mark.ci
def test_changed_split_is_evaluated_again(folder, commands):
    run = run_in(folder)
    (before,) = records_of(run)
    for suffix in ("idx", "bin"):
        shutil.copyfile(
            folder / "data-bin" / f"test.{suffix}", folder / "data-bin" / f"valid.{suffix}"
        )
    assert not run.is_complete
    run.execute()
    assert commands == ["eval"]
    (after,) = records_of(run)
    assert after.case.text != before.case.text
    # The former text may come back.
    assert len(load(run.folder / "results.json").results) == 2


@pytest.mark.ci
def test_checkpoint_of_another_training_is_rejected(folder, commands):
    run = run_in(folder)
    change_weights(run)
    assert not run.is_complete
    with pytest.raises(UserInputError, match="was changed after the training"):
        run.execute()
    assert commands == []


@pytest.mark.ci
def test_training_again_replaces_the_results(folder, commands):
    """The results of the earlier weights are out of date, although all settings are the same."""
    run = run_in(folder)
    records = records_of(run)
    for times in (1, 2):
        change_weights(run)
        run.training_marker(run.updates).write()
        assert not run.is_complete
        run.execute()
        assert commands == ["eval"] * times
        assert run.is_complete
        records += records_of(run)
    moved, _, second = records
    assert len({record.values.loss_bits for record in records}) == 3
    # The weights in another folder may still exist there.
    hashes = {moved.checkpoint_sha256, second.checkpoint_sha256}
    in_file = load(run.folder / "results.json").results
    assert {record.checkpoint_sha256 for record in in_file} == hashes


def test_diverged_trial_is_complete_and_not_evaluated(folder, monkeypatch):
    fake = Commands()
    fake.validation = {"alibi": {"0.5": None}}
    monkeypatch.setattr(child_process, "execute_command", fake)
    config = from_mapping(values_in(folder) | {"lr": [0.5, 0.001]})
    plan = plan_from_folder(config, folder / "out")
    (run,) = plan.runs
    trial, other = plan.trial_runs
    trial.execute()
    assert fake.ran == ["train"]
    assert trial.diverged
    assert trial.is_complete
    assert not other.is_complete
    assert not run.is_complete


def test_results_of_another_device_are_complete(finished, tmp_path):
    folder = Path(shutil.copytree(finished, tmp_path / "copy"))
    path = run_in(folder).folder / "results.json"
    path.write_text(path.read_text().replace('"device": "cpu"', '"device": "cuda"'))
    assert run_in(folder).is_complete


def test_results_are_complete_in_a_moved_folder(finished, tmp_path):
    assert run_in(Path(shutil.copytree(finished, tmp_path / "moved"))).is_complete
