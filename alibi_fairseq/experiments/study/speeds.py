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

from ...data.progress import progress
from ...evaluation.data import corpus_name
from ...results.provenance import collect_provenance
from ...results.schema import new_document, save_document
from ..hours import TimedModel, using_threads
from ..run import Run
from .description import Key
from .outcomes import SPEEDS

ROUNDS = 15
BASELINE = "sinusoidal"
#: A model with the seconds of its updates, one per round.
Timed = tuple[TimedModel, list[float]]


def measure(runs: dict[Key, Run], results: Path) -> list[Path]:
    """Time the models of runs, each method and length once, and write a document per corpus.

    Args:
        runs: their data is prepared.
        results: the folder of the study's results.

    Returns:
        What was written.
    """
    written = []
    for corpus in dict.fromkeys(key.corpus for key in runs):
        models = {
            (key.method, key.train_length): run
            for key, run in reversed(runs.items())
            if key.corpus == corpus
        }
        began = time.monotonic()
        with using_threads(1):
            timed = in_turns(list(models.values()), ROUNDS, corpus)
        data = Path(next(iter(models.values())).data)
        provenance = collect_provenance(
            seconds=time.monotonic() - began,
            seed=None,
            data=data,
            subsets=["train"],
            command=["alibi-fairseq", *sys.argv[1:]],
        )
        path = results / SPEEDS / f"{corpus}.json"
        document = new_document("benchmark", corpus_name(data), provenance, rows_of(timed))
        save_document(document, path)
        written.append(path)
    return written


def in_turns(runs: Sequence[Run], rounds: int, label: str) -> list[tuple[TimedModel, list[float]]]:
    """Time updates of several models, one update of each per round after one to warm up.

    What disturbs a round disturbs all models of it, so ratios within rounds can be compared.
    """
    models = [TimedModel(run) for run in runs]
    seconds: list[list[float]] = [[] for _ in models]
    total = (rounds + 1) * len(models)
    with progress(total, f"timing updates, {label}", "update") as bar:
        for _ in range(rounds + 1):
            for model, kept in zip(models, seconds):
                kept.append(model.update())
                bar.update()
    return [(model, kept[1:]) for model, kept in zip(models, seconds)]


def rows_of(timed: Sequence[Timed]) -> list[dict]:
    """A cell per model, shortest training length first."""
    baselines = {model.length: kept for model, kept in timed if model.method == BASELINE}
    rows = []
    for model, kept in sorted(timed, key=lambda each: (each[0].length, each[0].method)):
        seconds = statistics.median(kept)
        row = {
            "name": "an update",
            "phase": "train",
            "model": model.cfg.model._name,
            "position_method": model.method,
            "train_length": model.length,
            "weights": "random",
            "tokens": model.tokens,
            "step_ms": round(1000 * seconds, 2),
            "tokens_per_second": round(model.tokens / seconds, 1),
            "round_seconds": [round(each, 7) for each in kept],
            "baseline": None,
            "ratio": None,
        }
        if baseline := baselines.get(model.length):
            ratios = (slow / fast for slow, fast in zip(baseline, kept))
            row |= {"baseline": BASELINE, "ratio": round(statistics.median(ratios), 3)}
        rows.append(row)
    return rows
