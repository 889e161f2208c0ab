"""How long a plan will take on this CPU, from a few updates of every run measured here."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from tqdm import tqdm

from .pipeline import Pipeline
from .plan import Run

#: Seconds that a command takes to start: the imports of torch and fairseq.
STARTUP = 10.0


@dataclass(frozen=True)
class Timing:
    """What was measured on a model of one run.

    Attributes:
        update: seconds per update.
        short, long: (length, seconds per token) of forward passes over one window.
    """

    update: float
    short: tuple[int, float]
    long: tuple[int, float]

    def token(self, length: int) -> float:
        """Seconds per evaluated token: linear in the length, as the cost of attention is."""
        (short, least), (long, most) = self.short, self.long
        slope = 0.0 if long == short else (most - least) / (long - short)
        return max(least + slope * (length - short), 0.5 * least)


def estimate(pipeline: Pipeline) -> float:
    """Seconds for all runs of a plan that are not done, whose data is prepared.

    Runs one update of every model, after another one to warm up, with the threads that the
    trainings will have.
    """
    left = [run for run in pipeline.runs if not all(s.done() for s in pipeline.steps(run))]
    with one_thread() if pipeline.parallel > 1 else nullcontext():
        bar = tqdm(left, desc="measuring the speed", unit="run", dynamic_ncols=True)
        seconds = [run_seconds(pipeline, run) for run in bar]
    longest = max(seconds, default=0.0)
    return max(sum(seconds) / pipeline.parallel, longest)


@contextmanager
def one_thread() -> Iterator[None]:
    """torch computes with one thread inside, as each of several runs side by side does."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def run_seconds(pipeline: Pipeline, run: Run) -> float:
    """Seconds for training and evaluating one run, from its beginning."""
    updates = pipeline.stops(run)[-1]
    timing = measure(pipeline, run)
    commands = len(pipeline.steps(run))
    evaluated = 0.0
    for measurement in run.measurements:
        tokens = pipeline.scale.excerpt[measurement.subset]
        for length in measurement.lengths:
            windows = max(1, tokens // (measurement.stride or length))
            evaluated += windows * length * timing.token(length)
    return updates * timing.update + evaluated + STARTUP * commands


def measure(pipeline: Pipeline, run: Run) -> Timing:
    """Time an update and forward passes at the shortest and the longest evaluated length."""
    training = pipeline.training(run)
    lengths = {length for m in run.measurements for length in m.lengths}
    batch = training.recipe.batch
    command = training.command(training.recipe.updates)
    return measure_command(command, batch.sequences, batch.length, (min(lengths), max(lengths)))


def measure_command(
    command: list[str], sequences: int, length: int, ends: tuple[int, int]
) -> Timing:
    """Time an update of a training command's model, and forward passes of two lengths.

    Args:
        sequences, length: of an update.
        ends: the lengths of the forward passes.
    """
    _, task, model, criterion, sample = built(command, sequences, length)

    def update() -> None:
        criterion(model, sample)[0].backward()

    update()
    seconds = timed(update)
    model.eval()
    with torch.no_grad():
        forward = [timed(partial(model, random_tokens(task, 1, n))) / n for n in ends]
    return Timing(seconds, (ends[0], forward[0]), (ends[1], forward[1]))


def built(command: list[str], sequences: int, length: int) -> tuple:
    """``(cfg, task, model, criterion, sample)`` of a training command, on the CPU.

    Args:
        sequences, length: of the sample, which is random.
    """
    from fairseq import options, tasks
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    from ..launcher.plan import TRAIN

    words = command[command.index(TRAIN[-1]) + 1 :]
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    cfg = convert_namespace_to_omegaconf(args)
    task = tasks.setup_task(cfg.task)
    model, criterion = task.build_model(cfg.model), task.build_criterion(cfg.criterion)
    tokens = random_tokens(task, sequences, length)  # (B, T)
    sample = {
        "id": torch.arange(sequences),
        "net_input": {
            "src_tokens": tokens,
            "src_lengths": torch.full((sequences,), length),
        },
        "target": tokens,
        "ntokens": tokens.numel(),
        "nsentences": sequences,
    }
    return cfg, task, model, criterion, sample


def random_tokens(task, sequences: int, length: int) -> torch.Tensor:
    """(B, T) words as frequent as in the text: an adaptive softmax is faster for frequent ones."""
    counts = torch.tensor(task.source_dictionary.count[4:], dtype=torch.double)  # of words alone
    words = torch.multinomial(counts, sequences * length, replacement=True) + 4
    return words.view(sequences, length)


def timed(work) -> float:
    """Wall-clock seconds of a call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def duration(seconds: float) -> str:
    """``45 min`` or ``5.2 h``."""
    return f"{seconds / 60:,.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"
