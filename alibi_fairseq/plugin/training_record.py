"""Record of a training run: the results file ``training.json`` in its save folder.

Each validation adds a result: the loss, and, all from the start of the run, tokens trained on,
seconds, GPU seconds, speed and peak memory. What has been recorded is saved in every
checkpoint and loaded with it, so a resumed run continues its results file at the checkpoint.

The record never ends a run that has started: it leaves out what cannot be recorded, and warns once.
A resumed run does not start if its plugin was edited, or if the checkpoint's record is unreadable.
"""

from __future__ import annotations

import functools
import logging
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from fairseq.logging.meters import MetersDict

from ..errors import UserInputError
from ..peak_memory import PeakMemory
from ..positions import MethodSpec
from ..positions.plugin_sources import plugin_files, plugin_sha256
from ..results.case import Case
from ..results.data_folder import DataFolder
from ..results.file import Results, read_results, results_json, save
from ..results.file_names import TRAINING_FILE
from ..results.provenance import Provenance, collect_provenance, git_state, utc_time
from ..results.result import Result
from ..results.series import SERIES_KEY, Reading, Series, series_json
from ..results.values import MAX_BITS, Cost, TextValues
from .kept_plugin import keep_plugin
from .training_series import series_of_training

logger = logging.getLogger(__name__)

#: Key in a checkpoint's ``extra_state``.
RECORD_KEY = "training_record"


class TrainingRecord:
    """Measurements of one training so far.

    Attributes:
        validations: one result per validation of a split.
        series: how the model is trained; None in the processes that write no record.
        totals: over the whole run: ``tokens`` trained on, wall-clock ``seconds``, ``gpu_seconds``,
            ``peak_memory_mb``; ``timed_tokens`` and ``timed_seconds`` of only the updates, without
            validation, saving and the first update after each start; ``timed_process_seconds``, the
            same times the number of processes, which may change when the run resumes.
        subset: split that is being validated, which :mod:`.hooks` sets.
        last: when the last update, validation, or save ended; None before the first one.
    """

    def __init__(self, trainer, state: dict | None):
        self.trainer = trainer
        self.cfg = trainer.cfg
        self.validations: list[Result] = []
        self.totals: dict[str, float] = defaultdict(float)
        if state is not None:
            self.totals.update(state["totals"])
            self.validations = read_results(state["results"], "the checkpoint")
            self._check_plugin(state["plugin_sha256"])
        self.subset = "valid"
        self.last: float | None = None
        self._counted = time.monotonic()
        self._memory = PeakMemory(trainer.device)
        self._provenance: dict | None = None
        self._warnings: set[str] = set()
        # Not at the first validation: the checkout may have another commit by then, but this
        # process has loaded its code.
        self._git = git_state() if trainer.is_data_parallel_master else None
        self.series: Series | None = None

    @functools.cached_property
    def plugin(self) -> str | None:
        """Hash of the plugin of the position method, or None without one."""
        return plugin_sha256(MethodSpec.from_options(self.cfg.model).names)

    def _check_plugin(self, recorded: str | None) -> None:
        """Check that a resumed training has the plugin of its position method that it began with.

        Raises:
            UserInputError: the plugin was edited.
        """
        if recorded != self.plugin:
            raise UserInputError(
                "The plugin of this model was edited since its training began. Choose another "
                "--save-dir, or undo the edit."
            )

    def set_series(self, saved: dict | None) -> None:
        """Find out how the model is trained, in the process that writes the record.

        Args:
            saved: series in the checkpoint from which the training resumes; None without one.
        """
        if not self.trainer.is_data_parallel_master:
            return
        try:
            self.series = series_of_training(self.trainer, self.plugin, saved)
        except Exception as error:
            self._warn_once(f"{self._path} is not written ({error})")
        self._counted = time.monotonic()  # hashing the data is no training

    def updated(self, tokens: int) -> None:
        """Note the end of an update on a number of tokens in all processes."""
        now = time.perf_counter()
        self.totals["tokens"] += tokens
        if self.last is not None:
            self.totals["timed_tokens"] += tokens
            seconds = now - self.last
            self.totals["timed_seconds"] += seconds
            processes = self.trainer.data_parallel_world_size
            self.totals["timed_process_seconds"] += seconds * processes
        self.last = now

    def note_memory(self, update: MetersDict) -> None:
        """Note the peak memory of an update on a GPU, because fairseq resets PyTorch's peak.

        Args:
            update: metrics that fairseq logged during the update. ``gb_free`` is the difference
                between the GPU's memory and PyTorch's peak, in 2³⁰ bytes.
        """
        if "gb_free" in update:
            used = self.trainer.cuda_env.total_memory_in_GB - update["gb_free"].avg
            peak_mb = used * 2**30 / 1e6
            self.totals["peak_memory_mb"] = max(self.totals["peak_memory_mb"], peak_mb)

    def validated(self, loss_bits: float, tokens: int) -> None:
        """Note the end of a validation on ``subset``, and write the results file.

        Any error is only a warning: no record is worth losing the run for.
        """
        try:
            self._count_time()
            if self.series is not None:
                self._add_validation(self.series, loss_bits, tokens)
                save(self._results(), self._path)
        except Exception as error:
            self._warn_once(f"{self._path} could not be written ({error})")
        finally:
            self.last = time.perf_counter()

    def _add_validation(self, series: Series, loss_bits: float, tokens: int) -> None:
        """Add the result of a validation on ``subset``."""
        length = self.cfg.task.tokens_per_sample
        updates = self.trainer.get_num_updates()
        validation = Result(
            series=series,
            reading=Reading(updates, precision=self._precision),
            seed=self.cfg.common.seed,
            case=Case(
                kind="validation",
                text=series.settings.get("data.valid", {}).get(self.subset),
                split=self.subset,
                length=length,
                stride=length,
                corpus=self._corpus,
            ),
            values=self._values(loss_bits, tokens),
            updates=updates,
            cost=self._cost(),
        )
        # A resumed training repeats the validations after its checkpoint.
        kept = []
        for old in self.validations:
            if (old.updates, old.case.split) != (updates, self.subset):
                kept.append(old)
        self.validations = [*kept, validation]

    def _cost(self) -> Cost:
        """Return time and memory since the beginning of the run."""
        cost = Cost(
            device=self.trainer.device.type,
            seconds=round(self.totals["seconds"], 3),
            peak_memory_mb=round(self.totals["peak_memory_mb"], 1),
            processes=self.trainer.data_parallel_world_size,
            trained_tokens=int(self.totals["tokens"]),
        )
        if self.totals["gpu_seconds"]:
            cost = replace(cost, gpu_seconds=round(self.totals["gpu_seconds"], 3))
        if self.totals["timed_seconds"]:
            timed_tokens = self.totals["timed_tokens"]
            speed = timed_tokens / self.totals["timed_seconds"]
            process_speed = timed_tokens / self.totals["timed_process_seconds"]
            cost = replace(
                cost,
                tokens_per_second=round(speed, 1),
                tokens_per_second_per_process=round(process_speed, 1),
            )
        return cost

    def _values(self, loss_bits: float, tokens: int) -> TextValues | None:
        """Return the loss of a validation, or None if it is not finite or its perplexity is not."""
        if 0 <= loss_bits <= MAX_BITS:
            return TextValues(loss_bits, tokens)
        self._warn_once(
            f"The loss on {self.subset} is {loss_bits}. The training goes on, and {self._path} "
            "has no loss for such a validation."
        )
        return None

    def extra_state(self) -> dict:
        """Return what a checkpoint saves: the record, and how the model is trained."""
        saved = {RECORD_KEY: self.state()}
        if self.series is not None:
            saved[SERIES_KEY] = series_json(self.series)
        return saved

    def saved(self) -> None:
        """Note the end of a save, with the copies of the checkpoint under other names."""
        self.last = time.perf_counter()

    def state(self) -> dict:
        """Return the state of the record, from which a resumed training continues it."""
        self._count_time()
        return {
            "results": results_json(self.validations),
            "totals": dict(self.totals),
            "plugin_sha256": self.plugin,
        }

    @property
    def _precision(self) -> str:
        """Precision of the validations."""
        return validation_precision(self.cfg.common)

    @functools.cached_property
    def _corpus(self) -> str:
        """Name of the training data."""
        return DataFolder.open(self.cfg.task.data).corpus

    def _count_time(self) -> None:
        now = time.monotonic()
        seconds = now - self._counted
        self._counted = now
        gpus = self.trainer.data_parallel_world_size if self.trainer.device.type == "cuda" else 0
        self.totals["seconds"] += seconds
        self.totals["gpu_seconds"] += seconds * gpus
        self.totals["peak_memory_mb"] = max(self.totals["peak_memory_mb"], self._memory.mb())

    @property
    def _path(self) -> Path:
        """Path of the results file."""
        return Path(self.cfg.checkpoint.save_dir) / TRAINING_FILE

    def _warn_once(self, message: str) -> None:
        """Log a warning that this process has not logged yet."""
        if self.trainer.is_data_parallel_master and message not in self._warnings:
            self._warnings.add(message)
            logger.warning(message)

    def _results(self) -> Results:
        """Return the content of the results file.

        A last validation without a loss says that the training has diverged.
        """
        if self._provenance is None:
            self._provenance = collect_provenance(
                seconds=0,
                precision=self._precision,
                seed=self.cfg.common.seed,
                data=self.cfg.task.data.split(":")[0],
                splits=self.cfg.dataset.valid_subset.split(","),
                git=self._git,
            )
        self._provenance["date"] = utc_time()
        self._provenance["seconds"] = round(self.totals["seconds"], 3)
        *earlier, last = self.validations
        if last.values is None:
            last = replace(last, status="diverged")
        return Results([*earlier, last], Provenance(**self._provenance))


