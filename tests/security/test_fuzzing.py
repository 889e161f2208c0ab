"""Corrupted and hostile files run no code, never hang, and yield no NaN or infinity.

Each case corrupts one file of a valid folder at random and passes the folder to a command. The
command may succeed, report an error, or raise an exception. ``FUZZ_CASES`` sets the number of cases
per reader::

    FUZZ_CASES=1000 pytest -m slow tests/security/test_fuzzing.py
"""

from __future__ import annotations

import argparse
import bz2
import copy
import gzip
import json
import math
import os
import pickle
import random
import re
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import asdict
from functools import cache, reduce
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from checkpoints.released_format import released_state, write_dictionary
from commands import ROOT, SHORT
from huggingface.exported import converted, perturbed

from alibi_fairseq import cli
from alibi_fairseq.data.probe_data import PROBE_FILE
from alibi_fairseq.data.probes import PROBES
from alibi_fairseq.results.data_hashes import dictionary_sha256

CASES = int(os.environ.get("FUZZ_CASES", 60))

pytestmark = [pytest.mark.ci, pytest.mark.timeout(120)]  # a hang


def model_and_data(folder: Path, data: Path, checkpoint: Path) -> None:
    shutil.copytree(data, folder, dirs_exist_ok=True)
    shutil.copy(checkpoint, folder / "checkpoint_last.pt")
    counts = {"lines": 20, "words": 190, "bytes": 900, "tokens": 210}
    dictionary = {"entries": 48, "sha256": dictionary_sha256(folder)}
    manifest = {
        "format": "alibi_fairseq/corpus",
        "version": 1,
        "corpus": "some-text",
        "identified_by": None,
        "splits": {"valid": counts},
        "tokenizer": {"kind": "words"},
        "sources": [],
        "dictionary": dictionary,
        "settings": {},
        "provenance": {},
        "shards": [],
        "files": {},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))


def probe(folder: Path, data: Path, checkpoint: Path) -> None:
    model_and_data(folder, data, checkpoint)
    settings = {"probe": asdict(PROBES["copy"]), "length": 64, "seed": 1}
    (folder / PROBE_FILE).write_text(json.dumps(settings))


def released(folder: Path, *_) -> None:
    torch.save(released_state(), folder / "in.pt")
    write_dictionary(folder / "dict.txt")


def hugging_face(folder: Path, *_) -> None:
    model = perturbed("alibi", "--layernorm-embedding --activation-fn gelu_accurate")
    converted(model, "alibi").model.save_pretrained(folder)
    model.decoder.dictionary.save(str(folder / "dict.txt"))


def demo_results(folder: Path, *_) -> None:
    shutil.copy(ROOT / "results/examples/demo/results.json", folder)


def comparison(folder: Path, *_) -> None:
    config = {
        "corpora": [{"name": "a", "text": [str(ROOT / "README.md")]}],
        "methods": ["alibi", "rotary"],
        "train_lengths": [64],
        "train_flags": "--dropout 0",
        "lr": 0.001,
    }
    (folder / "comparison.yaml").write_text(json.dumps(config))


def archives(folder: Path, *_) -> None:
    text = b"one two three\n\nfour five\n\n" * 600
    (folder / "a.txt").write_bytes(text)
    (folder / "a.gz").write_bytes(gzip.compress(text))
    (folder / "a.bz2").write_bytes(bz2.compress(text))
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", text)


EVAL = "eval {f} --path {f}/checkpoint_last.pt --lengths 8,16 --device cpu --out {out}/r.json"
PREPARE = (
    "prepare text {f}/a.txt {f}/a.gz {f}/a.bz2 {f}/a.zip --tokenizer words --workers 1 "
    "--out {out}/text"
)
TRAIN = f"train {{f}} {' '.join(SHORT)} --max-update 5 --save-dir {{f}}"
IMPORT = "import-checkpoint {f}/in.pt --dict {f}/dict.txt --out {out}/model"
IMPORT_HF = "import-hf {f} --out {out}/model"
REPORT = "report {f}/results.json --out {out}"
COMPARE = "compare {f}/comparison.yaml --dry-run --out {out}/runs"


class Reader(NamedTuple):
    """Command that reads untrusted files.

    Attributes:
        write_files: function that writes valid files, given a folder, a data folder, and a
            checkpoint.
        corrupted: glob pattern of the files that a case corrupts.
        command: arguments, in which ``{f}`` is the folder and ``{out}`` the output folder.
    """

    write_files: Callable
    corrupted: str
    command: str


READERS = {
    "data folder": Reader(model_and_data, "[dv]*", EVAL),
    "manifest": Reader(model_and_data, "manifest.json", EVAL),
    "probe": Reader(probe, PROBE_FILE, EVAL.replace("8,16", "24")),
    "checkpoint": Reader(model_and_data, "*.pt", EVAL),
    "training state": Reader(model_and_data, "*.pt", TRAIN),
    "released checkpoint": Reader(released, "*", IMPORT),
    "Hugging Face folder": Reader(hugging_face, "*", IMPORT_HF),
    "results": Reader(demo_results, "*", REPORT),
    "comparison": Reader(comparison, "*", COMPARE),
    "texts": Reader(archives, "*", PREPARE),
}


