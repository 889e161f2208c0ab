"""Fake commands that quickly write the files of the real ones, for tests of their callers."""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import torch
from fairseq import checkpoint_utils
from results_documents import PROVENANCE

from alibi_fairseq.cli import main
from alibi_fairseq.cli.options import add_fields, fill_dataclass
from alibi_fairseq.data.corpus_builder import CorpusBuilder
from alibi_fairseq.errors import STOPPED_EARLY
from alibi_fairseq.evaluation.config import SweepConfig
from alibi_fairseq.evaluation.device import find_device
from alibi_fairseq.evaluation.sweep import Sweep, WeightsIdentity
from alibi_fairseq.experiment import torchrun
from alibi_fairseq.experiment.stopping import Stopped
from alibi_fairseq.files import sha256_file
from alibi_fairseq.positions.plugin_sources import plugin_sha256
from alibi_fairseq.results.case import Case
from alibi_fairseq.results.data_folder import DataFolder
from alibi_fairseq.results.data_hashes import data_sha256
from alibi_fairseq.results.file import Results, load, load_training, save
from alibi_fairseq.results.provenance import Provenance
from alibi_fairseq.results.result import Result, replaces
from alibi_fairseq.results.series import Reading
from alibi_fairseq.results.values import Cost, TextValues
from studies.planned_series import planned_series

#: Flags of a model that trains in a moment.
TINY = "--decoder-layers 1 --decoder-embed-dim 32 --decoder-ffn-embed-dim 32 --num-workers 0"


def in_this_process(words, stop_signal=None, log=None, watch=lambda: None, slot=None, **_) -> int:
    """Run a command in the test process, in place of ``child_process.execute_command``."""
    module, *arguments = words[words.index("-m") + 1 :]
    assert module == "alibi_fairseq", words
    vars(checkpoint_utils.save_checkpoint).pop("best", None)  # set by an earlier training
    before = sys.argv
    try:
        return main(arguments)
    finally:
        sys.argv = before
        watch()


