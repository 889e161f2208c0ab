"""What reads files of others, as functions of one input: bytes, of which the first says their form.

Below ``PROGRAM`` they describe edits of a valid file (:mod:`.edits`); from there on they are the file.
"""

from __future__ import annotations

import bz2
import copy
import gzip
import hashlib
import io
import json
import lzma
import pickle
import tarfile
import traceback
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from checkpoints.released_format import WORDS, released_state, write_dictionary
from conftest import dictionary_of
from fairseq.data import indexed_dataset
from fuzzing.edits import ODD_VALUES, changed, edited
from results_documents import document, evaluation_cell

from alibi_fairseq.checkpoints import options, read_checkpoint, released
from alibi_fairseq.cli import sweep_options
from alibi_fairseq.cli.eval import evaluation_table
from alibi_fairseq.compare import description
from alibi_fairseq.dataprep import sources, splits
from alibi_fairseq.errors import BadInput, explain
from alibi_fairseq.evaluation import data as evaluation_data
from alibi_fairseq.evaluation.merge import merge_shards
from alibi_fairseq.literals import evaluate_literal
from alibi_fairseq.reporting import own_results
from alibi_fairseq.reporting.collect import collect
from alibi_fairseq.reporting.markdown import Report
from alibi_fairseq.results import dictionaries, manifest
from alibi_fairseq.results.schema import load_document, merge_documents

PROGRAM = 128  # a first byte below this one begins a program
FOUND = Path(__file__).parent / "found"


def outcome(target: str, data: bytes, folder: Path) -> str:
    """``accepted``, ``refused``, or where an exception without a sentence came from."""
    try:
        TARGETS[target](data, folder)
    except BadInput:
        return "refused"
    except Exception as error:
        if explain(error) is not None:
            return "refused"
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if "alibi_fairseq" in frame.filename] or frames
        return f"{type(error).__name__} in {Path(ours[-1].filename).name}:{ours[-1].lineno}"
    return "accepted"


def seeds(target: str) -> list[bytes]:
    """Inputs to begin with: a valid file, some edits, and what was found before."""
    found = [path.read_bytes() for path in sorted((FOUND / target).glob("*"))]
    files = VALID.get(target, list)()
    valid = [bytes([PROGRAM + number]) + file for number, file in enumerate(files)]
    return [b"", b"\0", b"\0\0\1\0\1", b"\1\0\5\2\3\0\7\1\11", *valid, *found]


def _json(data: bytes, valid) -> bytes:
    """A JSON file: the valid one with edits, or any bytes."""
    if not data or data[0] < PROGRAM:
        return json.dumps(edited(valid, data[1:])).encode()
    return data[1:]


def _file(data: bytes, valid: bytes) -> bytes:
    """A file: the valid one with some bytes changed, or any bytes."""
    return changed(valid, data[1:]) if not data or data[0] < PROGRAM else data[1:]


@cache
def _documents() -> list[dict]:
    cells = [evaluation_cell(16.0), evaluation_cell(15.0, length=64, model="alibi_lm", seed=2)]
    loss = {**cells[0], "position_from": 0, "position_to": 8}
    training = {key: cells[0][key] for key in ("position_method", "train_length", "subset")}
    training |= {"updates": 10, "loss_bits": 4.0, "hours": 0.1}
    benchmark = {"name": "speed", "baseline": None, "ratio": 2.0, "variant": "x"}
    return [
        document(*cells),
        document(loss, kind="position_loss"),
        document(training, kind="training"),
        document(benchmark, kind="benchmark"),
    ]


class _Page(Report):
    """A report whose tables and figures are not written."""

    def table(self, name, title, body, notes=None):
        self._unique("tables", name)

    def figure(self, name, caption, draw):
        self._unique("figures", name)


def results(data: bytes, folder: Path) -> None:
    path = folder / "results.json"
    documents = _documents()
    path.write_bytes(_json(data, documents[(data[0] if data else 0) % len(documents)]))
    document = load_document(path)
    merge_documents([document, document])
    if document["kind"] == "evaluation":
        evaluation_table(document["cells"])
    collected, page = collect([path]), _Page(folder)
    own_results.perplexities(page, collected)
    own_results.other_documents(page, collected)


@cache
def _shards() -> list[dict]:
    shards = []
    for shard in ("1/2", "2/2"):
        cell = evaluation_cell(16.0, tokens=500, checkpoint="c.pt", seconds=1.0)
        cell |= {"shard": shard, "shard_nats": "12345/8", "tokens_per_second": 500.0}
        cell |= {"peak_memory_mb": 10.0, "split_tokens": 1000, "split_words": 900}
        shards.append(document(cell))
    return shards