def validation_precision(common) -> str:
    """Return the precision in which fairseq validates.

    With ``--amp`` it is fp32: fairseq computes only updates in mixed precision. The
    memory-efficient flags set ``fp16`` or ``bf16`` as well.

    Args:
        common: fairseq's common options.
    """
    if common.fp16:
        return "fp16"
    if common.bf16:
        return "bf16"
    return "fp32"


def start_record(trainer, extra_state: dict | None) -> TrainingRecord | None:
    """Return the record of a training that starts or resumes; None if it trains no language model.

    Args:
        trainer: fairseq's trainer before its first update.
        extra_state: of the checkpoint that the trainer has loaded; None without one.
    """
    has_length = hasattr(trainer.cfg.task, "tokens_per_sample")
    if not has_length or not hasattr(trainer.task, "source_dictionary"):
        return None
    resumed = trainer.get_num_updates() > 0  # and not fine-tuned from another run's checkpoint
    state = (extra_state or {}).get(RECORD_KEY) if resumed else None
    record = TrainingRecord(trainer, state)
    record.set_series((extra_state or {}).get(SERIES_KEY) if resumed else None)
    if trainer.is_data_parallel_master and not trainer.cfg.checkpoint.no_save:
        files = plugin_files(MethodSpec.from_options(trainer.cfg.model).names)
        keep_plugin(files, Path(trainer.cfg.checkpoint.save_dir), resumed)
    return record
