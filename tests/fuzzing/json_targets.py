"""Readers of results, shards of results and manifests."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path

from fuzzing.edits import edited
from fuzzing.inputs import PROGRAM, json_file
from results_documents import document, evaluation_cell

from alibi_fairseq.cli.eval import evaluation_table
from alibi_fairseq.evaluation import data as evaluation_data
from alibi_fairseq.evaluation.merge import merge_shards
from alibi_fairseq.reporting import own_results
from alibi_fairseq.reporting.collect import collect
from alibi_fairseq.reporting.markdown import Report
from alibi_fairseq.results import manifest
from alibi_fairseq.results.schema import load_document, merge_documents


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
    path.write_bytes(json_file(data, documents[(data[0] if data else 0) % len(documents)]))
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
        cell |= {
            "shard": shard,
            "shard_nats": str(Fraction(2000 * math.log(2))),
            "tokens_per_second": 500.0,
        }
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
    (folder / manifest.FILE_NAME).write_bytes(json_file(data, _manifest()))
    manifest.summary(folder)
    manifest.data_argument(folder, manifest.load(folder))
    evaluation_data.corpus_name(folder)
    evaluation_data.stated_size(folder, "valid", 10)
    evaluation_data.check_hashes(folder, "valid")


TARGETS: dict[str, Callable[[bytes, Path], None]] = {
    "results": results,
    "shards": shards,
    "manifest": manifests,
}
VALID: dict[str, Callable[[], list[bytes]]] = {
    "results": lambda: [json.dumps(document).encode() for document in _documents()],
    "shards": lambda: [json.dumps(document).encode() for document in _shards()],
    "manifest": lambda: [json.dumps(_manifest()).encode()],
}
