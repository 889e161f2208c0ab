"""Evaluation step of a run: one evaluation of the trained model.

A step is complete if :meth:`..evaluation.sweep.Sweep.find` finds the result of each case in the
results file. The file may also have results of earlier settings, such as a length that was removed:
they stay in the file, but no report shows them.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

from tqdm import tqdm

from ..completion_marker import CompletionMarker
from ..evaluation.config import SweepConfig
from ..evaluation.sweep import Sweep, of_checkpoint
from ..reporting import markdown
from ..results.data_folder import DataFolder
from ..results.file import Results, load
from ..results.result import Result
from ..results.values import ProbeValues, TextValues
from .child_process import ALIBI, ChildProcess
from .slots import Slot

#: File in the folder of a run to which its evaluations append their output.
EVALUATION_LOG = "evaluate.log"


@dataclass(frozen=True)
class EvalStep:
    """Evaluation of a run's checkpoint: one ``alibi-fairseq eval``.

    Attributes:
        checkpoint: path of the checkpoint, in the folder of the run.
        training_marker_path: path of the completion marker of the training up to the checkpoint.
        data: fairseq's data argument of the text or probe to evaluate on.
        results_path: results file, which several steps of a run may share.
        config: settings of the sweep.
        flags: more options of ``alibi-fairseq eval``, such as ``--user-dir``.
        variant: name of the variant of the model, whose options ``config`` overrides. Empty: the
            model as it was trained.
        corpus: name of the corpus, if it is not that of the training.
    """

    checkpoint: Path
    training_marker_path: Path
    data: str
    results_path: Path
    config: SweepConfig
    flags: tuple[str, ...] = ()
    variant: str = ""
    corpus: str = ""

    @property
    def checkpoint_sha256(self) -> str | None:
        """Hash that the checkpoint had when it was trained, or None before."""
        return CompletionMarker(self.training_marker_path).output_sha256

    def command(self, run_name: str) -> ChildProcess:
        """Build the command that evaluates the checkpoint."""
        argv = [*ALIBI, "eval", self.data, "--path", str(self.checkpoint)]
        argv += self.config.flags()
        argv += ["--out", str(self.results_path)]
        argv += self.flags
        title = f"evaluating {run_name}"
        if self.variant:
            title += f" {self.variant}"
        if self.corpus:
            title += f" on {self.corpus}"
        return ChildProcess(title, argv, self.checkpoint.with_name(EVALUATION_LOG))

    @property
    def is_complete(self) -> bool:
        """True if each case has its result of the checkpoint and the data."""
        if self.checkpoint_sha256 is None or not self.results_path.is_file():
            return False
        return self.is_measured(load(self.results_path).results, self.checkpoint_sha256)

    def is_measured(self, results: Iterable[Result], checkpoint_sha256: str | None) -> bool:
        """Return True if results have each case of the checkpoint.

        Args:
            checkpoint_sha256: hash of the checkpoint; None if the run's folder is gone.
        """
        sweep = self.sweep()
        known = of_checkpoint(results, self.checkpoint, checkpoint_sha256)
        return len(sweep.find(known)) == len(sweep.cases)

    def execute(self, run_name: str, slot: Slot) -> None:
        """Evaluate the checkpoint.

        Raises:
            Stopped, CommandFailedError: as :meth:`.ChildProcess.run`.
        """
        self.command(run_name).run(slot)
        summary = _summary(self.load_results().results)
        tqdm.write(f"{run_name}: {summary}", file=sys.stdout)

    def sweep(self) -> Sweep:
        """Return what the evaluation measures. Requires prepared data."""
        return Sweep.of_data(self.config, DataFolder.open(self.data))

    def load_results(self) -> Results:
        """Return the results of the step only, from its results file, with its variant."""
        file = load(self.results_path)
        known = of_checkpoint(file.results, self.checkpoint, self.checkpoint_sha256)
        results = []
        for result in self.sweep().find(known).values():
            reading = replace(result.reading, variant=self.variant)
            results.append(replace(result, reading=reading))
        return replace(file, results=results)


def _summary(results: Iterable[Result]) -> str:
    """Return the results of an evaluation in one line: ``perplexity 47.23 at 128, 43.98 at 512``.

    The accuracy of a probe is the mean over all depths.
    """
    accuracies: dict[int, list[float]] = defaultdict(list)
    perplexities = []
    for result in results:
        case = result.case
        if isinstance(result.values, ProbeValues):
            accuracies[case.length].append(result.values.accuracy)
            continue
        assert isinstance(result.values, TextValues), "the evaluation measured it"
        stride = "" if case.nonoverlapping else f" (S = {case.stride})"
        text = markdown.perplexity(result.values.perplexity)
        perplexities.append(f"{text} at {case.length}{stride}")
    if perplexities:
        return f"perplexity {', '.join(perplexities)}"
    means = [f"{mean(values):.0%} at {length}" for length, values in accuracies.items()]
    return f"accuracy {', '.join(means)}"
