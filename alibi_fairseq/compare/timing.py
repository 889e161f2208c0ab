"""How fast models are on this machine: ``compare --hours`` and ``--speeds``.

Each model is built as its training command builds it, with initial weights, and takes updates and
forward passes on random tokens in this process. ``--hours`` estimates how many updates of all runs fit.
Runs may share the machine, so the speeds that they record cannot be compared: for ``--speeds`` every
model takes one update and reads one window after the other's, round after round, and what disturbs a
round disturbs all of it. Memory is what the trainings of the comparison recorded.
"""

from __future__ import annotations

import heapq
import json
import statistics
import time
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ..data import probes
from ..data.worker_pool import cores, progress
from ..errors import UserInputError
from ..files import atomic_write
from ..reporting.perplexity_by_length import Columns
from ..results.data_folder import DataFolder
from ..results.provenance import collect_provenance
from ..results.schema import TRAINING_FILE, load_results_file, new_results_file, save_results_file
from ..runs.run import EvalStep, Run, unfinished_trials
from ..runs.runner import Experiment, make_slots
from .comparison_config import ComparisonConfig, as_mapping, tokens_at
from .comparison_runs import runs_of

#: Seconds that a command takes to start: the imports of torch and fairseq.
STARTUP = 10.0
#: The share of the hours that is planned. Runs that go on at the same time are slower than one alone.
PLANNED = 0.85
#: What two comparisons must share to have the same number of updates.
_FIXED = ("hours", "arch", "tokens_per_update", "lr", "train_flags")
#: Updates below which a comparison says nothing.
MIN_UPDATES = 100
#: Of timing in turns: rounds, what ratios are to, and the titles of columns.
ROUNDS = 15
BASELINE = "sinusoidal"
TITLES = {"train": "training speed", "evaluate": "evaluation speed", "memory": "memory"}


