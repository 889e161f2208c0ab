"""The steps of the demonstration: text → pieces → binary data → training → evaluation."""

from __future__ import annotations

import hashlib
import json
import re
import time
from functools import partial
from pathlib import Path

import sentencepiece
import torch
from tqdm import tqdm

from ..errors import BadInput
from ..files import atomic_write, sha256_file
from ..workflow import Command, Stamp, once
from .corpus import split_text
from .settings import SEED, TRAIN_LENGTH, Settings, task_flags
from .steps import fairseq_command

SPLITS = ("train", "valid", "test")
SUBSET = "valid"


class Demo:
    """One demonstration in one folder.

    Args:
        folder: where everything generated goes.
        text: the user's text, or None for the embedded one.
        settings: how much to train and measure.
    """

    def __init__(self, folder: Path, text: Path | None, settings: Settings):
        self.folder, self.text, self.settings = folder, text, settings
        self.data = folder / "data-bin"
        self.device_flags = [] if torch.cuda.is_available() else ["--cpu"]

    def prepare(self) -> str:
        """Text, vocabulary and fairseq's binary data; returns a hash of the text."""
        splits = split_text(self.text)
        text = hashlib.sha256(json.dumps(splits).encode()).hexdigest()
        wanted = {"text": text, "vocabulary": self.settings.vocabulary}
        once(Stamp(self.folder / "prepared.json", wanted), lambda: self._prepare(splits))
        return text

    def _prepare(self, splits: dict[str, list[str]]) -> None:
        folder = self.folder / "text"
        for split, lines in splits.items():
            with atomic_write(folder / f"{split}.txt") as file:
                file.writelines(f"{line}\n" for line in lines)
        prefix = folder / "pieces"
        try:
            sentencepiece.SentencePieceTrainer.train(
                input=str(folder / "train.txt"),
                model_prefix=str(prefix),
                model_type="bpe",
                vocab_size=self.settings.vocabulary,
                character_coverage=1.0,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise BadInput(
                f"No vocabulary of {self.settings.vocabulary} pieces can be made of this text: "
                f"{error}"
            ) from error
        pieces = sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")
        for split, lines in splits.items():
            with atomic_write(folder / f"{split}.pieces") as file:
                encoded = pieces.encode(lines, out_type=str)
                file.writelines(" ".join(line) + "\n" for line in encoded)
        flags = [f"--{split}pref={folder / split}.pieces" for split in SPLITS]
        words = fairseq_command("preprocess", "--only-source", *flags, "--destdir", self.data)
        Command(words, self.folder / "preprocess.log").run("preparing the text")

    def train(self, method: str, text: str) -> float:
        """One model with ``fairseq-train``; goes on where an interrupted training stopped.

        Returns:
            Seconds that the last, finishing run took.
        """
        settings = self.settings
        folder = self.folder / method
        wanted = {
            "text": text,
            "vocabulary": settings.vocabulary,
            "updates": settings.updates,
            "tokens": settings.tokens,
            "flags": task_flags(method, "train"),
        }
        # A checkpoint of other settings must not be continued.
        once(Stamp(folder / "settings.json", wanted), lambda: _remove_checkpoints(folder))
        trained = Stamp(folder / "trained.json", wanted)
        return once(trained, lambda: self._train(method, folder))["seconds"]

    def _train(self, method: str, folder: Path) -> dict:
        settings = self.settings
        flags = [
            *task_flags(method, "train"),
            *["--arch", "alibi_lm_tiny", "--position-method", method],
            *["--tokens-per-sample", TRAIN_LENGTH, "--sample-break-mode", "none"],
            *["--max-tokens", settings.tokens, "--max-update", settings.updates],
            *["--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--clip-norm", 1.0],
            *[
                "--lr",
                0.002,
                "--lr-scheduler",
                "inverse_sqrt",
                "--warmup-updates",
                settings.updates // 6,
            ],
            *["--criterion", "cross_entropy", "--seed", SEED],
            *["--save-dir", folder, "--tensorboard-logdir", folder / "tensorboard"],
            *["--save-interval-updates", 100, "--keep-interval-updates", 1],
            *["--no-epoch-checkpoints", "--log-format", "json", "--log-interval", 5],
            *self.device_flags,
        ]
        words = fairseq_command("train", self.data, *flags)
        begin = time.monotonic()
        Command(words, folder / "train.log", settings.updates).run(f"training {method}")
        return {"seconds": round(time.monotonic() - begin, 1)}

    def evaluate(self, methods: list[str], text: str) -> list[dict]:
        """Every model at every length with ``fairseq-eval-lm``; cells of the results format."""
        pairs = [(method, length) for method in methods for length in self.settings.lengths]
        cells = []
        for method, length in tqdm(pairs, desc="evaluating", unit="cell", dynamic_ncols=True):
            checkpoint = self.folder / method / "checkpoint_last.pt"
            wanted = {"checkpoint": sha256_file(checkpoint), "text": text, "length": length}
            stamp = Stamp(self.folder / method / f"length-{length}.json", wanted)
            outcome = once(stamp, partial(self._evaluate, method, checkpoint, length))
            cells.append(
                {
                    "position_method": method,
                    "train_length": TRAIN_LENGTH,
                    "length": length,
                    "stride": length,
                    "subset": SUBSET,
                    "updates": self.settings.updates,
                    **outcome,
                }
            )
        return cells

    def _evaluate(self, method: str, checkpoint: Path, length: int) -> dict:
        flags = [
            *task_flags(method, "evaluate"),
            *["--path", checkpoint, "--gen-subset", SUBSET, "--sample-break-mode", "none"],
            *["--tokens-per-sample", length, "--max-tokens", max(length, self.settings.tokens)],
            *["--no-progress-bar", *self.device_flags],
        ]
        log = self.folder / method / f"evaluate-{length}.log"
        log.unlink(missing_ok=True)
        begin = time.monotonic()
        Command(fairseq_command("eval_lm", self.data, *flags), log).run(f"evaluating {method}")
        printed = log.read_text(encoding="utf-8", errors="replace")
        loss = re.search(r"Loss \(base 2\): ([\d.]+), Perplexity: ([\d.]+)", printed)
        tokens = re.search(r"Evaluated ([\d,]+) tokens", printed)
        if loss is None or tokens is None:
            raise BadInput(f"fairseq-eval-lm printed no loss; see {log}.")
        return {
            "tokens": int(tokens[1].replace(",", "")),
            "loss_bits": float(loss[1]),
            "perplexity": float(loss[2]),
            "seconds": round(time.monotonic() - begin, 1),
        }


def _remove_checkpoints(folder: Path) -> None:
    for path in folder.glob("checkpoint*.pt"):
        path.unlink()