def shards(data: bytes, folder: Path) -> None:
    path = folder / "shard.json"
    parts = []
    if not data or data[0] < PROGRAM:
        for part in edited(_shards(), data[1:]):
            path.write_text(json.dumps(part))
            parts.append(load_document(path))
    else:
        path.write_bytes(data[1:])
        parts = [_shards()[0], load_document(path)]
    evaluation_table(merge_shards(parts)["cells"])


_WORDS = b"a 1\nb 1\n"


@cache
def _manifest() -> dict:
    counts = {"lines": 2, "words": 8, "bytes": 40, "tokens": 10}
    return {
        "format": manifest.FORMAT,
        "version": manifest.VERSION,
        "corpus": "some-text",
        "identified_by": None,
        "splits": {"train": counts, "valid": counts},
        "dictionary": {"entries": 12, "sha256": "0" * 64},
        "tokenizer": {"kind": "words"},
        "sources": [],
        "settings": {},
        "shards": ["shard0", "shard1"],
        "files": {"dict.txt": {"bytes": len(_WORDS), "sha256": hashlib.sha256(_WORDS).hexdigest()}},
        "provenance": {},
    }


def manifests(data: bytes, folder: Path) -> None:
    (folder / "dict.txt").write_bytes(_WORDS)
    (folder / manifest.FILE_NAME).write_bytes(_json(data, _manifest()))
    manifest.summary(folder)
    manifest.data_argument(folder, manifest.load(folder))
    evaluation_data.corpus_name(folder)
    evaluation_data.stated_size(folder, "valid", 10)
    evaluation_data.check_hashes(folder, "valid")


_DICTIONARY = "the 12\nof 7\né 3\nsame 2 #fairseq:overwrite\nmadeupword0000 0\n".encode()


def dictionary(data: bytes, folder: Path) -> None:
    (folder / "dict.txt").write_bytes(_file(data, _DICTIONARY))
    released.read_dictionary(folder / "dict.txt")
    evaluation_data.load_dictionary(folder)
    dictionaries.dictionary_sha256(folder)


@cache
def _data_bin() -> tuple[bytes, bytes]:
    """(idx, bin) of four lines."""
    lines = [np.array(line, dtype=np.uint16) for line in ([4, 5, 2], [6, 2], [2], [7, 8, 9, 2])]
    sizes = np.array([len(line) for line in lines], dtype=np.int32)
    pointers = np.concatenate([[0], np.cumsum(sizes[:-1]) * 2]).astype(np.int64)
    head = b"MMIDIDX\0\0" + (1).to_bytes(8, "little") + b"\x08" + (4).to_bytes(8, "little")
    return head + sizes.tobytes() + pointers.tobytes(), b"".join(line.tobytes() for line in lines)


@cache
def _legacy() -> tuple[bytes, bytes]:
    """(idx, bin) in fairseq's older format."""
    folder = Path("/dev/shm" if Path("/dev/shm").is_dir() else "/tmp")
    prefix = str(folder / f"legacy{id(folder)}")
    builder = indexed_dataset.IndexedDatasetBuilder(prefix + ".bin")
    for line in ([4, 5, 2], [6, 2]):
        builder.add_item(torch.IntTensor(line))
    builder.finalize(prefix + ".idx")
    paths = Path(prefix + ".idx"), Path(prefix + ".bin")
    contents = tuple(path.read_bytes() for path in paths)
    for path in paths:
        path.unlink()
    return contents


def data_bin(data: bytes, folder: Path) -> None:
    form = data[0] if data else 0
    idx, tokens = _legacy() if form % 4 == 3 else _data_bin()
    if form >= PROGRAM:
        cut = data[1] if len(data) > 1 else 0
        idx, tokens = data[2 : 2 + cut], data[2 + cut :]
    elif form % 4 == 2:
        tokens = changed(tokens, data[2:])[: data[1] if len(data) > 1 else None]
    elif form % 4 == 1:
        idx = changed(idx, data[2:])[: data[1] if len(data) > 1 else None]
    else:
        idx, tokens = changed(idx, data[1:]), changed(tokens, data[5:])
    (folder / "dict.txt").write_text("".join(f"w{word} 1\n" for word in range(6)))
    (folder / "valid.idx").write_bytes(idx)
    (folder / "valid.bin").write_bytes(tokens)
    split = evaluation_data.load_split(folder, "valid", dictionary_of(6))
    split.inputs(2)


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


_TEXT = b"one two three\nfour\n\nfive six\n" * 20


