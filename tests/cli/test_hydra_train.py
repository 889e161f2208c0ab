"""``alibi-fairseq hydra-train`` with a YAML file whose paths are relative."""

from __future__ import annotations

import os

import pytest
from commands import ROOT, as_process
from omegaconf import OmegaConf

from alibi_fairseq.cli.fairseq_command import make_paths_absolute

YAML = """\
common: {cpu: true, log_format: simple, tensorboard_logdir: logs}
checkpoint: {save_dir: out, no_epoch_checkpoints: true}
task: {_name: language_modeling, data: data-bin, tokens_per_sample: 16}
dataset: {max_tokens: 128, num_workers: 0}
criterion: {_name: cross_entropy}
optimization: {max_update: 2, lr: [0.01]}
optimizer: {_name: adam}
lr_scheduler: {_name: fixed}
model: {_name: alibi_lm_tiny, decoder_layers: 1, decoder_embed_dim: 32}
"""


@pytest.fixture
def here(tmp_path, data_bin):
    """A folder with a YAML file and the data beside it."""
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "small.yaml").write_text(YAML)
    (tmp_path / "data-bin").symlink_to(data_bin)
    return tmp_path


def train(here, *overrides):
    command = ["-m", "alibi_fairseq", "hydra-train", "--config-dir", "configs"]
    return as_process(*command, "--config-name", "small", *overrides, cwd=here, PYTHONPATH=ROOT)


@pytest.mark.slow  # as every run of it in tests/test_signals.py
def test_paths_are_meant_from_where_it_was_started(here):
    done = train(here)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (here / "out" / "checkpoint_last.pt").is_file()
    assert list((here / "logs" / "train").iterdir())


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("task.data=nowhere", "/nowhere"),
        pytest.param("common.fp16=true", "fp16", marks=pytest.mark.slow),
        pytest.param("model.no_such_option=1", "no_such_option", marks=pytest.mark.slow),
    ],
)
def test_bad_input(here, override, named):
    done = train(here, override)
    assert done.returncode == 2, done.stderr[-2000:]
    assert "error: " in (last := done.stderr.strip().splitlines()[-1]) and named in last
    assert not (here / "out").exists()


def test_every_path_and_nothing_else():
    cfg = OmegaConf.create(
        {
            "common": {"tensorboard_logdir": "tb", "log_file": "/var/log", "seed": 1},
            "checkpoint": {
                "save_dir": "out",
                "restore_file": "checkpoint_last.pt",
                "finetune_from_model": None,
            },
            "task": {"data": f"a{os.pathsep}/b"},
        }
    )
    OmegaConf.set_struct(cfg, True)
    make_paths_absolute(cfg, "/start")
    assert cfg.common == {"tensorboard_logdir": "/start/tb", "log_file": "/var/log", "seed": 1}
    assert cfg.checkpoint.save_dir == "/start/out"
    assert cfg.checkpoint.restore_file == "checkpoint_last.pt"
    assert cfg.checkpoint.finetune_from_model is None
    assert cfg.task.data == f"/start/a{os.pathsep}/b"
    cfg.checkpoint.restore_file = "older.pt"
    make_paths_absolute(cfg, "/start")
    assert cfg.checkpoint.restore_file == "/start/older.pt"
