"""``compare --hours``: how long runs take on this machine, and how many updates fit.

Each model is built as its training command builds it, with initial weights, and takes updates and
forward passes on random tokens in this process.
"""

from __future__ import annotations

import heapq
import json
import time
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ..data import probes
from ..data.parallel import cores, progress
from ..errors import BadInput
from ..files import atomic_write
from .comparison import Comparison, as_mapping
from .run import Run, Sweep, trials_of
from .runner import Experiment, places_for

#: Seconds that a command takes to start: the imports of torch and fairseq.
STARTUP = 10.0
#: The share of the hours that is planned. Runs that go on at the same time are slower than one alone.
PLANNED = 0.85
#: What two comparisons must share to have the same number of updates.
_FIXED = ("hours", "arch", "tokens_per_update", "lr", "train_flags")
#: Updates below which a comparison says nothing.
LEAST = 100


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


def budget_of(
    experiment: Experiment, comparison: Comparison, runs: list[Run], parallel: int | None
) -> dict:
    """The updates that fit into a comparison's hours, as ``hours.json`` keeps them.

    They are measured once and hold for methods, seeds and lengths that are added later, whose results
    would not be comparable otherwise.
    """
    path, asked = experiment.folder / "hours.json", as_mapping(comparison)
    if path.is_file():
        kept = json.loads(path.read_text(encoding="utf-8"))
        if all(kept["asked"].get(key) == asked[key] for key in _FIXED):
            return kept
    trials, hours = trials_of(runs), asked["hours"]
    parallel = len(places_for(experiment, len(trials) + len(runs), parallel))
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
    if updates < LEAST:
        least = 1.1 * needed(LEAST) / 3600 / PLANNED
        raise BadInput(
            f"--hours: {LEAST} updates of every method take about {least:.2g} hours here."
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


def inputs_of(evaluation: Sweep, run: Run) -> Iterator[tuple[int, int]]:
    """Window length and number of tokens that the model reads in such windows."""
    data = Path((evaluation.data or run.data).split(":")[0])
    for subset, length, stride in evaluation.points:
        windows = max(1, tokens_in(data, subset) // stride)
        if (data / probes.SETTINGS).is_file():
            windows = probes.TRIALS * len(probes.DEPTHS)
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
