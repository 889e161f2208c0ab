"""What ``check-env`` says about environments that are in order, incomplete or broken."""

from __future__ import annotations

import argparse
import re
import sys

import pytest
import torch
from commands import PACKAGE, as_process

from alibi_fairseq.cli import check_env

FILE = PACKAGE / "cli" / "check_env.py"


@pytest.fixture
def versions(monkeypatch):
    """Versions of distributions, to be changed; None is not installed."""
    found: dict[str, str | None] = {}
    real = check_env.version_of
    monkeypatch.setattr(check_env, "version_of", lambda name: found.get(name, real(name)))
    return found


def problems():
    return " ".join(check_env.examine()[1])


def test_in_order(capsys):
    assert check_env.run(argparse.Namespace()) == 0
    text = capsys.readouterr().out
    for name in ("Python", "torch", "CUDA", "fairseq", "numpy", "attention: eager", "workarounds"):
        assert re.search(rf"^{name} +\S", text, re.MULTILINE), text
    assert torch.__version__.split("+")[0] in text


def test_by_its_path_where_nothing_is_installed(tmp_path):
    done = as_process(FILE, cwd=tmp_path, python=["-S"])
    assert done.returncode == 1
    assert "No module named 'torch'" in done.stdout and "./scripts/install.sh" in done.stdout


def test_by_its_path_where_fairseq_is_broken(tmp_path):
    (tmp_path / "fairseq").mkdir()
    (tmp_path / "fairseq" / "__init__.py").write_text(
        "raise ValueError('numpy.dtype size changed')"
    )
    done = as_process(FILE, cwd=tmp_path, PYTHONPATH=tmp_path)
    assert done.returncode == 1
    assert "fairseq cannot be imported (ValueError: numpy.dtype size changed)" in done.stdout


def test_two_fairseqs(versions):
    versions.update({"fairseq": "0.12.2", "fairseq-fixed": "0.12.3.1"})
    assert "pip uninstall fairseq fairseq-fixed" in problems()


@pytest.mark.parametrize(
    ("place", "name", "value", "said"),
    [
        (check_env, "MODULES", {"fairseq.data.no_part": "fairseq==1"}, "fairseq==1"),
        (check_env.shutil, "which", lambda name: "/usr/bin/nvidia-smi", "NVIDIA GPU"),
    ],
)
def test_a_wrong_environment(monkeypatch, place, name, value, said):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(place, name, value)
    assert said in problems()


def test_a_torchaudio_that_cannot_be_loaded(versions, monkeypatch, tmp_path):
    versions["torchaudio"] = "2.11.0"
    (tmp_path / "torchaudio.py").write_text("raise OSError('libcudart.so.13: no such file')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torchaudio", raising=False)
    assert "pip uninstall torchaudio" in problems()


def test_what_only_figures_need_is_no_problem(versions, monkeypatch):
    for name in ("matplotlib", "tensorboard"):
        versions[name] = None
        monkeypatch.setitem(sys.modules, name, None)
    assert not problems()
