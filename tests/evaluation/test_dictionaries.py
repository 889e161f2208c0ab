"""Data numbered with another dictionary of the same size never gets a perplexity."""

from __future__ import annotations

import shutil

import pytest
import torch
from conftest import dictionary_of, small_model
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq_cli import eval_lm

from alibi_fairseq.errors import BadInput
from alibi_fairseq.evaluation.sweep import Sweep, run_sweep
from alibi_fairseq.results.provenance import (
    STATE_KEY,
    bind_dictionary,
    dictionary_sha256,
    fingerprint,
)


def swapped(data, folder):
    """The data folder with two words of the dictionary in each other's place."""
    shutil.copytree(data, folder)
    lines = (folder / "dict.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    lines[7], lines[8] = lines[8], lines[7]
    (folder / "dict.txt").write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.fixture
def other_data(trained, tmp_path):
    return swapped(trained.data, tmp_path / "other")


def sweep_of(data, checkpoint, out, **changes) -> Sweep:
    return Sweep(data, [checkpoint], ["valid"], [32], [None], out, **changes)


def without_fingerprint(checkpoint, path):
    """The checkpoint as a program that does not know this project would have written it."""
    state = torch.load(checkpoint, weights_only=True)
    del state["task_state"][STATE_KEY]
    path.parent.mkdir(exist_ok=True)
    torch.save(state, path)
    return path


def test_checkpoints_remember_their_dictionary(trained):
    state = torch.load(trained("alibi"), weights_only=True)
    assert state["task_state"][STATE_KEY] == dictionary_sha256(trained.data)


def test_our_checkpoint_on_other_data(trained, other_data, tmp_path):
    out = tmp_path / "results.json"
    with pytest.raises(BadInput, match="not the one this checkpoint was trained with"):
        run_sweep(sweep_of(other_data, trained("alibi"), out))
    assert not out.exists()


def test_fairseq_itself_stops_too(trained, other_data):
    flags = [str(other_data), "--path", str(trained("alibi")), "--gen-subset", "valid", "--cpu"]
    args = options.parse_args_and_arch(options.get_eval_lm_parser(), flags)
    with pytest.raises(BadInput, match="not the one this checkpoint was trained with"):
        eval_lm.main(convert_namespace_to_omegaconf(args))


def test_foreign_checkpoint_with_a_dictionary_beside_it(trained, other_data, tmp_path):
    checkpoint = without_fingerprint(trained("alibi"), tmp_path / "foreign" / "model.pt")
    shutil.copy(trained.data / "dict.txt", checkpoint.parent)
    with pytest.raises(BadInput, match="another dictionary"):
        run_sweep(sweep_of(other_data, checkpoint, tmp_path / "a.json"))
    assert run_sweep(sweep_of(trained.data, checkpoint, tmp_path / "b.json"))


def test_foreign_checkpoint_with_a_dictionary_named(trained, other_data, tmp_path):
    checkpoint = without_fingerprint(trained("alibi"), tmp_path / "model.pt")
    named = trained.data / "dict.txt"
    with pytest.raises(BadInput, match="another dictionary"):
        run_sweep(sweep_of(other_data, checkpoint, tmp_path / "a.json", trained_with=named))


@pytest.mark.parametrize("name", ["alibi", "alibi-adaptive"])
def test_dictionary_of_another_size(trained, tmp_path, name):
    data = tmp_path / "longer"
    shutil.copytree(trained.data, data)
    with open(data / "dict.txt", "a", encoding="utf-8") as file:
        file.write("extra 1\n")
    checkpoint = without_fingerprint(trained(name), tmp_path / "model.pt")
    with pytest.raises(BadInput, match="dictionary of another size"):
        run_sweep(sweep_of(data, checkpoint, tmp_path / "results.json"))


def test_counts_do_not_matter_but_order_does():
    one, other = dictionary_of(5), dictionary_of(5)
    other.count[4] = 1000
    assert fingerprint(one) == fingerprint(other)
    other.symbols[4], other.symbols[5] = other.symbols[5], other.symbols[4]
    assert fingerprint(one) != fingerprint(other)


def test_a_task_without_a_state_is_left_alone():
    small_model("alibi")  # its task has no state
    task = LanguageModelingTask(None, dictionary_of(5))
    bind_dictionary(task)
    assert task.state_dict() == {STATE_KEY: fingerprint(dictionary_of(5))}