def _tar(mode: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:
        member = tarfile.TarInfo("a.txt")
        member.size = len(_TEXT)
        archive.addfile(member, io.BytesIO(_TEXT))
    return stream.getvalue()


def _zip() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", _TEXT)
    return stream.getvalue()


@cache
def _packed() -> list[tuple[str, bytes]]:
    return [
        ("a.txt", _TEXT),
        ("a.txt.gz", gzip.compress(_TEXT)),
        ("a.txt.xz", lzma.compress(_TEXT)),
        ("a.txt.bz2", bz2.compress(_TEXT)),
        ("a.tar", _tar("w")),
        ("a.tar.gz", _tar("w:gz")),
        ("a.tar.xz", _tar("w:xz")),
        ("a.zip", _zip()),
    ]


def texts(data: bytes, folder: Path) -> None:
    name, packed = _packed()[(data[0] if data else 0) % len(_packed())]
    path = folder / name
    path.write_bytes(_file(data, packed))
    for _, stream in sources.texts(path):
        while stream.read(1 << 16):
            pass


_COMPARISON = (
    "corpora:\n  - {name: a, text: [x.txt]}\n  - {name: b, data: y}\nmethods: [alibi, rotary]\n"
    "train_lengths: [64, 128]\nupdates: 10\ntokens_per_update: 1024\nlr: 0.001\nseeds: 1\n"
    "train_flags: '--dropout 0'\norder: [seeds, corpora, train_lengths, methods]\n"
)


@cache
def _comparison() -> dict:
    import yaml

    return yaml.safe_load(_COMPARISON)


def comparison(data: bytes, folder: Path) -> None:
    path = folder / "comparison.yaml"
    path.write_bytes(_json(data, _comparison()))
    description.load(path)


_SPLITS = b"split\tsha256\tgroup\tname\ntrain\t" + b"0" * 64 + b"\t0\ta.txt\n"


def split_list(data: bytes, folder: Path) -> None:
    path = folder / "splits.tsv"
    path.write_bytes(_file(data, _SPLITS))
    splits.apply_list([splits.Book("a.txt", "0" * 64)], path)


_LITERALS = (b"[(512, 3)] * 4 + [1, -2.5]", b'{"attention_backend": "eager"}', b"2/3", b"512,1024")


def options_as_text(data: bytes, folder: Path) -> None:
    """Text of the command line."""
    text = _file(data, _LITERALS[(data[0] if data else 0) % len(_LITERALS)]).decode(
        errors="replace"
    )
    readers: tuple[Callable, ...] = (
        sweep_options._overrides,
        sweep_options._shard,
        lambda text: sweep_options._number("--lengths", text),
        lambda text: sweep_options._names("--lengths", text),
        _literal,
    )
    for reader in readers:
        try:
            reader(text)
        except BadInput:
            continue


def _literal(text: str) -> None:
    try:
        evaluate_literal(text)
    except ValueError as error:  # where fairseq reads an option
        raise BadInput(str(error)) from error


TARGETS: dict[str, Callable[[bytes, Path], None]] = {
    "results": results,
    "shards": shards,
    "manifest": manifests,
    "dictionary": dictionary,
    "data-bin": data_bin,
    "checkpoint-file": checkpoint_file,
    "checkpoint-weights": checkpoint_weights,
    "checkpoint-contents": checkpoint_contents,
    "checkpoint-options": checkpoint_options,
    "texts": texts,
    "comparison": comparison,
    "split-list": split_list,
    "options-as-text": options_as_text,
}
#: Whole valid files, behind which a fuzzer looks further.
VALID: dict[str, Callable[[], list[bytes]]] = {
    "results": lambda: [json.dumps(document).encode() for document in _documents()],
    "shards": lambda: [json.dumps(document).encode() for document in _shards()],
    "manifest": lambda: [json.dumps(_manifest()).encode()],
    "dictionary": lambda: [_DICTIONARY],
    "data-bin": lambda: [bytes([len(_data_bin()[0])]) + b"".join(_data_bin())],
    "checkpoint-file": lambda: [_pickled()],
    "texts": lambda: [packed for _, packed in _packed()],
    "comparison": lambda: [_COMPARISON.encode()],
    "split-list": lambda: [_SPLITS],
    "options-as-text": lambda: list(_LITERALS),
}


def _pickled() -> bytes:
    """A checkpoint in the format before torch 1.6, and no larger than need be."""
    stream = io.BytesIO()
    state = copy.deepcopy(_released())
    state["model"] = {"a": torch.ones(2)}
    torch.save(state, stream, _use_new_zipfile_serialization=False)
    return stream.getvalue() or pickle.dumps({})
