"""Rejection of sweeps that would measure wrong values or lose results."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from commands import SHORT, in_process
from conftest import describe

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.evaluation.checkpoint import load_checkpoint
from alibi_fairseq.files import locked
from alibi_fairseq.results import manifest
from alibi_fairseq.results.file import load


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lengths": [64, 16], "strides": [32]}, "--strides 32 does not fit --lengths 16"),
        ({"splits": ["dev"]}, "The split 'dev'"),
        ({"overrides": {"no_such_option": 1}}, "has no option 'no_such_option'"),
        ({"overrides": {"model": 5}}, "has no option 'model'"),
        ({"overrides": {"task": {"tokens_per_sample": 8}}}, "has no option 'task'"),
        # Options of the task, of fairseq, of the training, and the model's name.
        ({"overrides": {"data": "x"}}, "has no option 'data'"),
        ({"overrides": {"user_dir": "x"}}, "has no option 'user_dir'"),
        ({"overrides": {"max_tokens": "x"}}, "has no option 'max_tokens'"),
        ({"overrides": {"_name": "x"}}, "has no option '_name'"),
        ({"overrides": {"arch": "alibi_lm"}}, "has no option 'arch'"),
        ({"overrides": {"alibi_scale": True}}, "alibi_scale is 'True', which is no str"),
        (
            {"overrides": {"decoder_layers_to_keep": "x"}},
            "with --model-overrides do not describe .* decoder_layers_to_keep is 'x'",
        ),
        ({"model": "stock", "lengths": [16, 64]}, "windows of at most"),
        ({"model": "learned", "lengths": [16, 33]}, "at most 32 tokens, .*clamp_learned_positions"),
        ({"model": "transformer-xl", "strides": ["full", 4]}, "Pass --strides full"),
    ],
    ids=str,
)
def test_bad_request_writes_nothing(sweep, tmp_path, changes, message):
    with pytest.raises(UserInputError, match=message):
        sweep(**changes)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "changes",
    [
        {"precision": "bf16"},
        {"overrides": {"attention_window": 8}},
        {"splits": ["test"]},
        {"score_to": 9},
        {"strides": [4]},
    ],
    ids=str,
)
def test_results_of_another_sweep_are_kept(sweep, tmp_path, changes):
    (first,) = sweep()
    (other,) = sweep(**changes)
    assert other.values.loss_bits != first.values.loss_bits
    assert load(tmp_path / "results.json").results == [first, other]
    assert sweep(**changes) == [other]
    assert sweep() == [first]


def test_backend_of_attention_makes_no_other_result(sweep):
    assert sweep(overrides={"attention_backend": "eager"}) == sweep()


def test_other_json_file_is_not_an_output(sweep, tmp_path):
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"results": [1, 2]}))
    with pytest.raises(UserInputError, match="is not a results file"):
        sweep(out="other")
    assert path.read_text() == json.dumps({"results": [1, 2]})


def test_results_of_another_model_of_same_name_are_kept(sweep, trained, tmp_path):
    path = tmp_path / "model.pt"
    shutil.copy(trained("alibi"), path)
    (first,) = sweep(path)
    shutil.copy(trained("sinusoidal"), path)
    (second,) = sweep(path)
    assert second.values.loss_bits != first.values.loss_bits
    assert load(tmp_path / "results.json").results == [first, second]


def test_checkpoint_replaced_during_the_evaluation_is_rejected(
    sweep, trained, tmp_path, monkeypatch
):
    path = tmp_path / "model.pt"
    shutil.copy(trained("alibi"), path)

    def load_replaced(checkpoint, *arguments):
        shutil.copy(trained("sinusoidal"), path)
        return load_checkpoint(checkpoint, *arguments)

    monkeypatch.setattr("alibi_fairseq.evaluation.measurement.load_checkpoint", load_replaced)
    with pytest.raises(UserInputError, match="was replaced during the evaluation"):
        sweep(path)
    assert not (tmp_path / "results.json").exists()


def test_measurements_of_another_checkpoint_are_not_reused(sweep, trained, tmp_path):
    path = tmp_path / "model.pt"
    shutil.copy(trained("alibi"), path)
    (first,) = sweep(path, lengths=[5000])
    shutil.copy(trained("sinusoidal"), path)
    (second,) = sweep(path, lengths=[6000])
    assert second.values.longest_window == first.values.longest_window
    assert second.values.loss_bits != first.values.loss_bits


def test_concurrent_sweep_on_same_output_is_rejected(sweep, tmp_path):
    with (
        locked(tmp_path / ".results.json.lock", "--out", "evaluation"),
        pytest.raises(UserInputError, match=r"in use by another evaluation \(process \d+ on "),
    ):
        sweep()
    assert len(sweep()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_unwritable_output_is_rejected_first(sweep, tmp_path, monkeypatch):
    monkeypatch.setattr("alibi_fairseq.evaluation.measurement.load_checkpoint", pytest.fail)
    (tmp_path / "file").touch()
    for out in ("file/results", "long" * 100):
        with pytest.raises(OSError, match=out.split("/")[0]):
            sweep(out=out)


def test_sweep_rejects_data_unlike_manifest(sweep, trained, tmp_path):
    data = shutil.copytree(trained.data, tmp_path / "data")
    describe(data)
    sweep(data=data)
    content = bytearray((data / "valid.bin").read_bytes())
    content[0] ^= 1
    (data / "valid.bin").write_bytes(content)
    with pytest.raises(UserInputError, match="valid.bin"):
        sweep(data=data, out="other")
    (data / "valid.bin").write_bytes(b"")
    (data / manifest.FILE_NAME).unlink()
    with pytest.raises(UserInputError, match="empty"):
        sweep(data=data, out="other")


def test_non_finite_scores_name_window(sweep, trained, tmp_path):
    state = torch.load(trained("alibi"), weights_only=True)
    weights = state["model"]["decoder.layers.1.fc2.bias"]
    weights[0] = float("nan")
    broken = tmp_path / "broken.pt"
    torch.save(state, broken)
    with pytest.raises(UserInputError, match="fc2.bias in .*broken.pt"):
        sweep(broken)
    weights[0] = 3e38  # finite, and infinite in a sum of two
    state["model"]["decoder.layers.1.fc2.weight"][0] = 3e38
    torch.save(state, broken)
    with pytest.raises(UserInputError, match=r"0 to 15 of 'valid'"):
        sweep(broken)
    assert [path.name for path in tmp_path.iterdir()] == ["broken.pt"]


@pytest.mark.parametrize(("name", "command"), [("alibi", "eval"), ("alibi-adaptive", "export")])
def test_differing_tied_weights_are_rejected(trained, tmp_path, refuse, name, command):
    """fairseq would use the tensor that it loads last."""
    state = torch.load(trained(name), weights_only=False)
    output = "output_projection" if name == "alibi" else "adaptive_softmax.head.word_proj"
    state["model"][f"decoder.{output}.weight"] = state["model"][f"decoder.{output}.weight"] + 1
    path = tmp_path / "model.pt"
    torch.save(state, path)
    flags = {"eval": ["--lengths", "16"], "export": ["--data"]}[command]
    assert refuse(command, "--path", path, "--out", tmp_path / "out", *flags, trained.data)
    assert [file.name for file in tmp_path.iterdir()] == ["model.pt"]


@pytest.mark.ci
def test_best_checkpoint_of_unfinished_training_warns(data_bin, sweep, tmp_path, caplog):
    flags = [*SHORT, "--max-update", "4", "--save-dir", tmp_path / "run"]
    in_process("train", data_bin, *flags, "--stop-time-hours", "1e-9")
    checkpoint = tmp_path / "run" / "checkpoint_best.pt"
    sweep(checkpoint, data=data_bin, out="stopped", lengths=[8])
    warning = "is the best of the first 1 of 4 updates"
    assert warning in caplog.text
    caplog.clear()
    in_process("train", data_bin, *flags)
    sweep(checkpoint, data=data_bin, out="finished", lengths=[8])
    assert "is the best of the first" not in caplog.text
