"""What would give a silently wrong number, or lose one, is refused."""

from __future__ import annotations

import copy
import json
import shutil

import pytest
import torch

from alibi_fairseq.cli import main
from alibi_fairseq.errors import BadInput
from alibi_fairseq.evaluation.merge import merge_shards
from alibi_fairseq.files import locked
from alibi_fairseq.results import manifest
from alibi_fairseq.results.schema import load_document


@pytest.mark.parametrize(
    "changes",
    [
        {"lengths": [16, 0]},
        {"lengths": [64, 16], "strides": [32]},
        {"subsets": ["dev"]},
        {"overrides": {"no_such_option": 1}},
        {"overrides": {"model": 5}},
        {"overrides": {"task": {"tokens_per_sample": 8}}},
        {"overrides": {"decoder_layers_to_keep": "x"}},
        {"model": "stock", "lengths": [64]},  # beyond its positions
    ],
    ids=str,
)
def test_bad_requests_write_nothing(sweep, tmp_path, changes):
    with pytest.raises(BadInput):
        sweep(**changes)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"precision": "bf16"}, "precision"),
        ({"shard": (1, 2)}, "shard"),
        ({"overrides": {"attention_backend": "eager"}}, "model_overrides"),
        ({"subsets": ["test"]}, "data_sha256"),
        ({"buckets": 4}, "kind"),
        ({"out": "positions", "buckets": 8}, "buckets"),
        ({"out": "other", "lengths": [8]}, "schema"),
    ],
)
def test_an_output_with_results_of_another_sweep(sweep, tmp_path, changes, named):
    sweep()
    sweep(out="positions", buckets=4)
    (tmp_path / "other.json").write_text(json.dumps({"results": [1, 2]}))
    before = {path: path.read_text() for path in tmp_path.iterdir()}
    with pytest.raises(BadInput, match=named):
        sweep(**changes)
    assert {path: path.read_text() for path in tmp_path.iterdir()} == before


def test_another_checkpoint_of_the_same_name(sweep, trained, tmp_path):
    path = tmp_path / "model.pt"
    shutil.copy(trained("alibi"), path)
    sweep(path)
    shutil.copy(trained("sinusoidal"), path)
    with pytest.raises(BadInput, match="another checkpoint"):
        sweep(path)


def test_two_evaluations_with_one_output(sweep, tmp_path):
    with (
        locked(tmp_path / ".results.json.lock", "--out", "evaluation"),
        pytest.raises(BadInput, match=r"another evaluation \(process \d+ on .*\) holds"),
    ):
        sweep()
    assert len(sweep()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_an_output_that_cannot_be_written_is_found_before_the_measurement(
    sweep, tmp_path, monkeypatch
):
    monkeypatch.setattr("alibi_fairseq.evaluation.sweep.load_checkpoint", pytest.fail)
    (tmp_path / "file").touch()
    for out in ("file/results", "long" * 100):
        with pytest.raises(BadInput, match="--out"):
            sweep(out=out)


def test_data_that_its_manifest_does_not_describe(sweep, trained, tmp_path):
    data = shutil.copytree(trained.data, tmp_path / "data")
    described = manifest.describe(
        data,
        corpus="some-text",
        identified_by=None,
        splits={},
        tokenizer={"kind": "words"},
        sources=[],
        settings={},
        seconds=1,
    )
    manifest.save(described, data)
    sweep(data=data)
    content = bytearray((data / "valid.bin").read_bytes())
    content[0] ^= 1
    (data / "valid.bin").write_bytes(content)
    with pytest.raises(BadInput, match="valid.bin"):
        sweep(data=data, out="other")
    (data / "valid.bin").write_bytes(b"")
    (data / manifest.FILE_NAME).unlink()
    with pytest.raises(BadInput, match="empty"):
        sweep(data=data, out="other")


def test_scores_that_are_not_finite_name_the_window(sweep, trained, tmp_path):
    state = torch.load(trained("alibi"), weights_only=True)
    weights = state["model"]["decoder.layers.1.fc2.bias"]
    weights[0] = float("nan")
    broken = tmp_path / "broken.pt"
    torch.save(state, broken)
    with pytest.raises(BadInput, match="fc2.bias in .*broken.pt"):
        sweep(broken)
    weights[0] = 3e38  # finite, and infinite in a sum of two
    state["model"]["decoder.layers.1.fc2.weight"][0] = 3e38
    torch.save(state, broken)
    with pytest.raises(BadInput, match=r"0 to 15 of 'valid'"):
        sweep(broken)
    assert [path.name for path in tmp_path.iterdir()] == ["broken.pt"]


@pytest.mark.parametrize("buckets", [None, 4])
@pytest.mark.parametrize(
    "changes",
    [
        {"precision": "bf16"},
        {"overrides": {"attention_backend": "eager"}},
        {"memory_budget": 400_000},
        {"lengths": [8], "strides": [8]},
        {"strides": [8]},
        {"subsets": ["test"]},
        {"buckets": 5},
    ],
    ids=str,
)
def test_shards_that_differ_in_more_than_their_share(sweep, shards, tmp_path, buckets, changes):
    documents = shards(2, strides=[16], buckets=buckets)
    merge_shards(copy.deepcopy(documents))
    settings = {"shard": (2, 2), "memory_budget": 200_000, "strides": [16], "buckets": buckets}
    sweep(out="other", **{**settings, **changes})
    with pytest.raises(BadInput):
        merge_shards([documents[0], load_document(tmp_path / "other.json")])


def test_a_missing_shard_is_noticed(sweep, shards, tmp_path):
    parts = shards(3)
    with pytest.raises(BadInput, match="all shards"):
        merge_shards(parts[::2])
    sweep()
    with pytest.raises(BadInput, match="merge only shards"):
        merge_shards([load_document(tmp_path / "results.json")])


@pytest.mark.parametrize(
    "key, value",
    [
        ("shard", "01/2"),
        ("shard", "2/3"),
        ("shard", "3/2"),
        ("shard_nats", "-3/2"),
        ("shard_nats", "nan"),
        ("shard_nats", "1/0"),
        ("shard_nats", "12"),
        ("split_tokens", 12),
        ("tokens", 12),
    ],
)
def test_a_shard_that_eval_does_not_write(shards, key, value):
    documents = shards(2)
    documents[1]["cells"][0][key] = value
    with pytest.raises(BadInput):
        merge_shards(documents)


@pytest.mark.parametrize("command", ["eval", "export"])
@pytest.mark.parametrize("name", ["alibi", "alibi-adaptive"])
def test_tied_weights_that_differ(trained, tmp_path, name, command):
    """fairseq would take whichever it loads last."""
    state = torch.load(trained(name), weights_only=False)
    output = "output_projection" if name == "alibi" else "adaptive_softmax.head.word_proj"
    state["model"][f"decoder.{output}.weight"] = state["model"][f"decoder.{output}.weight"] + 1
    path = tmp_path / "model.pt"
    torch.save(state, path)
    more = {"eval": ["--lengths", "16"], "export": ["--data"]}[command]
    flags = ["--path", str(path), "--out", str(tmp_path / "out")]
    assert main([command, *flags, *more, str(trained.data)]) == 2
    assert [file.name for file in tmp_path.iterdir()] == ["model.pt"]
