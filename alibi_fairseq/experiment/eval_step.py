"""Evaluation step of a run: one evaluation of the trained model.

A step is complete if the results file has the wanted result of each case: none is missing by the
rule of :func:`..results.result.missing`. Other results in the file are kept, and not reported.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

from tqdm import tqdm

from ..evaluation.cases import identify_data, list_cases
from ..evaluation.config import SweepConfig
from ..evaluation.sweep_results import of_checkpoint
from ..evaluation.wanted import wanted_result
from ..evaluation.weights import Weights, identify_weights
from ..reporting import markdown
from ..results.file import Results, load
from ..results.result import ProbeValues, Result, TextValues, Wanted, is_wanted, missing
from .child_process import ALIBI, ChildProcess
from .execution import Slot

#: File in the folder of a run to which its evaluations append their output.
EVALUATION_LOG = "evaluate.log"


@dataclass(frozen=True)
class TrainedModel:
    """Checkpoint of a run, as an evaluation step takes it.

    Attributes:
        name: name of the run.
        data: fairseq's data argument of the training.
        checkpoint: path of the checkpoint. Its folder is that of the run.
        checkpoint_sha256: hash that the checkpoint had when it was trained, or None before.
    """

    name: str
    data: str
    checkpoint: Path
    checkpoint_sha256: str | None

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        return self.checkpoint.parent


@dataclass(frozen=True)
class EvalStep:
    """Evaluation of a trained model: one ``alibi-fairseq eval``.

    Attributes:
        results_path: results file, which several steps of a run may share.
        config: settings of the sweep.
        updates: update count of the checkpoint. None: the checkpoint of the whole training.
        flags: more options of ``alibi-fairseq eval``, such as ``--user-dir``.
        name: name that distinguishes steps of a run with the same splits and strides.
        corpus: name of the corpus, if it is not that of the training.
        data: folder of its binary data.
    """

    results_path: Path
    config: SweepConfig
    updates: int | None = None
    flags: tuple[str, ...] = ()
    name: str = ""
    corpus: str = ""
    data: str = ""

    @property
    def is_variant(self) -> bool:
        """True if the step overrides options of the model that the run was trained with."""
        return bool(self.name) and not self.corpus

    def evaluated_data(self, model: TrainedModel) -> str:
        """Return fairseq's data argument of the text to evaluate."""
        return self.data or model.data

    def command(self, model: TrainedModel) -> ChildProcess:
        """Build the command that evaluates a model."""
        argv = [*ALIBI, "eval", self.evaluated_data(model), "--path", str(model.checkpoint)]
        argv += self.config.flags()
        argv += ["--out", str(self.results_path)]
        argv += self.flags
        title = f"evaluating {model.name}"
        if self.name:
            title += f" {self.name}"
        return ChildProcess(title, argv, model.folder / EVALUATION_LOG)

    def is_complete(self, model: TrainedModel) -> bool:
        """Return True if no result is missing that belongs to the model's checkpoint and data."""
        if model.checkpoint_sha256 is None or not self.results_path.is_file():
            return False
        results = self._known(model, load(self.results_path).results)
        return bool(results) and not missing(
            self.wanted(model, identify_weights(results[-1])), results
        )

    def execute(self, model: TrainedModel, slot: Slot) -> None:
        """Evaluate a model.

        Raises:
            Stopped, CommandFailedError: as :meth:`.ChildProcess.run`.
        """
        self.command(model).run(slot)
        summary = _summary(self.load_results(model).results)
        tqdm.write(f"{model.name}: {summary}", file=sys.stdout)

    def wanted(self, model: TrainedModel, weights: Weights) -> list[Wanted]:
        """Return the results that the step should have."""
        data = identify_data(self.evaluated_data(model), self.config)
        cases = list_cases(self.config, data)
        return [wanted_result(self.config, data, case, weights) for case in cases]

    def _known(self, model: TrainedModel, results: Iterable[Result]) -> list[Result]:
        """Return the results of the model's checkpoint."""
        return of_checkpoint(results, model.checkpoint, model.checkpoint_sha256)

    def load_results(self, model: TrainedModel) -> Results:
        """Return the results of the step only, from its results file.

        The name of a step with overridden options names their variant.
        """
        file = load(self.results_path)
        known = self._known(model, file.results)
        wanted = self.wanted(model, identify_weights(known[-1])) if known else []
        results = []
        for result in known:
            if any(is_wanted(result, want) for want in wanted):
                variant = self.name if self.is_variant else ""
                reading = replace(result.reading, variant=variant)
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
