"""Lookup of finished sweeps."""

import json
import shutil
from dataclasses import replace

import pytest

from alibi_fairseq.evaluation.config import SweepConfig
from alibi_fairseq.evaluation.finished_sweep import find_finished
from alibi_fairseq.evaluation.sweep import run_sweep

CONFIG = SweepConfig(lengths=(8, 16), strides=(None, 4), device="cpu")


@pytest.fixture
def finished(data_bin, checkpoint, tmp_path):
    """Return data, checkpoint, and results file of a finished sweep, and its records."""
    data = tmp_path / "data-bin"
    shutil.copytree(data_bin, data)
    copy = tmp_path / "checkpoint_last.pt"
    shutil.copyfile(checkpoint, copy)
    out = tmp_path / "out.json"
    return data, copy, out, run_sweep(data, [copy], CONFIG, out)


def test_finished_sweep_is_found(finished):
    data, checkpoint, out, records = finished
    assert find_finished(data, [checkpoint], CONFIG, out) == records
    assert find_finished(data, [checkpoint], replace(CONFIG, device="auto"), out) == records
    fewer = replace(CONFIG, strides=(4,))
    expected = [record for record in records if record.stride == 4]
    assert find_finished(data, [checkpoint], fewer, out) == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"lengths": (8, 32)},
        {"subsets": ("test",)},
        {"device": "cuda"},
        {"precision": "bf16"},
        {"overrides": {"attention_backend": "eager"}},
        {"score_from": 3},
    ],
    ids=str,
)
def test_sweep_with_other_settings_is_not_finished(finished, changes):
    data, checkpoint, out, _ = finished
    assert find_finished(data, [checkpoint], replace(CONFIG, **changes), out) is None


@pytest.mark.parametrize("name", ["checkpoint_last.pt", "data-bin/valid.bin", "data-bin/dict.txt"])
def test_changed_file_is_noticed(finished, tmp_path, name):
    data, checkpoint, out, _ = finished
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[:-9] + b"x" + content[-8:])
    assert find_finished(data, [checkpoint], CONFIG, out) is None


def test_finished_sweep_of_probe_is_found(probe, tmp_path):
    data, checkpoint = probe
    out = tmp_path / "out.json"
    config = SweepConfig(lengths=(24, 32), device="cpu")
    records = run_sweep(data, [checkpoint], config, out)
    assert find_finished(data, [checkpoint], config, out) == records
    shorter = [record for record in records if record.length == 24]
    assert find_finished(data, [checkpoint], replace(config, lengths=(24,)), out) == shorter
    for changes in ({"lengths": (24, 28)}, {"device": "cuda"}, {"precision": "bf16"}):
        assert find_finished(data, [checkpoint], replace(config, **changes), out) is None
    settings = data / "probe.json"
    settings.write_text(settings.read_text().replace('"copy"', '"passkey"'))
    assert find_finished(data, [checkpoint], config, out) is None


def test_changed_documents_are_noticed(finished, tmp_path):
    data, checkpoint, _, _ = finished
    out = tmp_path / "documents.json"
    config = replace(CONFIG, per_document="empty-lines")
    (data / "documents.json").write_text(json.dumps({"valid": [0, 40]}))
    records = run_sweep(data, [checkpoint], config, out)
    assert find_finished(data, [checkpoint], config, out) == records
    (data / "documents.json").write_text(json.dumps({"valid": [0, 41]}))
    assert find_finished(data, [checkpoint], config, out) is None
    (data / "documents.json").unlink()
    assert find_finished(data, [checkpoint], config, out) is None
