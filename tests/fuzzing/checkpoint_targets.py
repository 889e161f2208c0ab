"""Readers of checkpoints: the file, its options and its weights."""

from __future__ import annotations

import copy
import io
import pickle
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import torch
from checkpoints.released_format import WORDS, released_state, write_dictionary
from fuzzing.edits import ODD_VALUES, changed, edited
from fuzzing.inputs import PROGRAM

from alibi_fairseq.checkpoints import options, read_checkpoint, released


@cache
def _checkpoint() -> dict[str, bytes]:
    """The members of a checkpoint file."""
    stream = io.BytesIO()
    state = released_state()
    state["model"] = dict(list(state["model"].items())[:2])
    torch.save(state, stream)
    with zipfile.ZipFile(stream) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def checkpoint_file(data: bytes, folder: Path) -> None:
    path = folder / "checkpoint.pt"
    if data and data[0] >= PROGRAM:
        path.write_bytes(data[1:])
    else:
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in _checkpoint().items():
                if name.endswith("data.pkl"):
                    content = changed(content, data[1:]) if data[:1] < b"\x40" else data[1:]
                archive.writestr(name, content)
    read_checkpoint(path)


@cache
def _released() -> dict:
    torch.manual_seed(0)
    return released_state()


@cache
def _its_dictionary():
    path = Path("/dev/shm" if Path("/dev/shm").is_dir() else "/tmp") / f"dict{id(WORDS)}.txt"
    try:
        return released.read_dictionary(write_dictionary(path))
    finally:
        path.unlink()


def checkpoint_contents(data: bytes, folder: Path) -> None:
    released.import_released(edited(_released(), data, ODD_VALUES), _its_dictionary())


def checkpoint_weights(data: bytes, folder: Path) -> None:
    """As above with its options as they are, which take most of the time."""
    state = _released()
    args = state["args"]
    parts = edited({key: value for key, value in state.items() if key != "args"}, data, ODD_VALUES)
    with _translated_once():
        released.import_released({**parts, "args": args}, _its_dictionary())


@contextmanager
def _translated_once() -> Iterator[None]:
    """Lets the options of one checkpoint be translated, and its model be built, once."""
    before = released.translate_options, released.models.build_model
    cfg, model = _its_model()
    released.translate_options = lambda options: cfg
    released.models.build_model = lambda cfg, task: model
    try:
        yield
    finally:
        released.translate_options, released.models.build_model = before


@cache
def _its_model() -> tuple:
    cfg = released.translate_options(released.options_of(_released(), ""))
    dictionary = _its_dictionary()
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    with torch.device("meta"):
        return cfg, released.models.build_model(cfg.model, task)


def checkpoint_options(data: bytes, folder: Path) -> None:
    options.check_options(edited(_options(), data, ODD_VALUES), "checkpoint.pt")


@cache
def _options() -> dict:
    return {
        "model": {**vars(_released()["args"]), "_name": "alibi_lm", "position_method": "alibi"},
        "task": {"_name": "language_modeling", "tokens_per_sample": 32, "data": "/somewhere"},
        "criterion": {"_name": "adaptive_loss"},
        "bpe": None,
        "common": {"seed": 1},
    }


def _pickled() -> bytes:
    """A checkpoint in the format before torch 1.6, and no larger than need be."""
    stream = io.BytesIO()
    state = copy.deepcopy(_released())
    state["model"] = {"a": torch.ones(2)}
    torch.save(state, stream, _use_new_zipfile_serialization=False)
    return stream.getvalue() or pickle.dumps({})


TARGETS: dict[str, Callable[[bytes, Path], None]] = {
    "checkpoint-file": checkpoint_file,
    "checkpoint-weights": checkpoint_weights,
    "checkpoint-contents": checkpoint_contents,
    "checkpoint-options": checkpoint_options,
}
VALID: dict[str, Callable[[], list[bytes]]] = {"checkpoint-file": lambda: [_pickled()]}
