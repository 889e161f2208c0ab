"""Commands that leave what the real ones leave, in no time; for tests of what surrounds them."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import torch
from results_documents import PROVENANCE, document, evaluation_cell

from alibi_fairseq.errors import STOPPED_EARLY
from alibi_fairseq.results.schema import load_document, save_document


class Commands:
    """Stands for ``command.execute``.

    Attributes:
        ran: module and verb of each command, in order.
        stop_at: the number of the command that is told to stop (1: the first); None: none.
        genuine: whether preparations recognise the paper's text.
    """

    def __init__(self, genuine: bool = False):
        self.ran: list[str] = []
        self.stop_at: int | None = None
        self.genuine = genuine

    def __call__(self, command: list[str], *arguments, **more) -> int:
        words = command[1:]
        words = words[words.index("-m") + 1 :]
        if words[0] == "alibi_fairseq.experiments.torchrun":
            words = words[words.index("-m") + 1 :]
        own_module = words[0] != "alibi_fairseq"
        self.ran.append(words[0] if own_module else " ".join(words[:2]))
        if self.stop_at == len(self.ran):
            return STOPPED_EARLY
        if own_module:
            self.excerpt(Path(words[2]))
        else:
            getattr(self, words[1])(words[2:])
        return 0

    def prepare(self, words: list[str]) -> None:
        data = Path(value(words, "--out")) / "data-bin"
        data.mkdir(parents=True)
        counts = {"lines": 1, "words": 1, "bytes": 1, "tokens": 1}
        manifest = {
            "format": "alibi_fairseq/corpus",
            "version": 1,
            "corpus": words[0] if self.genuine else "some-text",
            "identified_by": "a hash" if self.genuine else None,
            "splits": {"train": counts, "valid": counts},
            "files": {"train.bin": {"bytes": 1, "sha256": words[0]}},
            **dict.fromkeys(("dictionary", "tokenizer", "settings", "provenance"), {}),
            "sources": [],
        }
        (data / "manifest.json").write_text(json.dumps(manifest))

    def excerpt(self, out: Path) -> None:
        out.mkdir(parents=True)
        for name in ("train.bin", "valid.bin", "dict.txt"):
            (out / name).write_text(out.name)

    def train(self, words: list[str]) -> None:
        folder, updates = Path(value(words, "--save-dir")), int(value(words, "--max-update"))
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("checkpoint_best.pt", "checkpoint_last.pt"):
            history = {"optimizer_history": [{"num_updates": updates}]}
            torch.save({**history, "of": str(folder), "name": name}, folder / name)

    def eval(self, words: list[str]) -> None:
        from alibi_fairseq.files import sha256_file

        model, out = Path(value(words, "--path")), Path(value(words, "--out"))
        cells = load_document(out)["cells"] if out.exists() else []
        stride = value(words, "--stride")
        for length in map(int, value(words, "--lengths").split(",")):
            cells.append(
                evaluation_cell(
                    perplexity(model, length),
                    length=length,
                    stride=length if stride == "full" else int(stride),
                    subset=value(words, "--subset"),
                    checkpoint=str(model),
                    checkpoint_sha256=sha256_file(model),
                )
            )
        unique = {json.dumps(cell, sort_keys=True): cell for cell in cells}
        save_document(document(*unique.values(), **PROVENANCE), out)


def value(words: list[str], flag: str) -> str:
    """What stands behind a flag the last time it is given."""
    return words[len(words) - 1 - words[::-1].index(flag) + 1]


def perplexity(model: Path, length: int) -> float:
    """Another one for every run, every length, and every checkpoint of a run."""
    text = f"{model.parent.name}/{model.name} at {length}"
    return 10 + zlib.crc32(text.encode()) % 10_000 / 100
