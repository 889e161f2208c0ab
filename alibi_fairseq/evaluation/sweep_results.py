"""Results of an evaluation, and the file that keeps them.

The file is valid after every measurement. It may have results of other evaluations, which are kept.
A new result replaces the one with its identity.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from ..errors import UserInputError
from ..results.case import Case
from ..results.file import Results, load, save
from ..results.provenance import Provenance, merge_provenance, utc_time
from ..results.result import Result, replaces
from .evaluator import Evaluator, Measured
from .sweep import of_checkpoint
from .weights_identity import WeightsIdentity


class SweepResults:
    """Results of an evaluation: those in its output file, if that exists, and new ones.

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
        if kinds - {self._evaluator.sweep.kind}:
            raise UserInputError(
                f"'{self._path}' contains results of kind {min(kinds)}, not "
                f"{self._evaluator.sweep.kind}. Choose another --out, or remove the file."
            )
        if existing.results and existing.provenance is not None:
            self._earlier_provenance.append(existing.provenance)

    def find(self, checkpoint: Path) -> dict[Case, Result]:
        """Return the results of a checkpoint that have been measured, by case."""
        return self._evaluator.sweep.find(self._of_checkpoint(checkpoint))

    def on_same_text(self, checkpoint: Path, case: Case) -> list[Result]:
        """Return the results of a checkpoint on the tokens of a case, in any windows."""
        known = self._of_checkpoint(checkpoint)
        cases = []
        for result in known:
            windows = result.case
            cases.append(replace(case, length=windows.length, stride=windows.stride))
        return list(self._evaluator.sweep.find(known, cases).values())

    def _of_checkpoint(self, checkpoint: Path) -> list[Result]:
        """Return the results of a checkpoint with its present contents."""
        return of_checkpoint(self._results, checkpoint, self._hashes[checkpoint])

    def check_unchanged(self, checkpoint: Path, sha256: str) -> None:
        """Check that a checkpoint still has the contents under whose hash it is recorded.

        Args:
            checkpoint: a checkpoint of the sweep.
            sha256: its present hash, computed after loading it.

        Raises:
            UserInputError: it has different contents.
        """
        if sha256 != self._hashes[checkpoint]:
            raise UserInputError(
                f"'{checkpoint}' was replaced during the evaluation. Evaluate a copy, or wait for "
                "the end of the training."
            )

    def add(
        self, checkpoint: Path, weights: WeightsIdentity, case: Case, measured: Measured
    ) -> None:
        """Add the result of a case, and write the file to disk.

        Args:
            weights: identity of the loaded weights. How they were trained is taken from earlier
                results if there are any: the training record next to the checkpoint may be gone.
        """
        known = self._of_checkpoint(checkpoint)
        if known:
            weights = replace(weights, series=known[-1].series)
        weights = replace(weights, sha256=self._hashes[checkpoint])
        wanted = self._evaluator.sweep.wanted(case, weights)
        new = Result(
            series=wanted.series,
            reading=wanted.reading,
            seed=wanted.seed,
            case=wanted.case,
            values=measured.values,
            checkpoint=str(checkpoint),
            checkpoint_sha256=wanted.checkpoint_sha256,
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
