"""``compare --speeds``: training and evaluation of all models of a comparison, timed in turns.

Runs may share the machine, so the speeds that they record cannot be compared. Here every model takes
one update and reads one window after the other's, round after round; what disturbs a round disturbs
all of it. Weights are as initialised. Memory is what the trainings of the comparison recorded.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..data.parallel import cores, progress
from ..evaluation.data import corpus_name
from ..reporting.own_results import Columns
from ..results.provenance import collect_provenance
from ..results.schema import TRAINING_FILE, load_document, new_document, save_document
from .comparison import Comparison, tokens_at
from .comparison_runs import runs_of
from .hours import TimedModel, using_threads
from .run import Run

ROUNDS = 15
BASELINE = "sinusoidal"
TITLES = {"train": "training speed", "evaluate": "evaluation speed", "memory": "memory"}


def measure_speeds(runs: Sequence[Run], length: int, path: Path) -> dict:
    """Time the models of some runs on the same data in windows of a length; writes the document as well."""
    began = time.monotonic()
    models = [TimedModel(run) for run in runs]
    cells: list[dict[str, Any]] = []
    for run, model in zip(runs, models):
        trained = run.folder / TRAINING_FILE
        record = load_document(trained)["cells"][-1] if trained.is_file() else {}
        of_model = {
            "model": model.cfg.model._name,
            "position_method": model.method,
            "train_length": model.length,
            **dict.fromkeys(("baseline", "ratio")),
        }
        update = {"name": "an update", "phase": "train", "tokens": model.tokens}
        window = {"name": f"a window of {length}", "phase": "evaluate", "tokens": length}
        cells.append({**update, **of_model, "peak_memory_mb": record.get("peak_memory_mb")})
        cells.append({**window, **of_model, "peak_memory_mb": None})
    rounds: list[list[float]] = []
    with (
        using_threads(cores()),
        progress((ROUNDS + 1) * len(models), "timing the models in turns", "model") as bar,
    ):
        for _ in range(ROUNDS + 1):
            rounds.append([])
            for model in models:
                rounds[-1] += [model.update(), model.token(length) * length]
                bar.update()
    for cell, seconds in zip(cells, zip(*rounds[1:])):  # after one to warm up
        cell["tokens_per_second"] = round(cell["tokens"] / statistics.median(seconds), 1)
        cell["round_seconds"] = [round(each, 7) for each in seconds]
    data = Path(runs[0].data.split(":")[0])
    spent = time.monotonic() - began
    provenance = collect_provenance(seconds=spent, seed=None, data=data, subsets=["train"])
    document = new_document("benchmark", corpus_name(data), provenance, cells)
    save_document(document, path)
    return document


def speed_columns(comparison: Comparison, folder: Path) -> Columns:
    """Columns of a table of models, measured unless ``speeds.json`` has the same models."""
    path, methods = folder / "speeds.json", (*comparison.methods, BASELINE)
    corpus, seeds = next(comparison.cells()).corpus, comparison.seeds[:1]
    runs = runs_of(replace(comparison, methods=methods, train_on=(corpus,), seeds=seeds), folder)
    document = load_document(path) if path.is_file() else None
    if document is None or len(document["cells"]) != 2 * len(runs):
        lengths = [tokens_at(comparison.eval_lengths, n) for n in comparison.train_lengths]
        document = measure_speeds(runs, max(map(max, lengths)), path)
    return ratios(document["cells"])


def ratios(cells: Sequence[dict]) -> Columns:
    """Speeds and memory relative to the baseline: the medians over rounds of the ratios within a round."""
    found = {(c["phase"], c["position_method"], c["train_length"]): c for c in cells}
    columns: dict[str, dict] = {title: {} for title in TITLES.values()}
    for (phase, method, length), cell in found.items():
        base = found.get((phase, BASELINE, length))
        if base is None:
            continue
        pairs = zip(base["round_seconds"], cell["round_seconds"])
        faster = statistics.median(theirs / own for theirs, own in pairs)
        columns[TITLES[phase]][method, length] = f"{faster:.2f}"
        if base.get("peak_memory_mb") and cell.get("peak_memory_mb"):
            ratio = cell["peak_memory_mb"] / base["peak_memory_mb"]
            columns[TITLES["memory"]][method, length] = f"{ratio:.2f}"
    return columns
