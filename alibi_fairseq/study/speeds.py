"""``study --speeds``: the training speed of a study's models, in turns, while nothing else runs.

Trainings of a study may share the machine, with each other or with other work, so the speeds they
record cannot be compared. Here every model of a corpus takes one update after the other's, round
after round, with the options of its own training; what disturbs a round disturbs all of it. Weights
are as initialised.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from fairseq.logging import metrics
from fairseq.trainer import Trainer
from tqdm import tqdm

from ..evaluation.data import corpus_name
from ..reproduce.estimate import built, one_thread
from ..results.provenance import collect_provenance
from ..results.schema import new_document, save_document
from .engine import StudyCell
from .outcomes import SPEEDS

ROUNDS = 15
BASELINE = "sinusoidal"


class TimedModel:
    """A model with its optimizer, in memory.

    Args:
        cell: whose data is prepared.
    """

    def __init__(self, cell: StudyCell):
        self.length = cell.key.train_length
        self.tokens = cell.model.comparison.tokens_per_update
        cfg, task, model, criterion, self.sample = built(
            cell.model.train_command.words, self.tokens // self.length, self.length
        )
        self.method, self.arch = cell.key.method, cfg.model._name
        self.trainer = Trainer(cfg, task, model, criterion)
        self.seconds: list[float] = []

    def update(self) -> None:
        """Take an update, and keep its seconds."""
        began = time.perf_counter()
        with metrics.aggregate(new_root=True):
            self.trainer.train_step([self.sample])
        if self.trainer.cuda:
            torch.cuda.synchronize()
        self.seconds.append(time.perf_counter() - began)


def measure(cells: Sequence[StudyCell], results: Path) -> list[Path]:
    """Time the models of cells, each method and length once, and write a document per corpus.

    Args:
        cells: whose data is prepared.
        results: the folder of the study's results.

    Returns:
        What was written.
    """
    written = []
    for corpus in dict.fromkeys(cell.key.corpus for cell in cells):
        of_corpus = [cell for cell in cells if cell.key.corpus == corpus]
        models = {(cell.key.method, cell.key.train_length): cell for cell in reversed(of_corpus)}
        began = time.monotonic()
        with one_thread():
            timed = in_turns([TimedModel(cell) for cell in models.values()], corpus)
        data = of_corpus[0].model.data
        provenance = collect_provenance(
            seconds=time.monotonic() - began,
            seed=None,
            data=data,
            subsets=["train"],
            command=["alibi-fairseq", *sys.argv[1:]],
        )
        path = results / SPEEDS / f"{corpus}.json"
        save_document(
            new_document("benchmark", corpus_name(data), provenance, rows_of(timed)), path
        )
        written.append(path)
    return written


def in_turns(models: list[TimedModel], label: str) -> list[TimedModel]:
    """Every model takes one update to warm up, and one in each round."""
    with tqdm(
        total=(ROUNDS + 1) * len(models), desc=f"timing updates, {label}", dynamic_ncols=True
    ) as bar:
        for _ in range(ROUNDS + 1):
            for model in models:
                model.update()
                bar.update()
    for model in models:
        del model.seconds[0]
    return models


def rows_of(models: list[TimedModel]) -> list[dict]:
    """A cell per model, shortest training length first."""
    baselines = {model.length: model for model in models if model.method == BASELINE}
    rows = []
    for model in sorted(models, key=lambda each: (each.length, each.method)):
        seconds = statistics.median(model.seconds)
        row = {
            "name": "an update",
            "phase": "train",
            "model": model.arch,
            "position_method": model.method,
            "train_length": model.length,
            "weights": "random",
            "tokens": model.tokens,
            "step_ms": round(1000 * seconds, 2),
            "tokens_per_second": round(model.tokens / seconds, 1),
            "round_seconds": [round(each, 7) for each in model.seconds],
            "baseline": None,
            "ratio": None,
        }
        if baseline := baselines.get(model.length):
            ratios = (slow / fast for slow, fast in zip(baseline.seconds, model.seconds))
            row |= {"baseline": BASELINE, "ratio": round(statistics.median(ratios), 3)}
        rows.append(row)
    return rows
