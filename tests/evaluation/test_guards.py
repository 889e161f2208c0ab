"""What would give a silently wrong number, or lose one, is refused."""

from __future__ import annotations

import copy

import pytest

from alibi_fairseq.errors import BadInput
from alibi_fairseq.evaluation.merge import merge_shards
from alibi_fairseq.evaluation.sweep import Sweep, run_sweep
from alibi_fairseq.files import locked
from alibi_fairseq.results import manifest


@pytest.fixture
def sweep(trained, tmp_path):
    def make(data=trained.data, **changes) -> Sweep:
        settings = {"checkpoints": [trained("alibi")], "subsets": ["valid"], "lengths": [16]}
        settings |= {"strides": [None], "out": tmp_path / "results.json", **changes}
        return Sweep(data, **settings)

    return make


def test_a_stride_of_0_is_not_the_default(sweep):
    with pytest.raises(BadInput, match="A stride must be at least 1 token, not 0"):
        run_sweep(sweep(strides=[0]))


def test_two_evaluations_with_one_output(sweep, tmp_path):
    with (
        locked(tmp_path / ".results.json.lock", "--out", "evaluation"),
        pytest.raises(BadInput, match=r"another evaluation \(process \d+ on .*\) writes there"),
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


def test_a_shard_under_another_name_is_not_counted_twice(sweep, tmp_path):
    from alibi_fairseq.results.schema import load_document

    run_sweep(sweep(shard=(1, 2)))
    document = load_document(tmp_path / "results.json")
    again = copy.deepcopy(document)
    again["cells"][0]["shard"] = "01/2"
    with pytest.raises(BadInput, match="'01/2' is no shard"):
        merge_shards([document, again])