class TimedModel:
    """A model with its optimizer, in memory; the data of the run must be prepared."""

    def __init__(self, run: Run):
        from fairseq import options, tasks
        from fairseq.dataclass.utils import convert_namespace_to_omegaconf
        from fairseq.trainer import Trainer

        argv = [run.data, *run.flags, "--save-dir", str(run.folder)]
        args = options.parse_args_and_arch(options.get_training_parser(), argv)
        self.cfg = convert_namespace_to_omegaconf(args)
        self.method = self.cfg.model.position_method
        # As these are evaluated past the end of their table; in training it changes nothing.
        self.cfg.model.clamp_learned_positions = self.method == "learned"
        self.task = tasks.setup_task(self.cfg.task)
        model = self.task.build_model(self.cfg.model)
        criterion = self.task.build_criterion(self.cfg.criterion)
        self.trainer = Trainer(self.cfg, self.task, model, criterion)
        self.length = self.cfg.task.tokens_per_sample
        sequences = max(1, self.cfg.dataset.max_tokens // self.length)
        self.tokens = sequences * self.length * self.cfg.optimization.update_freq[0]
        tokens, lengths = self._words(sequences, self.length), torch.full((sequences,), self.length)
        self.sample = {
            "id": torch.arange(sequences),
            "net_input": {"src_tokens": tokens, "src_lengths": lengths},
            "target": tokens,
            "ntokens": tokens.numel(),
            "nsentences": sequences,
        }

    def update(self) -> float:
        """Seconds of an update."""
        from fairseq.logging import metrics

        began = time.perf_counter()
        with metrics.aggregate(new_root=True):
            self.trainer.train_step([self.sample] * self.cfg.optimization.update_freq[0])
        return self._since(began)

    def token(self, length: int) -> float:
        """Seconds per token of a forward pass over one window."""
        model, tokens = self.trainer.model, self._words(1, length).to(self.trainer.device)
        model.eval()
        began = time.perf_counter()
        with torch.no_grad():
            model(tokens)
        seconds = self._since(began)
        model.train()
        return seconds / length

    def _since(self, began: float) -> float:
        if self.trainer.cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - began

    def _words(self, sequences: int, length: int) -> torch.Tensor:
        """(B, T) words as frequent as in the text: an adaptive softmax is faster for frequent ones."""
        counts = torch.tensor(self.task.source_dictionary.count[4:], dtype=torch.double)
        words = torch.multinomial(counts, sequences * length, replacement=True) + 4
        return words.view(sequences, length)


@dataclass(frozen=True)
class Cost:
    """Seconds of the parts of a run."""

    update: float
    validation: float  # one pass
    evaluation: float  # all of them
    epoch: float  # in updates

    def seconds(self, updates: int) -> float:
        validations = min(updates / 100, 20) + updates / self.epoch + 1
        validating = validations * self.validation
        return updates * self.update + validating + self.evaluation + 2 * STARTUP


def budget_of(experiment: Experiment, comparison: ComparisonConfig, parallel: int | None) -> dict:
    """The updates that fit into a comparison's hours, as ``hours.json`` keeps them.

    They are measured once and hold for methods, seeds and lengths that are added later, whose results
    would not be comparable otherwise.
    """
    path, asked = experiment.folder / "hours.json", as_mapping(comparison)
    if path.is_file():
        kept = json.loads(path.read_text(encoding="utf-8"))
        if all(kept["asked"].get(key) == asked[key] for key in _FIXED):
            return kept
    runs, hours = runs_of(comparison, experiment.folder), asked["hours"]
    trials = unfinished_trials(runs)
    parallel = len(make_slots(experiment, runs, parallel))
    updates, seconds = updates_that_fit([*trials, *runs], hours, parallel)
    said = (
        f"Measured on this machine: {updates:,} updates of each of {len(runs)} runs, after "
        f"{len(trials)} trials, take about {seconds / 3600:.2g} of {hours:g} hours."
    )
    budget = {"asked": asked, "updates": updates, "said": said}
    with atomic_write(path) as file:
        json.dump(budget, file, indent=1)
    return budget


def updates_that_fit(runs: Sequence[Run], hours: float, parallel: int) -> tuple[int, float]:
    """The largest number of updates with which all runs fit, to two digits, and the seconds it takes.

    Args:
        runs: the last one has a whole number of updates, of which others, such as trials, have their share.
    """
    costs = measure(runs, parallel)
    shares = [run.updates / runs[-1].updates for run in runs]

    def needed(updates: int) -> float:
        each = (cost.seconds(round(share * updates)) for cost, share in zip(costs, shares))
        return makespan(each, parallel)

    updates = bisect(range(10**9), hours * 3600 * PLANNED, key=needed) - 1
    if updates < MIN_UPDATES:
        least = 1.1 * needed(MIN_UPDATES) / 3600 / PLANNED
        raise UserInputError(
            f"--hours: {MIN_UPDATES} updates of every method take about {least:.2g} hours here."
        )
    unit = 10 ** (len(str(updates)) - 2)
    updates = updates // unit * unit
    return updates, needed(updates)


def measure(runs: Sequence[Run], parallel: int) -> list[Cost]:
    """The cost of each run; runs that differ in the seed or the learning rate alone cost the same."""
    names = [run.name.partition("-seed")[0] for run in runs]
    models = dict(zip(names, runs))
    with using_threads(max(1, cores() // parallel)):
        timed = progress(None, "measuring the speed", "model", iterable=models.items())
        costs = {name: cost_of(run) for name, run in timed}
    return [
        costs[name] if run.evaluations else replace(costs[name], evaluation=0.0)
        for name, run in zip(names, runs)
    ]


def cost_of(run: Run) -> Cost:
    model, data = TimedModel(run), Path(run.data.split(":")[0])
    model.update()  # allocates memory and loads kernels
    update = min(model.update(), model.update())
    inputs = [each for evaluation in run.evaluations for each in inputs_of(evaluation, run)]
    token = {n: model.token(n) for n in sorted({model.length, *(length for length, _ in inputs)})}
    return Cost(
        update=update,
        validation=tokens_in(data, "valid") * token[model.length],
        evaluation=sum(count * token[length] for length, count in inputs),
        epoch=max(1.0, tokens_in(data, "train") / model.tokens),
    )


def inputs_of(evaluation: EvalStep, run: Run) -> Iterator[tuple[int, int]]:
    """Window length and number of tokens that the model reads in such windows."""
    data = Path((evaluation.data or run.data).split(":")[0])
    for subset, length, stride in evaluation.points:
        windows = max(1, tokens_in(data, subset) // stride)
        if (data / probes.SETTINGS_FILE).is_file():
            windows = probes.SEQUENCES_PER_CASE * len(probes.DEPTHS)
        yield length, windows * length


def tokens_in(data: Path, split: str) -> int:
    """Tokens of a split, from the size of its file."""
    words = (data / "dict.txt").read_bytes().count(b"\n")
    return (data / f"{split}.bin").stat().st_size // (2 if words < 65_500 else 4)


def makespan(seconds: Iterable[float], parallel: int) -> float:
    """Seconds until all are done, if each begins as soon as one of the places is free."""
    places = [0.0] * parallel
    for each in seconds:
        heapq.heappush(places, heapq.heappop(places) + each)
    return max(places)


@contextmanager
def using_threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measure_speeds(runs: Sequence[Run], length: int, path: Path) -> dict:
    """Time the models of some runs on the same data in windows of a length; writes the document as well."""
    began = time.monotonic()
    models = [TimedModel(run) for run in runs]
    cells: list[dict[str, Any]] = []
    for run, model in zip(runs, models):
        trained = run.folder / TRAINING_FILE
        record = load_results_file(trained)["cells"][-1] if trained.is_file() else {}
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
    document = new_results_file("benchmark", DataFolder.open(data).corpus, provenance, cells)
    save_results_file(document, path)
    return document


def speed_columns(comparison: ComparisonConfig, folder: Path) -> Columns:
    """Columns of a table of models, measured unless ``speeds.json`` has the same models."""
    path, methods = folder / "speeds.json", (*comparison.methods, BASELINE)
    corpus, seeds = next(comparison.cells()).corpus, comparison.seeds[:1]
    runs = runs_of(replace(comparison, methods=methods, train_on=(corpus,), seeds=seeds), folder)
    document = load_results_file(path) if path.is_file() else None
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
