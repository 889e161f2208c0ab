"""Training and evaluation speed of models, relative to sinusoidal: ``compare --speeds``.

Each model is built from its training command, with initial weights, and runs updates and forward
passes on random tokens in this process. The speeds recorded by the runs themselves cannot be
compared, because runs may share the machine. Here the models take turns: in every round, each model
runs one update and reads one window, so that a disturbance affects all models of that round. Memory
use comes from the training records.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..machine import cores
from ..positions import MethodSpec
from ..positions.plugin_sources import plugin_sha256
from ..progress_bar import make_progress_bar
from ..results.data_folder import DataFolder
from ..results.data_hashes import data_folders
from ..results.files import (
    TRAINING_FILE,
    load_results_file,
    load_training,
    save_results_file,
)
from ..results.model import Model
from ..results.provenance import collect_provenance
from ..results.record import Benchmark
from ..results.results_file import BenchmarkFile, Provenance
from ..runs.run import Run
from .comparison_config import ComparisonConfig
from .comparison_runs import list_runs
from .config_values import tokens_at
from .speed_columns import BASELINE, is_evaluation

#: Number of timed rounds. One untimed round comes first.
ROUNDS = 15


class TimedModel:
    """Model with its optimizer, on random tokens. The data of the run must be prepared."""

    def __init__(self, run: Run):
        from fairseq import tasks
        from fairseq.trainer import Trainer

        self.cfg = training_config(run)
        self.record = model_of(self.cfg)
        # Windows may be longer than the table of learned positions. Training is not affected.
        learned = "learned" in self.record.method.names
        self.cfg.model.clamp_learned_positions = learned
        self.task = tasks.setup_task(self.cfg.task)
        model = self.task.build_model(self.cfg.model)
        criterion = self.task.build_criterion(self.cfg.criterion)
        self.trainer = Trainer(self.cfg, self.task, model, criterion)
        self.length = self.cfg.task.tokens_per_sample
        sequences = max(1, self.cfg.dataset.max_tokens // self.length)
        self.batches_per_update = self.cfg.optimization.update_freq[0]
        self.tokens_per_update = sequences * self.length * self.batches_per_update
        tokens = self._random_tokens(sequences, self.length)
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

    def time_update(self) -> float:
        """Run one update and return its duration in seconds."""
        from fairseq.logging import metrics

        began = time.perf_counter()
        with metrics.aggregate(new_root=True):
            self.trainer.train_step([self.sample] * self.batches_per_update)
        return self._seconds_since(began)

    def time_window(self, length: int) -> float:
        """Run the forward pass of one window and return its duration in seconds."""
        model = self.trainer.model
        tokens = self._random_tokens(1, length).to(self.trainer.device)
        model.eval()
        began = time.perf_counter()
        with torch.no_grad():
            model(tokens)
        seconds = self._seconds_since(began)
        model.train()
        return seconds

    def _seconds_since(self, began: float) -> float:
        if self.trainer.cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - began

    def _random_tokens(self, sequences: int, length: int) -> torch.Tensor:
        """Draw token IDs, (B, T), by their frequency in the text.

        An adaptive softmax is faster for frequent tokens.
        """
        dictionary = self.task.source_dictionary
        first_word = dictionary.nspecial  # special symbols are not text
        counts = torch.tensor(dictionary.count[first_word:], dtype=torch.double)
        tokens = torch.multinomial(counts, sequences * length, replacement=True) + first_word
        return tokens.view(sequences, length)


@contextmanager
def using_threads(number: int) -> Iterator[None]:
    """Set the number of torch's threads, and restore it afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def time_in_turns(
    models: Sequence[TimedModel], length: int
) -> tuple[list[list[float]], list[list[float]]]:
    """Time an update and a window of each model in every round.

    Returns:
        Seconds of the updates, and seconds of the windows, by model and timed round.
    """
    update_seconds: list[list[float]] = [[] for _ in models]
    window_seconds: list[list[float]] = [[] for _ in models]
    total = (ROUNDS + 1) * len(models)
    with (
        using_threads(cores()),
        make_progress_bar(total, "timing the models in turns", "model") as bar,
    ):
        for round_number in range(ROUNDS + 1):
            for number, model in enumerate(models):
                update = model.time_update()
                window = model.time_window(length)
                if round_number > 0:  # the first round warms up
                    update_seconds[number].append(update)
                    window_seconds[number].append(window)
                bar.update()
    return update_seconds, window_seconds


