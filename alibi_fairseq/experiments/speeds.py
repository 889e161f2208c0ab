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

from ..data.parallel import progress
from ..evaluation.data import corpus_name
from ..results.provenance import collect_provenance
from ..results.schema import TRAINING_FILE, load_document, new_document, save_document
from .hours import TimedModel, using_threads
from .run import Run

ROUNDS = 15
BASELINE = "sinusoidal"
TITLES = {"train": "training speed", "evaluate": "evaluation speed", "memory": "memory"}
#: Speeds and memory relative to the baseline: header -> (position method, training length) -> text.
Columns = dict[str, dict[tuple[str, int | None], str]]


def measure_speeds(runs: Sequence[Run], length: int, path: Path, threads: int) -> dict:
    """Time the models of some runs on the same data in windows of a length; writes the document as well."""
    began = time.monotonic()
    models = [TimedModel(run) for run in runs]
    seconds: dict[tuple[str, int], list[float]] = {}
    with (
        using_threads(threads),
        progress((ROUNDS + 1) * len(models), "timing the models in turns", "model") as bar,
    ):
        for _ in range(ROUNDS + 1):
            for number, model in enumerate(models):
                seconds.setdefault(("train", number), []).append(model.update())
                seconds.setdefault(("evaluate", number), []).append(model.token(length) * length)
                bar.update()
    cells = []
    for (phase, number), kept in seconds.items():
        model, rounds = models[number], kept[1:]  # after one to warm up
        tokens = model.tokens if phase == "train" else length
        cells.append(
            {
                "name": "an update" if phase == "train" else f"a window of {length}",
                "phase": phase,
                "model": model.cfg.model._name,
                "position_method": model.method,
                "train_length": model.length,
                "tokens": tokens,
                "tokens_per_second": round(tokens / statistics.median(rounds), 1),
                "round_seconds": [round(each, 7) for each in rounds],
                "peak_memory_mb": peak_memory(runs[number]) if phase == "train" else None,
                "baseline": None,
                "ratio": None,
            }
        )
    data = Path(runs[0].data.split(":")[0])
    spent = time.monotonic() - began
    provenance = collect_provenance(seconds=spent, seed=None, data=data, subsets=["train"])
    document = new_document("benchmark", corpus_name(data), provenance, cells)
    save_document(document, path)
    return document


def peak_memory(run: Run) -> float | None:
    path = run.folder / TRAINING_FILE
    return load_document(path)["cells"][-1].get("peak_memory_mb") if path.is_file() else None


def speed_columns(cells: Sequence[dict]) -> Columns:
    """Columns of a table: the medians over rounds of the ratios within a round."""
    found = {(c["phase"], c["position_method"], c["train_length"]): c for c in cells}
    columns: Columns = {title: {} for title in TITLES.values()}
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


def with_baseline(runs: Sequence[Run], flag: str = "--position-method") -> list[Run]:
    """The runs of the first seed and corpus, and the baseline at each length that lacks it."""
    first: dict[tuple[str, str], Run] = {}
    for run in runs:
        value = dict(zip(run.flags, run.flags[1:]))
        key = value[flag], value["--tokens-per-sample"]
        if run.data == runs[0].data:
            first.setdefault(key, run)
    for method, length in list(first):
        if (BASELINE, length) not in first and method != "transformer_xl":
            run = first[method, length]
            flags = list(run.flags)
            flags[flags.index(flag) + 1] = BASELINE
            folder = run.folder.with_name(f"{BASELINE}-untrained")
            first[BASELINE, length] = replace(run, flags=tuple(flags), folder=folder)
    return list(first.values())
