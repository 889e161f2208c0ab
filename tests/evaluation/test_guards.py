"""What would give a silently wrong number, or lose one, is refused."""

from __future__ import annotations

import copy

import pytest
import torch

from alibi_fairseq.cli import main
from alibi_fairseq.errors import BadInput
from alibi_fairseq.evaluation.merge import merge_shards
from alibi_fairseq.evaluation.sweep import Sweep, run_sweep
from alibi_fairseq.files import locked
from alibi_fairseq.results import manifest
from alibi_fairseq.results.schema import load_document


@pytest.fixture
def sweep(trained, tmp_path):
    def make(data=trained.data, **changes) -> Sweep:
        settings = {"checkpoints": [trained("alibi")], "subsets": ["valid"], "lengths": [16]}
        settings |= {"strides": [None], "out": tmp_path / "results.json", **changes}
        return Sweep(data, **settings)

    return make


def test_two_evaluations_with_one_output(sweep, tmp_path):
    with (
        locked(tmp_path / ".results.json.lock", "--out", "evaluation"),
        pytest.raises(BadInput, match=r"another evaluation \(process \d+ on .*\) holds"),
    ):
        run_sweep(sweep())
    assert len(run_sweep(sweep())) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_an_output_that_cannot_be_written_is_found_before_the_measurement(
    sweep, tmp_path, monkeypatch
):
    monkeypatch.setattr("alibi_fairseq.evaluation.sweep.load_checkpoint", pytest.fail)
    (tmp_path / "file").touch()
    for out in (tmp_path / "file" / "results.json", tmp_path / ("long" * 100)):
        with pytest.raises(BadInput, match=r"--out .* cannot be written to"):
            run_sweep(sweep(out=out))


def test_data_that_its_manifest_does_not_describe(sweep, trained, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for path in trained.data.iterdir():
        (data / path.name).write_bytes(path.read_bytes())
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
    run_sweep(sweep(data))
    content = bytearray((data / "valid.bin").read_bytes())
    content[0] ^= 1
    (data / "valid.bin").write_bytes(content)
    with pytest.raises(
        BadInput, match=r"valid.bin' is not the file that .*manifest.json describes"
    ):
        run_sweep(sweep(data, out=tmp_path / "other.json"))


@pytest.mark.parametrize("kind", ["evaluation", "position_loss"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
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
def test_shards_that_differ_in_more_than_their_share(sweep, tmp_path, kind, changes):
    if "buckets" in changes and kind == "evaluation":
        changes = {**changes, "buckets": None, "precision": "fp16"}
    documents = []
    for index in (1, 2):
        settings = {"shard": (index, 2), "memory_budget": 200_000, "strides": [16]}
        settings |= {"out": tmp_path / f"{index}.json"}
        settings |= {"buckets": None if kind == "evaluation" else 4}
        run_sweep(sweep(**{**settings, **(changes if index == 2 else {})}))
        documents.append(load_document(tmp_path / f"{index}.json"))
    if not changes:
        merge_shards(documents)
        return
    with pytest.raises(BadInput):
        merge_shards(documents)


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
def test_a_shard_that_eval_does_not_write(sweep, tmp_path, key, value):
    documents = []
    for index in (1, 2):
        out = tmp_path / f"{index}.json"
        run_sweep(sweep(shard=(index, 2), out=out, memory_budget=200_000))
        documents.append(load_document(out))
    merge_shards(copy.deepcopy(documents))
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
    out = tmp_path / "out"
    more = ["--lengths", "16", str(trained.data)] if command == "eval" else []
    more += [] if command == "eval" else ["--data", str(trained.data)]
    assert main([command, "--path", str(path), "--out", str(out), *more]) == 2
    assert [file.name for file in tmp_path.iterdir()] == ["model.pt"]
