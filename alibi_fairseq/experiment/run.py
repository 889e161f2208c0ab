"""Run: the training of one model, and its evaluations.

An experiment lists runs, and :mod:`.runner` executes them. A run trains its model; an
:class:`.EvalStep` evaluates it. The folder of a run contains:

- checkpoints and logs
- ``request.json``, written before the first update, with the run's request
- a completion marker for each update count that the training has reached, if it keeps a checkpoint

An evaluation is complete once its results exist. Completed steps are not repeated.

A run's *request* decides whether a folder has this training: what the experiment asks for, as text.
Its *series* decides which results are those of its model: what fairseq makes of the flags on one
kind of device. The trainer records it (:class:`..results.series.Series`).
"""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from pathlib import Path

from ..completion_marker import (
    CompletionMarker,
    check_settings,
    read_json_if_present,
    write_settings,
)
from ..errors import BAD_INPUT, UserInputError
from ..files import link_or_copy
from ..positions.plugin_sources import check_unedited, plugin_sha256
from ..results.file import load_training
from ..results.file_names import LAST_CHECKPOINT, TRAINING_FILE, kept_checkpoint
from .child_process import ALIBI, ChildProcess, CommandFailedError, read_reason
from .eval_step import EVALUATION_LOG, EvalStep
from .rate_choice import Choice
from .slots import DEFAULT_SLOT, Slot
from .stopping import Stopped

#: File in the folder of a run to which its training appends its output.
TRAINING_LOG = "train.log"
#: Error by which fairseq ends a training whose loss or gradients are not finite.
DIVERGENCE_ERROR = "FloatingPointError"