def training_config(run: Run) -> Any:
    """Return fairseq's configuration of a run's training."""
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    argv = [run.data, *run.flags, "--save-dir", str(run.folder)]
    args = options.parse_args_and_arch(options.get_training_parser(), argv)
    return convert_namespace_to_omegaconf(args)


def model_of(cfg: Any) -> Model:
    """Return the record of a model that is not trained, for results of its speed."""
    from ..models.description import training_options

    method = MethodSpec.from_options(cfg.model)
    return Model(
        method=method,
        plugin_sha256=plugin_sha256(method.names),
        architecture=cfg.model._name,
        train_length=cfg.task.tokens_per_sample,
        options=training_options(cfg),
    )


def measure_speeds(runs: Sequence[Run], length: int, path: Path) -> BenchmarkFile:
    """Time the models of runs on the same data, and write a results file.

    Args:
        length: evaluation length in tokens.
        path: the results file to write.

    Returns:
        The contents of the results file.
    """
    began = time.monotonic()
    models = [TimedModel(run) for run in runs]
    update_seconds, window_seconds = time_in_turns(models, length)
    records = []
    for number, model in enumerate(models):
        memory = {"peak_memory_mb": peak_memory(runs[number])}
        update_speed = speed(model.tokens_per_update, update_seconds[number])
        window_speed = speed(length, window_seconds[number])
        update = Benchmark(
            name="an update",
            case={"phase": "train", "tokens": model.tokens_per_update},
            model=model.record,
            measured={**memory, **update_speed},
        )
        window = Benchmark(
            name=f"a window of {length}",
            case={"phase": "evaluate", "tokens": length},
            model=model.record,
            measured=window_speed,
        )
        records += [update, window]
    data = data_folders(runs[0].data)[0]
    seconds = time.monotonic() - began
    provenance = collect_provenance(seconds=seconds, seed=None, data=data, subsets=["train"])
    results = BenchmarkFile(
        corpus=DataFolder.open(data).corpus, provenance=Provenance(**provenance), records=records
    )
    save_results_file(results, path)
    return results


def peak_memory(run: Run) -> float | None:
    """Return the peak memory of a run's training in MB, or None if it is not recorded."""
    if not (run.folder / TRAINING_FILE).is_file():
        return None
    return load_training(run.folder).records[-1].peak_memory_mb


def speed(tokens: int, seconds: Sequence[float]) -> dict[str, Any]:
    """Return the measured values of a record of speed."""
    return {
        "tokens_per_second": round(tokens / statistics.median(seconds), 1),
        "round_seconds": [round(value, 7) for value in seconds],
    }


def load_or_measure_speeds(comparison: ComparisonConfig, folder: Path) -> BenchmarkFile:
    """Return the speeds of the models of a comparison.

    Models are timed unless ``speeds.json`` already has the same models at the longest evaluation
    length. One corpus and one seed are enough. Models that share a name in results have separate
    rows and speeds.
    """
    path = folder / "speeds.json"
    timed = replace(
        comparison,
        methods=(*comparison.methods, MethodSpec.parse(BASELINE)),  # a repeated method is removed
        corpora=comparison.corpora[:1],
        seeds=comparison.seeds[:1],
    )
    runs = [model.run for model in list_runs(timed, folder)]
    lengths: list[int] = []
    for train_length in comparison.train_lengths:
        lengths += tokens_at(comparison.eval_lengths, train_length)
    longest = max(lengths)
    if path.is_file():
        existing = load_results_file(path)
        if isinstance(existing, BenchmarkFile) and has_speeds(existing.records, runs, longest):
            return existing
    return measure_speeds(runs, longest, path)


def has_speeds(records: Sequence[Benchmark], runs: Sequence[Run], length: int) -> bool:
    """Return True if records hold the speeds of exactly these runs at an evaluation length."""
    wanted = set()
    for run in runs:
        model = model_of(training_config(run))
        wanted.add(timed_key(model))
    measured = set()
    lengths = set()
    for record in records:
        if record.model is not None:
            measured.add(timed_key(record.model))
        if is_evaluation(record):
            lengths.add(record.case["tokens"])
    return measured == wanted and lengths == {length}


def timed_key(model: Model) -> tuple:
    """Return what the speed of a model depends on."""
    return (model.key_of_any_corpus, model.plugin_sha256)
