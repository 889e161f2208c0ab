"""Training and evaluation speed of models, relative to sinusoidal: ``compare --speeds``.

Each model is built from its training command, with initial weights, and runs updates and forward
passes on random tokens in this process. The speeds recorded by the runs themselves cannot be
compared, because runs may share the machine. Here the models take turns: in every round, each model
runs one update and reads one window, so that a disturbance affects all models of that round. Memory
use comes from the training records.
"""

from __future__ import annotations

import shlex
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from ..errors import PROGRAM
from ..machine import cores
from ..positions import MethodSpec
from ..progress_bar import make_progress_bar
from ..reporting.perplexity_by_length import MEMORY, TRAINING_SPEED, Columns
from ..results.data_folder import DataFolder
from ..results.data_hashes import data_folders
from ..results.model_groups import ModelKey
from ..results.provenance import collect_provenance
from ..results.results_file import load_results_file, new_results_file, save_results_file
from ..results.schema import TRAINING_FILE
from ..results.training_command import options_of_any_corpus
from ..runs.run import Run
from .comparison_config import ComparisonConfig
from .comparison_runs import list_runs
from .config_values import tokens_at

#: Number of timed rounds. One untimed round comes first.
ROUNDS = 15
#: Position method that speeds and memory are relative to.
BASELINE = "sinusoidal"
#: Column titles of the speeds, by phase.
SPEED_TITLES = {"train": TRAINING_SPEED, "evaluate": "evaluation speed"}


class TimedModel:
    """Model with its optimizer, on random tokens. The data of the run must be prepared."""

    def __init__(self, run: Run):
        from fairseq import options, tasks
        from fairseq.dataclass.utils import convert_namespace_to_omegaconf
        from fairseq.trainer import Trainer

        argv = [run.data, *run.flags, "--save-dir", str(run.folder)]
        args = options.parse_args_and_arch(options.get_training_parser(), argv)
        self.cfg = convert_namespace_to_omegaconf(args)
        self.method = MethodSpec.from_options(self.cfg.model).recorded_name
        # Windows may be longer than the table of learned positions. Training is not affected.
        learned = "learned" in self.cfg.model.position_method.split(",")
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


def measure_speeds(runs: Sequence[Run], length: int, path: Path) -> dict:
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
    for number, (run, model) in enumerate(zip(runs, models)):
        fields = {
            "model": model.cfg.model._name,
            "position_method": model.method,
            "train_length": model.length,
            "train_command": command_of(run),
            "baseline": None,
            "ratio": None,
        }
        if "plugin" in run.settings:
            fields["plugin_sha256"] = run.settings["plugin"]
        records.append(
            {
                "name": "an update",
                "phase": "train",
                "tokens": model.tokens_per_update,
                **fields,
                "peak_memory_mb": peak_memory(run),
                **speed(model.tokens_per_update, update_seconds[number]),
            }
        )
        records.append(
            {
                "name": f"a window of {length}",
                "phase": "evaluate",
                "tokens": length,
                **fields,
                "peak_memory_mb": None,
                **speed(length, window_seconds[number]),
            }
        )
    data = data_folders(runs[0].data)[0]
    seconds = time.monotonic() - began
    provenance = collect_provenance(seconds=seconds, seed=None, data=data, subsets=["train"])
    results = new_results_file("benchmark", DataFolder.open(data).corpus, provenance, records)
    save_results_file(results, path)
    return results


def command_of(run: Run) -> str:
    """Return the training command of a run, with the options that its results record."""
    return shlex.join([PROGRAM, "train", run.data, *run.flags])


def peak_memory(run: Run) -> float | None:
    """Return the peak memory of a run's training in MB, or None if it is not recorded."""
    path = run.folder / TRAINING_FILE
    if not path.is_file():
        return None
    return load_results_file(path)["cells"][-1].get("peak_memory_mb")


def speed(tokens: int, seconds: Sequence[float]) -> dict:
    """Return the fields of a result record that describe its speed."""
    return {
        "tokens_per_second": round(tokens / statistics.median(seconds), 1),
        "round_seconds": [round(value, 7) for value in seconds],
    }


def speed_columns(comparison: ComparisonConfig, folder: Path) -> Columns:
    """Return table columns with speeds and memory.

    Models are timed unless ``speeds.json`` already has the same models at the longest evaluation
    length. One corpus and one seed are enough. Models that share a name in results have separate
    rows and speeds.
    """
    path = folder / "speeds.json"
    first_corpus = next(comparison.model_specs()).corpus
    timed = replace(
        comparison,
        methods=(*comparison.methods, MethodSpec.parse(BASELINE)),  # a repeated method is removed
        train_on=(first_corpus,),
        seeds=comparison.seeds[:1],
    )
    runs = [model.run for model in list_runs(timed, folder)]
    lengths: list[int] = []
    for train_length in comparison.train_lengths:
        lengths += tokens_at(comparison.eval_lengths, train_length)
    longest = max(lengths)
    results: dict | None = None
    if path.is_file():
        results = load_results_file(path)
        if not has_speeds(results["cells"], runs, longest):
            results = None
    if results is None:
        results = measure_speeds(runs, longest, path)
    return ratios(results["cells"])


def has_speeds(records: Sequence[dict], runs: Sequence[Run], length: int) -> bool:
    """Return True if records hold the speeds of exactly these runs at an evaluation length."""
    wanted = {(options_of_any_corpus(command_of(run)), run.settings.get("plugin")) for run in runs}
    measured = {(training_options_of(record), record.get("plugin_sha256")) for record in records}
    windows = [record for record in records if record["phase"] == "evaluate"]
    measured_lengths = {record.get("tokens") for record in windows}
    return measured == wanted and measured_lengths == {length}


def ratios(records: Sequence[dict]) -> Columns:
    """Return speeds and memory relative to the baseline, as table columns.

    A speed is the median, over rounds, of the ratio within a round.
    """
    columns: dict[str, dict] = {title: {} for title in (*SPEED_TITLES.values(), MEMORY)}
    for record in records:
        base = baseline_of(record, records)
        if base is None:
            continue
        key = key_of(record)
        speedups = []
        for base_seconds, seconds in zip(base["round_seconds"], record["round_seconds"]):
            speedups.append(base_seconds / seconds)
        columns[SPEED_TITLES[record["phase"]]][key] = f"{statistics.median(speedups):.2f}"
        if base.get("peak_memory_mb") and record.get("peak_memory_mb"):
            ratio = record["peak_memory_mb"] / base["peak_memory_mb"]
            columns[MEMORY][key] = f"{ratio:.2f}"
    return columns


def key_of(record: dict) -> ModelKey:
    """Return the key of a timed model in tables of perplexity."""
    return record["position_method"], record["train_length"], training_options_of(record)


def training_options_of(record: dict) -> tuple[tuple[str, str], ...]:
    """Return the training options of a timed model that are the same for all corpora."""
    return options_of_any_corpus(record.get("train_command") or "")


def baseline_of(record: dict, records: Sequence[dict]) -> dict | None:
    """Return the record of the baseline with the same phase and training length, or None.

    A model of the same name with more options, such as an attention window, is not the baseline.
    """
    candidates = []
    for candidate in records:
        same_phase = candidate["phase"] == record["phase"]
        same_length = candidate["train_length"] == record["train_length"]
        if candidate["position_method"] == BASELINE and same_phase and same_length:
            candidates.append(candidate)
    return min(candidates, key=lambda baseline: len(training_options_of(baseline)), default=None)
