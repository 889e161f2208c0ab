"""Measurement of a sweep: each of its cases once, on every checkpoint.

The results file is written to disk after each measurement, so an interrupted sweep resumes if it is
started again with the same file. Results of other evaluations in the file are kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ..data.probe_data import PROBE_FILE
from ..errors import UserInputError
from ..files import locked, sha256_file
from ..progress_bar import make_progress_bar
from ..results.case import Case
from ..results.data_folder import DataFolder
from ..results.file import Results, load, save
from ..results.file_names import lock_path
from ..results.provenance import Provenance, collect_provenance, merge_provenance, utc_time
from ..results.result import Result, replaces
from .checkpoint import LoadedModel, load_checkpoint
from .config import SweepConfig
from .device import find_device
from .evaluator import Evaluator, Measured
from .probe_evaluator import ProbeEvaluator
from .split_identity import probe_splits
from .sweep import WeightsIdentity, of_checkpoint
from .text_evaluator import TextEvaluator


def run_sweep(data: Path, checkpoints: list[Path], config: SweepConfig, out: Path) -> list[Result]:
    """Make the measurements that are not in the output file yet.

    Args:
        data: folder of fairseq's binary data.
        checkpoints: checkpoints to evaluate.
        config: settings of the sweep.
        out: results file.

    Returns:
        The results of all measurements, including earlier sweeps.

    Raises:
        UserInputError: a measurement is impossible, or a checkpoint is replaced meanwhile.
    """
    # The lock also detects an output that cannot be written, before anything is measured.
    with locked(lock_path(out), f"--out {out}", "evaluation"):
        folder = DataFolder.open(data)
        evaluator: Evaluator
        splits: Sequence[str]
        if (folder.path / PROBE_FILE).is_file():
            evaluator = ProbeEvaluator(config, folder)
            splits = probe_splits(folder.path)
        else:
            evaluator = TextEvaluator.of_folder(config, folder)
            splits = sorted(config.splits)
        provenance = collect_provenance(
            seconds=0, precision=config.precision, data=folder.path, splits=splits
        )
        hashes = {path: sha256_file(path) for path in checkpoints}
        results = SweepResults(out, hashes, evaluator, provenance)

        def load_model(checkpoint: Path) -> LoadedModel:
            model = load_checkpoint(
                checkpoint,
                folder.path,
                find_device(config.device),
                config.precision,
                config.overrides,
            )
            # Training may replace the file while other checkpoints are measured.
            check_unchanged(checkpoint, hashes[checkpoint], sha256_file(checkpoint))
            return model

        return measure_cases(evaluator, results, load_model)


def measure_cases(
    evaluator: Evaluator, results: SweepResults, load_model: Callable[[Path], LoadedModel]
) -> list[Result]:
    """Measure the cases of checkpoints that are not in the results, and add them.

    Args:
        evaluator: evaluator of the sweep.
        results: results of the sweep.
        load_model: loads a checkpoint. It is called once for each that has a missing case.

    Returns:
        The results of all cases.

    Raises:
        UserInputError: a model cannot compute a case. None of its cases is measured then.
    """
    missing: dict[Path, list[Case]] = {}
    total = 0
    for checkpoint in results.checkpoints:
        known = results.find(checkpoint)
        missing_cases = [case for case in evaluator.sweep.cases if case not in known]
        if missing_cases:
            missing[checkpoint] = missing_cases
            total += sum(evaluator.num_inputs(case) for case in missing_cases)
    if not missing:
        print("All measurements already complete. Nothing was evaluated.\n")
    with make_progress_bar(total, "evaluating", "tok", disable=not missing) as bar:
        for checkpoint, missing_cases in missing.items():
            model = load_model(checkpoint)
            for case in missing_cases:
                model.check_length(case.length)
                model.check_stride(case.length, case.stride)
            for case in missing_cases:
                bar.set_description(f"{'/'.join(checkpoint.parts[-2:])} {_describe(case)}")
                measured = evaluator.measure(model, case, bar.update)
                results.add(checkpoint, model.weights, case, measured)
    found = []
    for checkpoint in results.checkpoints:
        known = results.find(checkpoint)
        found += [known[case] for case in evaluator.sweep.cases if case in known]
    return found


class SweepResults:
    """Results of a sweep: those in its output file, if that exists, and new ones.

    A new result replaces the one with its identity.

    Args:
        path: results file.
        hashes: hash of each checkpoint, which identifies its contents.
        evaluator: evaluator of the sweep.
        provenance: provenance of new results.

    Raises:
        UserInputError: the file is not a results file, or has results of another kind.
    """

    def __init__(self, path: Path, hashes: dict[Path, str], evaluator: Evaluator, provenance: dict):
        self._path = path
        self._evaluator = evaluator
        self._began = time.monotonic()
        self._hashes = hashes
        self._provenance = Provenance(**provenance)
        self._results: list[Result] = []
        self._earlier_provenance: list[Provenance] = []
        if path.exists():
            self._read_existing()

    def _read_existing(self) -> None:
        """Read the results that the file has already."""
        existing = load(self._path)
        self._results += existing.results
        kinds: set[str] = {result.case.kind for result in existing.results}
        if existing.benchmarks:
            kinds.add("benchmark")
        others = kinds - {self._evaluator.sweep.kind}
        if others:
            raise UserInputError(
                f"'{self._path}' contains results of kind {min(others)}, not "
                f"{self._evaluator.sweep.kind}. Choose another --out, or remove the file."
            )
        # A table of accuracies averages whatever has the same model, length, and depth.
        probes = {case.text for case in self._evaluator.sweep.cases if case.kind == "probe"}
        if probes and any(result.case.text not in probes for result in existing.results):
            raise UserInputError(
                f"'{self._path}' contains results of another probe. Choose another --out, or "
                "remove the file."
            )
        if existing.results and existing.provenance is not None:
            self._earlier_provenance.append(existing.provenance)

    @property
    def checkpoints(self) -> list[Path]:
        """The checkpoints of the sweep, each once."""
        return list(self._hashes)

    def find(self, checkpoint: Path) -> dict[Case, Result]:
        """Return the results of a checkpoint that have been measured, by case."""
        return self._evaluator.sweep.find(self._of_checkpoint(checkpoint))

    def add(
        self, checkpoint: Path, weights: WeightsIdentity, case: Case, measured: Measured
    ) -> None:
        """Add the result of a case, and write the file to disk.

        Args:
            weights: identity of the loaded weights. Earlier results of the checkpoint say how they
                were trained, because the training record next to it may be gone since then.
        """
        known = self._of_checkpoint(checkpoint)
        if known:
            weights = replace(weights, series=known[-1].series)
        identity = self._evaluator.sweep.result_identity(case, weights)
        new = Result(
            series=identity.series,
            reading=identity.reading,
            seed=identity.seed,
            case=case,
            values=measured.values,
            checkpoint=str(checkpoint),
            checkpoint_sha256=self._hashes[checkpoint],
            updates=weights.updates,
            cost=measured.cost,
            text=self._evaluator.text,
        )
        self._results = [result for result in self._results if not replaces(new, result)]
        self._results.append(new)
        self._provenance.date = utc_time()
        self._provenance.seconds = round(time.monotonic() - self._began, 3)
        provenance = merge_provenance([*self._earlier_provenance, self._provenance])
        save(Results(self._results, provenance), self._path)

    def _of_checkpoint(self, checkpoint: Path) -> list[Result]:
        """Return the results of a checkpoint with its present contents."""
        return of_checkpoint(self._results, checkpoint, self._hashes[checkpoint])


def check_unchanged(checkpoint: Path, before: str, after: str) -> None:
    """Check that a checkpoint still has the contents under whose hash it is recorded.

    Args:
        checkpoint: path of the checkpoint, or of the folder of a model.
        before: the hash under which it is recorded, computed before loading it.
        after: its hash, computed after loading it.

    Raises:
        UserInputError: it has different contents.
    """
    if after != before:
        raise UserInputError(
            f"'{checkpoint}' was replaced during the evaluation. Evaluate a copy, or wait for the "
            "end of the training."
        )


def _describe(case: Case) -> str:
    """Return a case in words, for the progress bar."""
    if case.depth is not None:
        return f"length {case.length}, depth {case.depth}"
    return f"split {case.split}, length {case.length}, stride {case.stride}"
