"""Damaged and hostile files run no code, give no number that is not one, and never hang.

A case damages one file of a good folder as its seed says and gives the folder to a command. Whether
that is refused with a sentence or an exception is the same here. More cases:

    FUZZ_CASES=1000 pytest -m slow tests/test_fuzzing.py
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
from functools import cache, reduce
from pathlib import Path

import pytest
import torch
from checkpoints.released_format import released_state, write_dictionary
from commands import ROOT, SHORT
from huggingface.exported import converted, perturbed

from alibi_fairseq import cli
from alibi_fairseq.results.data_hashes import dictionary_sha256

CASES = int(os.environ.get("FUZZ_CASES", 60))

pytestmark = pytest.mark.timeout(120)  # a hang


def model_and_data(folder: Path, data: Path, checkpoint: Path) -> None:
    shutil.copytree(data, folder, dirs_exist_ok=True)
    shutil.copy(checkpoint, folder / "checkpoint_last.pt")
    counts = {"lines": 20, "words": 190, "bytes": 900, "tokens": 210}
    dictionary = {"entries": 48, "sha256": dictionary_sha256(folder)}
    manifest = {
        **{
            "format": "alibi_fairseq/corpus",
            "version": 1,
            "corpus": "some-text",
            "identified_by": None,
        },
        **{"splits": {"valid": counts}, "tokenizer": {"kind": "words"}, "sources": []},
        **{"dictionary": dictionary, "settings": {}, "provenance": {}},
        **{"shards": [], "files": {}},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))


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
    corpora = [{"name": "a", "text": [str(ROOT / "README.md")]}]
    given = {"methods": ["alibi", "rotary"], "train_lengths": [64], "train_flags": "--dropout 0"}
    (folder / "comparison.yaml").write_text(json.dumps({"corpora": corpora, **given, "lr": 0.001}))


def archives(folder: Path, *_) -> None:
    text = b"one two three\n\nfour five\n\n" * 600
    (folder / "a.txt").write_bytes(text)
    for ending, pack in (("gz", gzip.compress), ("bz2", bz2.compress)):
        (folder / f"a.{ending}").write_bytes(pack(text))
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", text)


EVAL = "eval {f} --path {f}/checkpoint_last.pt --lengths 8,16 --device cpu --out {out}/r.json"
PREPARE = "prepare text {f}/a.txt {f}/a.gz {f}/a.bz2 {f}/a.zip --tokenizer words --workers 1"
TRAIN = f"train {{f}} {' '.join(SHORT)} --max-update 5 --save-dir {{f}}"
IMPORT = "import-checkpoint {f}/in.pt --dict {f}/dict.txt --out {out}/model"
#: What reads files of others: a function that writes good ones into a folder, from a data folder
#: and a checkpoint if need be; a pattern of those that are damaged; and the command, where ``{f}``
#: stands for the folder and ``{out}`` for its output.
READERS: dict[str, tuple[Callable, str, str]] = {
    "data folder": (model_and_data, "[dv]*", EVAL),
    "manifest": (model_and_data, "manifest.json", EVAL),
    "checkpoint": (model_and_data, "*.pt", EVAL),
    "training state": (model_and_data, "*.pt", TRAIN),
    "released checkpoint": (released, "*", IMPORT),
    "Hugging Face folder": (hugging_face, "*", "import-hf {f} --out {out}/model"),
    "results": (demo_results, "*", "report {f}/results.json --out {out}"),
    "comparison": (comparison, "*", "compare {f}/comparison.yaml --dry-run --out {out}/runs"),
    "texts": (archives, "*", PREPARE + " --out {out}/text"),
}


class Trap:
    """Unpickled without care, it makes a file."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)

    def __deepcopy__(self, memo):
        return self


def odd_values(mark: Path) -> list:
    """Values that do not belong where they are put, some of which are code."""
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
    """Such values, and those that only a pickle can hold."""
    return [
        *odd_values(mark),
        *(12 * [Trap(mark)]),
        *(b"\xff", (1, 2), {1: 2}, argparse.Namespace(a=1), torch.zeros(0)),
        *(torch.ones(2, 2), torch.full((32, 32), math.nan), torch.ones(32, 32).long()),
        *(torch.ones(2) * 1j, torch.ones(1).expand(32, 32), torch.eye(4).to_sparse()),
    ]


def edit(value, odd: list, chance: random.Random) -> None:
    """Replace, remove or double one part of a nested value."""
    part = vars(value) if isinstance(value, argparse.Namespace) else value
    key = chance.choice(list(part) if isinstance(part, dict) else range(len(part)))
    below = part[key]
    what = chance.random()
    if isinstance(below, (dict, list, argparse.Namespace)) and below and chance.random() < 0.8:
        edit(below, odd, chance)
    elif what < 0.2:
        del part[key]
    elif what < 0.3 and isinstance(part, list):
        part.insert(key, copy.deepcopy(below))
    else:
        part[key] = copy.deepcopy(chance.choice(odd))


def damage(path: Path, mark: Path, chance: random.Random) -> None:
    """Damage what a file holds, or its bytes."""
    content = path.read_bytes()
    what = chance.random()
    if what < 0.6 and path.suffix == ".pt":
        state = torch.load(path, weights_only=False)
        for _ in range(chance.randrange(1, 4)):
            edit(state, odd_objects(mark), chance)
        torch.save(state, path)
    elif what < 0.6 and path.suffix in (".json", ".yaml"):
        value = json.loads(content)
        for _ in range(chance.randrange(1, 4)):
            edit(value, odd_values(mark), chance)
        path.write_text(json.dumps(value))
    elif what < 0.8:
        yaml_tag = f"!!python/object/apply:os.system ['touch {mark}']"
        path.write_bytes(chance.choice([pickle.dumps(Trap(mark)), yaml_tag.encode()]))
    else:
        at = chance.randrange(len(content) + 1)
        junk = chance.choice([b"", b"\0" * 9, b"\xff" * 8, chance.randbytes(20), content[:50]])
        rest = chance.choice([content[at:], content[at + len(junk) :], b""])
        path.write_bytes(content[:at] + junk + rest)


def check_finite(folder: Path) -> None:
    """Check every number that was written."""
    for path in folder.rglob("*.json"):
        assert not re.search(r"\b(NaN|Infinity)\b", path.read_text()), path
    for path in folder.rglob("*.pt"):
        for name, tensor in torch.load(path, weights_only=False)["model"].items():
            assert tensor.isfinite().all(), f"{name} in {path}"


@pytest.fixture(scope="module")
def good(tmp_path_factory, data_bin, checkpoint):
    """Return a function that gives the folder of a reader's valid files."""

    @cache
    def folder(name: str) -> Path:
        made = tmp_path_factory.mktemp("good")
        READERS[name][0](made, data_bin, checkpoint)
        return made

    return folder


@pytest.fixture
def read(tmp_path, good, arguments_of_pytest_stay):
    """Return a function that passes partly corrupted files to a reader and reports success."""

    def run(name: str, damaging: Callable[[list[Path]], object] = len) -> bool:
        folder = tmp_path / "files"
        out = tmp_path / "out"
        _, damaged, command = READERS[name]
        shutil.copytree(good(name), folder)
        out.mkdir()
        damaging(sorted(folder.glob(damaged)))
        try:
            code = cli.main(command.format(f=folder, out=out).split())
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
def test_corrupted_files_are_rejected(name, seed, read, tmp_path):
    chance = random.Random(f"{name} {seed}")
    mark = tmp_path / "mark"
    read(name, lambda paths: damage(chance.choice(paths), mark, chance))
    assert not mark.exists(), "code of the file was run"