@dataclass(frozen=True)
class Run:
    """Training of a model, and its evaluations.

    Attributes:
        name: unique name within the experiment.
        folder: folder for checkpoints and logs.
        data: fairseq's data argument: a folder, or several joined by ``:``.
        flags: options of ``fairseq-train``.
        request: JSON values that determine the weights. Unlike the flags and the series, they do
            not depend on the machine. In a comparison, they are ``options``, the flags that
            determine the weights; ``train`` and ``dictionary``, hashes of the data; ``plugin``, the
            hash of a plugin, if there is one; and ``file``, the hash of each file that the options
            name, if there is one.
        updates: number of updates of the whole training.
        tokens: number of tokens of the whole training.
        methods: position methods, whose plugins must not be edited until the run is complete.
        eval_steps: evaluation steps, in order.
        keep_at: earlier update counts at which a checkpoint is kept.
        final_checkpoint: name of the checkpoint that is evaluated at the end.
        program: command that trains with the arguments behind it, such as torchrun's.
        may_diverge: True if divergence completes the run, which is then not evaluated. This is the
            case for learning-rate trials. Otherwise divergence is a failure.
        choice: choice of the learning rate by trials; None if the rate is given, and before the
            trials have chosen one. Until then, the flags have the first candidate.
        blocked: reason for which the finished trials cannot choose a rate; empty if they can.
        after: names of the unfinished trials for which this run waits. To give it the rate that
            they choose, :mod:`.runner` plans the experiment again after them, as each SLURM job
            does.
    """

    name: str
    folder: Path
    data: str
    flags: tuple[str, ...]
    request: dict
    updates: int
    tokens: int
    methods: tuple[str, ...] = ()
    eval_steps: tuple[EvalStep, ...] = ()
    keep_at: tuple[int, ...] = ()
    final_checkpoint: str = LAST_CHECKPOINT
    program: tuple[str, ...] = field(default=ALIBI, repr=False)
    may_diverge: bool = False
    choice: Choice | None = field(default=None, repr=False)
    blocked: str = ""
    after: tuple[str, ...] = ()

    @property
    def plugin(self) -> str | None:
        """Hash of the plugins of the position methods; None without any."""
        return plugin_sha256(self.methods)

    def unfinished_commands(self) -> list[ChildProcess]:
        """Return the commands that are left to train and evaluate the model, in order."""
        commands = []
        if not self.is_trained:
            commands.append(self.training_command())
        for step in self.eval_steps:
            if not step.is_complete:
                commands.append(step.command(self.name))
        return commands

    def training_command(self) -> ChildProcess:
        """Build the command that trains the model, or resumes its training."""
        argv = [*self.program, "train", self.data, *self.flags]
        argv += ["--save-dir", str(self.folder)]
        if self.keep_at:
            argv += ["--keep-at", ",".join(map(str, self.keep_at))]
        title = f"training {self.name}"
        log = self.folder / TRAINING_LOG
        return ChildProcess(title, argv, log, self.updates)

    def checkpoint_path(self, updates: int) -> Path:
        """Return the path of the checkpoint after a number of updates."""
        if updates == self.updates:
            return self.folder / self.final_checkpoint
        return self.folder / kept_checkpoint(updates)

    def training_marker(self, updates: int) -> CompletionMarker:
        """Return the marker of the training up to a number of updates."""
        path = self.folder / f"trained-{updates}.json"
        checkpoint = self.checkpoint_path(updates)
        return CompletionMarker(path, self.request, outputs=[checkpoint])

    @property
    def diverged(self) -> bool:
        """True if the run may diverge and did."""
        return self.may_diverge and self._divergence_marker.holds()

    def saved_updates(self) -> int:
        """Return the number of updates of the last checkpoint; 0 without one."""
        path = self.folder / LAST_CHECKPOINT
        if not path.is_file():
            return 0
        status = path.stat()
        return _update_count(path, status.st_size, status.st_mtime_ns)

    @property
    def is_trained(self) -> bool:
        """True if the training is complete. Requires prepared data."""
        return not self._missing_update_counts()

    @property
    def has_sliding_windows(self) -> bool:
        """True if an evaluation has overlapping windows, and can take hours."""
        return any(stride != "full" for step in self.eval_steps for stride in step.config.strides)

    @property
    def has_rate(self) -> bool:
        """True if its learning rate is given, or chosen by trials."""
        return not self.after and not self.blocked

    @property
    def is_complete(self) -> bool:
        """True if nothing is left to train or evaluate. Requires prepared data."""
        if not self.has_rate:
            return False
        if self.diverged:
            return True
        if not self.is_trained:
            return False
        return all(step.is_complete for step in self.eval_steps)

    def why_incomplete(self) -> str:
        """Return the reason for which the run failed, as far as its logs tell."""
        if self.blocked:
            return self.blocked
        work = "evaluation" if self.is_trained else "training"
        log = self.folder / (EVALUATION_LOG if self.is_trained else TRAINING_LOG)
        if not log.is_file():
            return f"its {work} did not start"
        sentence = f"its {work} is not complete (log: {log})"
        reason = read_reason(log)
        return f"{sentence}: {reason}" if reason else sentence

    def execute(self, slot: Slot = DEFAULT_SLOT) -> None:
        """Train the model, then evaluate it. Completed steps are skipped.

        Raises:
            Stopped, CommandFailedError: as :meth:`.ChildProcess.run`.
        """
        self.train(slot)
        self.evaluate(slot)

    def train(self, slot: Slot = DEFAULT_SLOT) -> None:
        """Train the model, unless it is trained.

        After its trials, a run is planned again, and then has nothing in ``after``.

        Raises:
            Stopped, CommandFailedError: as :meth:`.ChildProcess.run`, or fairseq
                ended the training early.
            UserInputError: the folder has another training, a plugin was edited, a learning-rate
                trial is unfinished, or the trials cannot choose a rate.
        """
        if self.diverged:
            return
        if self.blocked:
            raise UserInputError(self.blocked)
        if self.choice is not None:
            self.choice.record()
            self._set_replaced_training_aside()
        missing = self._missing_update_counts()
        if not missing:
            return
        if self.after:
            raise UserInputError(f"{self.name}: trial {self.after[0]} is unfinished. Run it first.")
        self.check_start()
        write_settings(self.request_file, self.request)
        # A run killed between its last update and its marker needs no new process.
        if self.saved_updates() < self.updates:
            try:
                self.training_command().run(slot)
            except CommandFailedError as failure:
                if not self.may_diverge or DIVERGENCE_ERROR not in str(failure):
                    raise
                self._divergence_marker.write()
                if failure.was_stopping:
                    raise Stopped from failure
                return
            self._check_update_count()
        if self.may_diverge and self._has_no_final_loss():
            self._divergence_marker.write()
            return
        self._keep_last_checkpoint()
        for updates in missing:
            self.training_marker(updates).write()
        if self.may_diverge:
            self._remove_other_checkpoints()

    def evaluate(self, slot: Slot = DEFAULT_SLOT) -> None:
        """Execute the evaluation steps that are not complete.

        Raises:
            Stopped, CommandFailedError: as :meth:`.ChildProcess.run`.
            UserInputError: the training is not complete, or a plugin was edited.
        """
        if self.diverged:
            return
        if not self.is_trained:  # but it may have a checkpoint_best.pt
            raise UserInputError(
                f"{self.name}: its training is not complete. Rerun the command of the experiment "
                "to train it first."
            )
        for step in self.eval_steps:
            if not step.is_complete:
                check_unedited(self.methods)
                step.execute(self.name, slot)

    @property
    def _update_counts(self) -> tuple[int, ...]:
        """Update counts at which a checkpoint is kept. The last one ends the training."""
        return (*self.keep_at, self.updates)

    def _missing_update_counts(self) -> list[int]:
        """Return the update counts that the run has not reached."""
        return [count for count in self._update_counts if not self.training_marker(count).holds()]

    @property
    def _divergence_marker(self) -> CompletionMarker:
        return CompletionMarker(self.folder / "diverged.json", self.request)

    @property
    def request_file(self) -> Path:
        """File with the request of the training in the folder."""
        return self.folder / "request.json"

    @property
    def existing_request(self) -> dict | None:
        """Request of the training in the folder; None without one."""
        return read_json_if_present(self.request_file)

    def _replaced_rate(self) -> str | None:
        """Return the learning rate of the training in the folder, if trials chose another one."""
        existing = self.existing_request
        if self.choice is None or existing is None:
            return None
        others, rate = _without_rate(existing)
        own_others, own_rate = _without_rate(self.request)
        return rate if others == own_others and rate != own_rate else None

    def _set_replaced_training_aside(self) -> None:
        """Rename the folder if it has a training at a rate that trials no longer choose.

        A rate that was added to ``--lr`` may be better. If the training at the new rate was set
        aside earlier, its folder gets its name again, unless the experiment has changed since.
        """
        replaced_rate = self._replaced_rate()
        if replaced_rate is None:
            return
        _, rate = _without_rate(self.request)
        aside = self._unused_folder_aside(replaced_rate)
        os.replace(self.folder, aside)
        print(f"{self.folder.name}: --lr {rate} is better than {replaced_rate}, now in {aside}.")
        pattern = glob.escape(self._name_aside(rate)) + "*"
        for earlier in sorted(self.folder.parent.glob(pattern)):
            if read_json_if_present(earlier / self.request_file.name) == self.request:
                os.replace(earlier, self.folder)
                return

    def _unused_folder_aside(self, rate: str) -> Path:
        """Return a new name for the folder of a training at a rate that is not the best one."""
        name = self._name_aside(rate)
        folder = self.folder.with_name(name)
        numbers = count(2)
        while folder.exists():
            folder = self.folder.with_name(f"{name}-{next(numbers)}")
        return folder

    def _name_aside(self, rate: str) -> str:
        """Return the name of the first folder that is set aside at a rate."""
        return f"{self.folder.name}-replaced-lr{rate}"

    def check_request(self) -> None:
        """Raise UserInputError if the folder has a training with different settings.

        A training at a rate that trials no longer choose is set aside instead.
        """
        if self._replaced_rate() is not None:
            return
        advice = "Choose another folder, or move that one away."
        problem = f"{self.folder} has a training"
        check_settings(self.existing_request, self.request, problem, advice)

    def check_start(self) -> None:
        """Raise UserInputError unless the training can start, or resume."""
        self.check_request()
        for updates in self._missing_update_counts():
            self._check_folder(updates)
        check_unedited(self.methods)

    def _check_folder(self, updates: int) -> None:
        """Check that training to ``updates`` can start, or resume, in the folder of this run."""
        has_request = self.request_file.is_file()
        if not has_request and any(self.folder.glob("checkpoint*.pt")):
            problem = "it has checkpoints of another training"
        elif self.training_marker(updates).path.is_file():  # its request is the same
            checkpoint = self.checkpoint_path(updates).name
            problem = f"{checkpoint} is missing or was changed after the training"
        elif self.saved_updates() > updates and not self.checkpoint_path(updates).is_file():
            problem = f"its last checkpoint is past {updates:,} updates, and none was kept there"
        else:
            return
        raise UserInputError(f"{self.folder}: {problem}. Move that folder away to train again.")

    def _check_update_count(self) -> None:
        """Check that a training command that exited with 0 has made all updates.

        Raises:
            CommandFailedError: it has not.
        """
        reached = self.saved_updates()
        if reached < self.updates:
            raise CommandFailedError(
                f"training {self.name}: fairseq ended after {reached:,} of {self.updates:,} "
                f"updates. See {self.folder / TRAINING_LOG} for the reason.",
                BAD_INPUT,
            )

    def _has_no_final_loss(self) -> bool:
        """Return True if the loss of the last validation was not finite.

        fairseq raises ``DIVERGENCE_ERROR`` only in the update after the one that diverged.
        """
        if not (self.folder / TRAINING_FILE).is_file():  # --validate-after-updates
            return False
        return load_training(self.folder).results[-1].values is None

    def _keep_last_checkpoint(self) -> None:
        """Keep the last checkpoint if it is evaluated under the number of updates."""
        checkpoint = self.checkpoint_path(self.updates)
        if checkpoint.name == kept_checkpoint(self.updates):
            link_or_copy(self.folder / LAST_CHECKPOINT, checkpoint)

    def _remove_other_checkpoints(self) -> None:
        """Remove all checkpoints but the final one, for a trial."""
        final = self.checkpoint_path(self.updates)
        for checkpoint in self.folder.glob("checkpoint*.pt"):
            if checkpoint != final:
                checkpoint.unlink()


@lru_cache(maxsize=1)
def _update_count(path: Path, size: int, mtime_ns: int) -> int:
    """Return the number of updates of a version of a checkpoint, which is read as a whole once."""
    from ..plugin.loading import load_update_count  # imports PyTorch

    return load_update_count(path)


def _without_rate(request: dict) -> tuple[dict, str]:
    """Return the request of a run without its learning rate, and the rate."""
    options = list(request["options"])
    rate = options.pop(options.index("--lr") + 1)
    return {**request, "options": options}, rate
