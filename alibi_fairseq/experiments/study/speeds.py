"""``study --speeds``: the training speed of a study's models, in turns, while nothing else runs.

Trainings of a study may share the machine, with each other or with other work, so the speeds they
record cannot be compared. Here every model of a corpus takes one update after the other's, round
after round, with the options of its own training; what disturbs a round disturbs all of it, so ratios
within rounds can be compared. Weights are as initialised.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ...data.parallel import progress
from ...evaluation.data import corpus_name
from ...files import locked
from ...results.provenance import collect_provenance
from ...results.schema import new_document, save_document
from ..hours import TimedModel, using_threads
from ..run import Run
from .outcomes import SPEEDS
from .runs import StudyExperiment

ROUNDS = 15
BASELINE = "sinusoidal"


def measure(experiment: StudyExperiment) -> None:
    """Time each method and length of the given texts, write a document per corpus, and the page."""
    with locked(experiment.folder / "lock", experiment.option, "command"):
        experiment.prepare()
        for corpus in dict.fromkeys(run.key.corpus for run in experiment.runs):
            models = {
                (run.key.method, run.key.train_length): run
                for run in reversed(experiment.runs)
                if run.key.corpus == corpus
            }
            began = time.monotonic()
            with using_threads(1):
                rows = rows_of(*in_turns(list(models.values()), corpus))
            data = Path(next(iter(models.values())).data)
            provenance = collect_provenance(
                seconds=time.monotonic() - began,
                seed=None,
                data=data,
                subsets=["train"],
                command=["alibi-fairseq", *sys.argv[1:]],
            )
            path = experiment.results / SPEEDS / f"{corpus}.json"
            save_document(new_document("benchmark", corpus_name(data), provenance, rows), path)
            print(path)
        experiment.report()


def in_turns(runs: Sequence[Run], label: str) -> tuple[list[TimedModel], list[list[float]]]:
    """Models, shortest training length first, and the seconds of their updates after one to warm up."""
    models = sorted(map(TimedModel, runs), key=lambda model: (model.length, model.method))
    seconds: list[list[float]] = [[] for _ in models]
    with progress((ROUNDS + 1) * len(models), f"timing updates, {label}", "update") as bar:
        for _ in range(ROUNDS + 1):
            for model, kept in zip(models, seconds):
                kept.append(model.update())
                bar.update()
    return models, [kept[1:] for kept in seconds]


def rows_of(models: list[TimedModel], seconds: list[list[float]]) -> list[dict]:
    """A cell per model."""
    timed = list(zip(models, seconds))
    baselines = {model.length: kept for model, kept in timed if model.method == BASELINE}
    rows = []
    for model, kept in timed:
        baseline = baselines.get(model.length)
        ratios = [slow / fast for slow, fast in zip(baseline or [], kept)]
        row = {
            "name": "an update",
            "phase": "train",
            "model": model.cfg.model._name,
            "position_method": model.method,
            "train_length": model.length,
            "weights": "random",
            "tokens": model.tokens,
            "step_ms": round(1000 * statistics.median(kept), 2),
            "tokens_per_second": round(model.tokens / statistics.median(kept), 1),
            "round_seconds": [round(each, 7) for each in kept],
            "baseline": BASELINE if baseline else None,
            "ratio": round(statistics.median(ratios), 3) if baseline else None,
        }
        rows.append(row)
    return rows