class Commands:
    """Replacement of ``child_process.execute_command``.

    Attributes:
        ran: name of each command, in order.
        trained: save folder, learning rate, and updates of each training.
        stop_at: number of the command that is stopped, counted from 1; None: no command.
        genuine: True if preparations recognize the paper's text.
        validation: perplexity by method and learning rate; None: the training diverges;
            infinity: it diverges in its last update.
        failing: ``train`` or ``eval``, and the checkpoint folder's name, of commands that fail.
        stop_early: number of the last updates that trainings omit.
    """

    def __init__(self):
        self.ran: list[str] = []
        self.trained: list[tuple[str, str, int]] = []
        self.stop_at: int | None = None
        self.genuine = False
        self.validation: dict[str, dict[str, float | None]] = {}
        self.failing: set[tuple[str, str]] = set()
        self.stop_early = 0

    def __call__(self, words, stop_signal=None, log=None, watch=None, slot=None, **_) -> int:
        words = words[words.index("-m") + 1 :]
        if words[0] == torchrun.MODULE:
            words = words[words.index("-m") + 1 :]
        self.ran.append(words[1])
        if self.stop_at == len(self.ran):
            return STOPPED_EARLY
        folders = {part for word in words for part in Path(word).parts}
        for command, folder in self.failing:
            if command == words[1] and folder in folders:
                return 1
        if words[1] == "train":
            return self.train(words[2:], log, watch)
        return getattr(self, words[1])(words[2:])

    def prepare_corpus(self, builder: CorpusBuilder, out: Path, workers: int) -> None:
        """Replace ``data.pipeline.prepare_corpus``."""
        data = out / "data-bin"
        if data.is_dir():
            return
        self.ran.append("prepare")
        if self.stop_at == len(self.ran):
            raise Stopped
        data.mkdir(parents=True)
        for split in ("train", "valid", "test"):
            (data / f"{split}.bin").write_text(split)
        counts = {"lines": 1, "words": 1, "bytes": 1, "tokens": 1}
        manifest = {
            "format": "alibi_fairseq/corpus",
            "version": 1,
            "corpus": builder.name if self.genuine else "some-text",
            "identified_by": "a hash" if self.genuine else None,
            "splits": {"train": counts, "valid": counts},
            "files": {"train.bin": {"bytes": 1, "sha256": builder.name}},
            "dictionary": {},
            "tokenizer": {},
            "settings": {},
            "provenance": {},
            "sources": [],
        }
        (data / "manifest.json").write_text(json.dumps(manifest))

    @staticmethod
    def write_excerpt(source: Path, out: Path, lines_by_split: dict, entries: int) -> None:
        """Replace ``data.truncation.write_excerpt``."""
        out.mkdir(parents=True)
        for name in ("train.bin", "valid.bin", "test.bin", "dict.txt"):
            (out / name).write_text(out.name)

    def train(self, words: list[str], log, watch) -> int:
        folder = Path(value(words, "--save-dir"))
        updates = int(value(words, "--max-update")) - self.stop_early
        method = value(words, "--position-method")
        lr = value(words, "--lr")
        self.trained.append((folder.name, lr, updates))
        best = self.validation.get(method, {}).get(lr, 20.0)
        if best is None:
            log.write("FloatingPointError: gradients are Nan/Inf\n")
            log.flush()
            watch()
            return 1
        data, *flags = words
        if "--keep-at" in flags:  # an option of alibi-fairseq train
            option = flags.index("--keep-at")
            del flags[option : option + 2]
        series = planned_series(data, flags, plugin_sha256(method.split(",")))
        length = int(value(words, "--tokens-per-sample"))
        valid = None
        if (Path(words[0]) / "valid.bin").is_file():
            valid = data_sha256(words[0], ["valid"])
        case = Case("validation", valid, "valid", length, length)
        trained_tokens = updates * int(value(words, "--max-tokens"))
        validation = Result(
            series=series,
            reading=Reading(updates),
            seed=int(value(words, "--seed")),
            case=case,
            values=TextValues(math.log2(20 if best == math.inf else best)),
            updates=updates,
            cost=Cost(trained_tokens=trained_tokens, seconds=1800),
        )
        first = replace(validation, reading=Reading(updates - 1), updates=updates - 1)
        if best == math.inf:
            validation = replace(validation, values=None, status="diverged")
        else:
            first = replace(first, values=TextValues(math.log2(best + 1)))
        provenance = Provenance(**PROVENANCE | {"data_sha256": valid or PROVENANCE["data_sha256"]})
        save(Results([first, validation], provenance), folder / "training.json")
        names = ["checkpoint_best.pt", "checkpoint_last.pt"]
        if "--keep-at" in words:
            names += [f"checkpoint_{count}.pt" for count in value(words, "--keep-at").split(",")]
        for name in names:
            history = {"optimizer_history": [{"num_updates": updates}]}
            torch.save({**history, "of": str(folder), "name": name}, folder / name)
        return 0

    def eval(self, words: list[str]) -> int:
        model = Path(value(words, "--path"))
        out = Path(value(words, "--out"))
        earlier = load(out).results if out.exists() else []
        config = sweep_config(words)
        sweep = Sweep.of_data(config, DataFolder.open(words[0]), corpus="demo")
        boundaries = sweep.identities[config.splits[0]].documents
        documents = {}
        if boundaries:
            # As if the text were two documents
            documents["documents"] = boundaries
            documents["document_tokens"] = (500, 500)
            documents["document_bits"] = (1900.0, 2100.0)
        results = []
        for case in sweep.cases:
            identity = sweep.result_identity(case, weights_of_fake(model))
            values = TextValues(
                math.log2(perplexity(model, case.length)),
                tokens=1000,
                longest_window=case.length,  # as if the text were longer
                **documents,
            )
            result = Result(
                series=identity.series,
                reading=identity.reading,
                seed=identity.seed,
                case=case,
                values=values,
                checkpoint=str(model),
                checkpoint_sha256=sha256_file(model),
                updates=weights_of_fake(model).updates,
                cost=Cost(device=find_device("auto").type),
            )
            results.append(result)
        for result in earlier:
            if not any(replaces(new, result) for new in results):
                results.append(result)
        command = f"alibi-fairseq eval {shlex.join(words)}"
        save(Results(results, Provenance(**PROVENANCE | {"command": command})), out)
        return 0


def weights_of_fake(checkpoint: Path) -> WeightsIdentity:
    """Return the weights that a fake training saved."""
    last = load_training(checkpoint.parent).results[-1]
    updates = last.updates
    kept = checkpoint.stem.removeprefix("checkpoint_")
    if kept.isdigit():
        updates = int(kept)
    at = "best" if kept == "best" else updates
    return WeightsIdentity(last.series, last.seed, at, updates)


def sweep_config(words: list[str]) -> SweepConfig:
    """Return the settings of an evaluation from its options."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_fields(parser, SweepConfig)
    known, _ = parser.parse_known_args(words)
    return fill_dataclass(SweepConfig, known)


def value(words: list[str], flag: str) -> str:
    """Return the value of the last occurrence of a flag."""
    last = max(index for index, word in enumerate(words) if word == flag)
    return words[last + 1]


def perplexity(model: Path, length: int) -> float:
    """Return a perplexity that depends on the run, the checkpoint, and the length."""
    text = f"{model.parent.name}/{model.name} at {length}"
    return 10 + zlib.crc32(text.encode()) % 10_000 / 100