class Trap:
    """Object that creates a file when it is unpickled without validation."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)

    def __deepcopy__(self, memo):
        return self


def odd_values(mark: Path) -> list:
    """Return values that are unexpected in a file, some of which are code."""
    deep = reduce(lambda inner, _: [inner], range(200), [])
    code = f"__import__('os').system('touch {mark}')"
    hostile = [code, f"{code} or [24, 40]", f"x;touch {mark};", "${oc.env:HOME}"]
    hostile.append({"_name": "transformer_lm", "adaptive_input_cutoff": code})
    return [
        *(3 * hostile),
        *(None, True, False, 0, 1, -1, 2, 7, 2**31, 2**63, 10**400, 0.0, -0.5, 1e308, 5e-324),
        *(math.nan, math.inf, -math.inf, "", " ", "x", "1/2", "2/2", "64", "nan", "\ud800", "\0"),
        *("a\nb", "é|<b>$x^{", "x" * 5000, "../../x", "/etc", "valid", "train", "alibi", "fp32"),
        *([], {}, [[]], {"a": 1}, [None], [1, "x"], {"": {}}, deep),
    ]


def odd_objects(mark: Path) -> list:
    """Return the odd values, and odd objects that only a pickle can hold."""
    return [
        *odd_values(mark),
        *(12 * [Trap(mark)]),
        *(b"\xff", (1, 2), {1: 2}, argparse.Namespace(a=1), torch.zeros(0)),
        *(torch.ones(2, 2), torch.full((32, 32), math.nan), torch.ones(32, 32).long()),
        *(torch.ones(2) * 1j, torch.ones(1).expand(32, 32), torch.eye(4).to_sparse()),
    ]


def edit(value, odd: list, rng: random.Random) -> None:
    """Replace, remove, or duplicate one item of a nested value."""
    container = vars(value) if isinstance(value, argparse.Namespace) else value
    keys = list(container) if isinstance(container, dict) else range(len(container))
    key = rng.choice(keys)
    item = container[key]
    draw = rng.random()
    if isinstance(item, (dict, list, argparse.Namespace)) and item and rng.random() < 0.8:
        edit(item, odd, rng)
    elif draw < 0.2:
        del container[key]
    elif draw < 0.3 and isinstance(container, list):
        container.insert(key, copy.deepcopy(item))
    else:
        container[key] = copy.deepcopy(rng.choice(odd))


def corrupt(path: Path, mark: Path, rng: random.Random) -> None:
    """Edit the values in a file, replace it by code, or change its bytes."""
    content = path.read_bytes()
    draw = rng.random()
    if draw < 0.6 and path.suffix == ".pt":
        state = torch.load(path, weights_only=False)
        for _ in range(rng.randrange(1, 4)):
            edit(state, odd_objects(mark), rng)
        torch.save(state, path)
    elif draw < 0.6 and path.suffix in (".json", ".yaml"):
        value = json.loads(content)
        for _ in range(rng.randrange(1, 4)):
            edit(value, odd_values(mark), rng)
        path.write_text(json.dumps(value))
    elif draw < 0.8:
        yaml_tag = f"!!python/object/apply:os.system ['touch {mark}']"
        path.write_bytes(rng.choice([pickle.dumps(Trap(mark)), yaml_tag.encode()]))
    else:
        start = rng.randrange(len(content) + 1)
        junk = rng.choice([b"", b"\0" * 9, b"\xff" * 8, rng.randbytes(20), content[:50]])
        rest = rng.choice([content[start:], content[start + len(junk) :], b""])
        path.write_bytes(content[:start] + junk + rest)


def check_finite(folder: Path) -> None:
    """Check that no output file contains NaN or infinity."""
    for path in folder.rglob("*.json"):
        assert not re.search(r"\b(NaN|Infinity)\b", path.read_text()), path
    for path in folder.rglob("*.pt"):
        for name, tensor in torch.load(path, weights_only=False)["model"].items():
            assert tensor.isfinite().all(), f"{name} in {path}"


@pytest.fixture(scope="module")
def valid_files(tmp_path_factory, data_bin, checkpoint):
    """Return a function that returns the folder of a reader's valid files."""

    @cache
    def write_valid_files(name: str) -> Path:
        folder = tmp_path_factory.mktemp("valid")
        READERS[name].write_files(folder, data_bin, checkpoint)
        return folder

    return write_valid_files


@pytest.fixture
def read(tmp_path, valid_files, arguments_of_pytest_stay):
    """Return a function that runs a reader on its files and returns whether it succeeds."""

    def run(name: str, corrupt_files: Callable[[list[Path]], object] = len) -> bool:
        folder = tmp_path / "files"
        out = tmp_path / "out"
        reader = READERS[name]
        shutil.copytree(valid_files(name), folder)
        out.mkdir()
        corrupt_files(sorted(folder.glob(reader.corrupted)))
        try:
            code = cli.main(reader.command.format(f=folder, out=out).split())
        except (Exception, SystemExit) as error:
            code = getattr(error, "code", 1)
        assert code in (0, 1, 2)
        if code == 0:
            check_finite(folder if name == "training state" else out)
        return code == 0

    return run


@pytest.mark.parametrize("name", READERS)
def test_valid_files_are_read(name, read):
    assert read(name)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, CASES))]
)
@pytest.mark.parametrize("name", READERS)
def test_corrupted_files_run_no_code(name, seed, read, tmp_path):
    rng = random.Random(f"{name} {seed}")
    mark = tmp_path / "mark"
    read(name, lambda paths: corrupt(rng.choice(paths), mark, rng))
    assert not mark.exists(), "code in the file was run"
