"""How long runs take on this machine, and how fast they train compared with each other.

Each model is built as its training command builds it, with initial weights, and takes updates and
forward passes on random tokens in this process. ``--hours`` plans by it; ``study --speeds`` compares by
it.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from tqdm import tqdm

from .run import Run, tokens_in

#: Seconds that a command takes to start: the imports of torch and fairseq.
STARTUP = 10.0
#: The share of the hours that is planned. Runs that go on at the same time are slower than one alone.
PLANNED = 0.85


class TimedModel:
    """A model with its optimizer, in memory.

    Args:
        run: its data must be prepared.
    """

    def __init__(self, run: Run):
        from fairseq import options, tasks
        from fairseq.dataclass.utils import convert_namespace_to_omegaconf
        from fairseq.trainer import Trainer

        words = run.command().words
        words = words[words.index("train") + 1 :]
        args = options.parse_args_and_arch(options.get_training_parser(), words)
        self.cfg = convert_namespace_to_omegaconf(args)
        self.task = tasks.setup_task(self.cfg.task)
        model = self.task.build_model(self.cfg.model)
        criterion = self.task.build_criterion(self.cfg.criterion)
        self.trainer = Trainer(self.cfg, self.task, model, criterion)
        self.method = self.cfg.model.position_method
        self.length = self.cfg.task.tokens_per_sample
        sequences = max(1, self.cfg.dataset.max_tokens // self.length)
        self.tokens = sequences * self.length * self.cfg.optimization.update_freq[0]
        tokens = self._words(sequences, self.length)
        self.sample = {
            "id": torch.arange(sequences),
            "net_input": {
                "src_tokens": tokens,
                "src_lengths": torch.full((sequences,), self.length),
            },
            "target": tokens,
            "ntokens": tokens.numel(),
            "nsentences": sequences,
        }

    def update(self) -> float:
        """Take an update; returns its seconds."""
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
    """Seconds of the parts of a run.

    Attributes:
        update: one update.
        validation: one pass over the validation split.
        evaluation: all evaluations.
        epoch: updates per epoch.
    """

    update: float
    validation: float
    evaluation: float
    epoch: float

    def seconds(self, updates: int) -> float:
        """Seconds of the whole run with a number of updates."""
        validations = min(updates / 100, 20) + updates / self.epoch + 1
        validating = validations * self.validation
        return updates * self.update + validating + self.evaluation + 2 * STARTUP


def measure(runs: Iterable[Run]) -> dict[str, Cost]:
    """The cost of each run by name, measured one after the other; their data must be prepared."""
    bar = tqdm(list(runs), desc="measuring the speed", unit="model", dynamic_ncols=True)
    return {run.name: cost_of(run) for run in bar}


def cost_of(run: Run) -> Cost:
    model = TimedModel(run)
    model.update()  # allocates memory and loads kernels
    update = min(model.update(), model.update())
    inputs = [each for evaluation in run.evaluations for each in evaluation.inputs(run)]
    lengths = sorted({model.length, *(length for length, _ in inputs)})
    ends = {length: model.token(length) for length in (lengths[0], lengths[-1])}
    data = Path(run.data.split(":")[0])

    def token(length: int) -> float:
        """Linear in the length, as the cost of attention is."""
        (short, least), (long, most) = min(ends.items()), max(ends.items())
        slope = 0.0 if long == short else (most - least) / (long - short)
        return max(least + slope * (length - short), 0.5 * least)

    return Cost(
        update=update,
        validation=tokens_in(data, "valid") * token(model.length),
        evaluation=sum(tokens * token(length) for length, tokens in inputs),
        epoch=max(1.0, tokens_in(data, "train") / model.tokens),
    )


def makespan(seconds: Iterable[float], parallel: int) -> float:
    """Seconds until all are done, if each begins as soon as one of the places is free."""
    places = [0.0] * parallel
    for each in seconds:
        heapq.heappush(places, heapq.heappop(places) + each)
    return max(places)


def that_fit(runs: list[Run], hours: float, parallel: int) -> list[Run]:
    """The runs that fit, in their order; prints what fits and what is left out.

    A run that does not fit is left out, and less important ones that still fit are taken.
    """
    with one_thread():
        costs = measure(runs)
    seconds = {run.name: costs[run.name].seconds(run.updates) for run in runs}
    taken: list[Run] = []
    for run in runs:
        together = makespan((seconds[each.name] for each in [*taken, run]), parallel)
        if together <= hours * 3600 * PLANNED:
            taken.append(run)
    planned = makespan((seconds[run.name] for run in taken), parallel)
    print(f"{len(taken)} of {len(runs)} runs fit: {duration(planned)}.", flush=True)
    if left_out := [run for run in runs if run not in taken]:
        more = makespan((seconds[run.name] for run in left_out), parallel)
        names = ", ".join(run.name for run in left_out)
        print(f"Left out, for another {duration(more)}: {names}.", flush=True)
    return taken


@contextmanager
def one_thread() -> Iterator[None]:
    """torch computes with one thread inside, as each of several runs at a time does."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def in_turns(runs: Sequence[Run], rounds: int, label: str) -> list[tuple[TimedModel, list[float]]]:
    """Time updates of several models, one update of each per round after one to warm up.

    What disturbs a round disturbs all models of it, so ratios within rounds can be compared.
    """
    models = [TimedModel(run) for run in runs]
    seconds: list[list[float]] = [[] for _ in models]
    total = (rounds + 1) * len(models)
    with tqdm(total=total, desc=f"timing updates, {label}", dynamic_ncols=True) as bar:
        for _ in range(rounds + 1):
            for model, kept in zip(models, seconds):
                kept.append(model.update())
                bar.update()
    return [(model, kept[1:]) for model, kept in zip(models, seconds)]


def duration(seconds: float) -> str:
    """``45 min`` or ``5.2 h``."""
    return f"{seconds / 60:,.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"
