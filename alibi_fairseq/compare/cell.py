"""One cell of a comparison: the commands that train and evaluate a model, and their steps."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import torch

from ..files import sha256_file
from ..launcher.process import has_reached
from ..results.schema import load_document, save_document
from ..workflow import Claim, Command, Stamp, Step
from .description import Comparison, Corpus

ALIBI = [sys.executable, "-m", "alibi_fairseq"]


@dataclass(frozen=True)
class Cell:
    """One model: a method trained at a length with a seed.

    Attributes:
        data: the binary data of the corpus.
        folder: for checkpoints, logs and results.
    """

    comparison: Comparison
    corpus: Corpus
    method: str
    train_length: int
    seed: int
    data: Path
    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint_last.pt"

    @property
    def results(self) -> Path:
        """The results document of this cell."""
        return self.folder / "results.json"

    @property
    def options(self) -> list[str]:
        """What determines the trained model, besides the data: options of ``fairseq-train``."""
        what = self.comparison
        return [
            *_task(self.method, self.train_length),
            *("--arch", what.arch, "--position-method", self.method),
            *("--tokens-per-sample", str(self.train_length), "--sample-break-mode", "none"),
            *("--max-tokens", str(what.tokens_per_update), "--required-batch-size-multiple", "1"),
            *("--max-update", str(what.updates), "--seed", str(self.seed)),
            *("--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--clip-norm", "1.0"),
            *("--lr", str(what.lr), "--lr-scheduler", "inverse_sqrt"),
            *("--warmup-updates", str(max(1, min(4000, what.updates // 6)))),
            *_user_dir(what),
            *what.train_flags,
        ]

    @property
    def train_command(self) -> Command:
        save_every = save_interval(self.comparison.updates)
        words = [
            *(*ALIBI, "train", str(self.data), *self.options, "--save-dir", str(self.folder)),
            *("--tensorboard-logdir", str(self.folder / "tensorboard")),
            *("--save-interval-updates", str(save_every), "--keep-interval-updates", "1"),
            *("--no-epoch-checkpoints", "--log-format", "json", "--log-interval", "5"),
            *(() if torch.cuda.is_available() else ("--cpu",)),
        ]
        return Command(words, self.folder / "train.log", self.comparison.updates)

    @property
    def evaluate_command(self) -> Command:
        what = self.comparison
        # The table of learned positions ends at the training length.
        overrides = {"clamp_learned_positions": True} if self.method == "learned" else {}
        words = [
            *(*ALIBI, "eval", str(self.data), "--path", str(self.checkpoint)),
            *("--lengths", ",".join(map(str, what.eval_lengths))),
            *("--stride", ",".join(what.strides), "--subset", what.subset),
            *("--out", str(self.results)),
            *(("--model-overrides", json.dumps(overrides)) if overrides else ()),
            *_user_dir(what),
        ]
        return Command(words, self.folder / "evaluate.log")

    @cached_property
    def steps(self) -> list[Step]:
        """Train, then evaluate."""
        settings = {
            "options": self.options,
            "train": _sha256(self.data / "train.bin"),
            "dictionary": _sha256(self.data / "dict.txt"),
        }
        claim = Claim(self.folder / "settings.json", settings)
        trained = Stamp(self.folder / "trained.json", settings, [], [self.checkpoint])
        what = self.comparison
        evaluated = Stamp(
            self.folder / "evaluated.json",
            {"lengths": what.eval_lengths, "strides": what.strides, "subset": what.subset},
            [self.checkpoint, self.data / f"{what.subset}.bin"],
            [self.results],
        )

        def finish() -> None:
            self._add_train_command()
            evaluated.write()

        return [
            Step(
                f"training {self.name}",
                self.train_command,
                done=trained.holds,
                check=lambda: claim.check(
                    f"{self.folder} holds a training",
                    "choose another --out or delete that folder",
                ),
                begin=claim.write,
                reached=lambda: has_reached(self.folder, what.updates),
                finish=trained.write,
            ),
            Step(
                f"evaluating {self.name}",
                self.evaluate_command,
                done=lambda: trained.holds() and evaluated.holds(),
                finish=finish,
            ),
        ]

    @property
    def done(self) -> bool:
        """Whether it is trained and evaluated as described; its data must be there."""
        return all(step.done() for step in self.steps)

    def _add_train_command(self) -> None:
        """Keep the command that trained the model with the results of its evaluation."""
        document = load_document(self.results)
        for cell in document["cells"]:
            cell["train_command"] = self.train_command.line
        save_document(document, self.results)


def save_interval(updates: int) -> int:
    """Updates between two checkpoints, each of which follows a validation."""
    return max(100, updates // 20)


#: Of a file that all cells share.
_sha256 = cache(sha256_file)


def _user_dir(comparison: Comparison) -> list[str]:
    return ["--user-dir", comparison.user_dir] if comparison.user_dir else []


def _task(method: str, train_length: int) -> list[str]:
    if method == "transformer_xl":
        return ["--task", "segment_language_modeling", "--mem-len", str(train_length)]
    return ["--task", "language_modeling"]
