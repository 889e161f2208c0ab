"""Fixtures, small models, and dictionaries that the tests share."""

from __future__ import annotations

import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from cached_hydra import cache_hydra
from commands import SHORT, in_process, make_data
from registered_options import remove_options_of_removed_methods
from torch.nn.attention.flex_attention import flex_attention
from trained import TRAIN_LENGTH, Trained, train

import alibi_fairseq  # noqa: F401  (registers the models)
from alibi_fairseq import cli
from alibi_fairseq.attention import flex
from alibi_fairseq.checks.small_model import (  # noqa: F401  (tests import them from here)
    FIRST_WORD,
    build_model,
    random_tokens,
    small_dictionary,
)
from alibi_fairseq.data import probe_data, probes
from alibi_fairseq.data.probe_data import prepare_probe
from alibi_fairseq.evaluation.config import SweepConfig
from alibi_fairseq.evaluation.measurement import run_sweep
from alibi_fairseq.results import manifest
from alibi_fairseq.results.result import Result
from alibi_fairseq.results.values import Cost

# nohup and background jobs of a script ignore these signals, and child processes inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

# Seconds that a deleted data loader waits for its workers. The default is 5.
torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 0.1


#: Folders whose tests are all marked ``ci``.
CI_FOLDERS = ("benchmarks", "documentation", "scripts", "studies")


@pytest.hookimpl(tryfirst=True)  # before pytest selects tests by their marks
def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent.name in CI_FOLDERS:
            item.add_marker("ci")


@pytest.fixture(scope="session", autouse=True)
def _cached_hydra():
    with pytest.MonkeyPatch.context() as patch:
        cache_hydra(patch)
        yield


@pytest.fixture(autouse=True)
def _same_random_numbers():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _options_of_registered_methods_only():
    """Remove the options of a method that a test registered and removed again."""
    yield  # the fixtures that a test requests end first, and monkeypatch removes methods
    remove_options_of_removed_methods()


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Trained:
    """Return a corpus, ``trained.data``, and checkpoints, such as ``trained("alibi")``."""
    return Trained(tmp_path_factory.mktemp("trained"))


@pytest.fixture
def sweep(trained, tmp_path):
    """Return a function that evaluates a model of ``trained`` or a checkpoint."""

    def run(model="alibi", out="results", data=trained.data, **changes) -> list[Result]:
        checkpoint = trained(model) if isinstance(model, str) else model
        settings = {"lengths": (16,), "device": "cpu"} | changes
        config = SweepConfig(**settings)
        return run_sweep(data, [checkpoint], config, tmp_path / f"{out}.json")

    return run


@pytest.fixture
def probe(tmp_path, monkeypatch):
    """Return data of the probe ``copy`` and a model trained on them."""
    monkeypatch.setattr(probe_data, "TOKENS", 4096)
    data = tmp_path / "probe"
    prepare_probe(probes.PROBES["copy"], TRAIN_LENGTH, None, data)
    return data, train(data, tmp_path / "model", Trained.FLAGS["alibi"])


def describe(data, **splits: dict) -> None:
    """Write the manifest of a data folder of words."""
    known = {"corpus": "small-text", "identified_by": None, "tokenizer": {"kind": "words"}}
    described = manifest.describe(
        data, **known, splits=splits, sources=[], settings={}, seconds=1.0
    )
    manifest.save(described, data)


def damage_index(path: Path) -> None:
    """Damage the index of binary data as an overflow does: the last position is 4 GiB too small."""
    positions = np.fromfile(path, np.int64, offset=path.stat().st_size - 8)
    content = path.read_bytes()[:-8]
    path.write_bytes(content + (positions - (1 << 32)).tobytes())


def without_times(result: Result) -> Result:
    """Return a result without what differs between runs."""
    return replace(result, cost=Cost(device=result.cost.device))


def small_model(position_method: str = "alibi", *flags: str, heads: int = 8, **kwargs):
    """Build a model with two layers of width 8·heads, in evaluation mode."""
    shape = ["--decoder-layers", "2", "--decoder-attention-heads", str(heads)]
    shape += ["--decoder-embed-dim", str(8 * heads), "--decoder-ffn-embed-dim", "64"]
    model = build_model(
        "--arch", "alibi_lm", "--position-method", position_method, *shape, *flags, **kwargs
    )
    return model.eval()


@pytest.fixture(scope="session")
def data_bin(tmp_path_factory):
    """Return a small data folder created by fairseq-preprocess."""
    return make_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def checkpoint(data_bin, tmp_path_factory):
    """Return a checkpoint trained on ``data_bin`` for a few updates with the flags ``SHORT``."""
    folder = tmp_path_factory.mktemp("checkpoint")
    in_process("train", data_bin, *SHORT, "--save-dir", folder)
    return folder / "checkpoint_last.pt"


@pytest.fixture
def port():
    """Return a free port of this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture
def uncompiled_flex(monkeypatch):
    """Run flex_attention uncompiled, because the C++ compiler would take most of the time."""

    def uncompiled(q, k, v, score_mod, blocks, options):
        return flex_attention(q, k, v, score_mod, blocks)

    monkeypatch.setattr(flex, "flex_kernel", uncompiled)


@pytest.fixture
def arguments_of_pytest_stay(monkeypatch):
    """Restore ``sys.argv`` after the test, because commands change it."""
    monkeypatch.setattr(sys, "argv", list(sys.argv))


@pytest.fixture
def fail(capsys, arguments_of_pytest_stay):
    """Return a function that runs a failing command, with its exit code and message."""

    def run(*arguments) -> tuple[int, str]:
        capsys.readouterr()
        code = cli.main([str(word) for word in arguments])
        last_line = capsys.readouterr().err.strip().splitlines()[-1]
        return code, last_line.partition("error: ")[2]

    return run


@pytest.fixture
def refuse(fail):
    """Return a function that runs a command with rejected input, with its message."""

    def run(*arguments) -> str:
        code, sentence = fail(*arguments)
        assert code == 2, sentence
        return sentence

    return run
