"""Results file of an evaluation, which is valid after every measurement.

The file may have other results, which are kept. A new result replaces the one with its identity.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path, PurePath

from ..errors import UserInputError
from ..results.case import Case
from ..results.file import Results, load, save
from ..results.provenance import Provenance, merge_provenance, utc_time
from ..results.result import Result, Wanted, is_wanted, replaces
from .evaluator import Evaluator, Measured
from .weights import Weights, identify_weights


def of_checkpoint(results: Iterable[Result], checkpoint: Path, sha256: str | None) -> list[Result]:
    """Return the results of a checkpoint, the oldest first.

    Args:
        checkpoint: path of the checkpoint. Its folder may have been moved.
        sha256: hash of its present contents; None if they are unknown, and do not matter.
    """
    found = []
    for result in results:
        if PurePath(result.checkpoint or "").name != checkpoint.name:
            continue
        if sha256 in (None, result.checkpoint_sha256):
            found.append(result)
    return found


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
        if kinds - {self._evaluator.data.kind}:
            raise UserInputError(
                f"'{self._path}' contains results of kind {min(kinds)}, not "
                f"{self._evaluator.data.kind}. Choose another --out, or remove the file."
            )
        if existing.results and existing.provenance is not None:
            self._earlier_provenance.append(existing.provenance)

    def find(self, checkpoint: Path, case: Case) -> Result | None:
        """Return the result of a case, or None if it has not been measured yet."""
        known = self._of_checkpoint(checkpoint)
        if not known:
            return None
        wanted = self._evaluator.wanted(case, identify_weights(known[-1]))
        for result in known:
            if is_wanted(result, wanted):
                return result
        return None

    def on_same_text(self, checkpoint: Path, case: Case) -> list[Result]:
        """Return the results of a checkpoint that differ from a case in the windows at most."""
        known = self._of_checkpoint(checkpoint)
        if not known:
            return []
        wanted = self._evaluator.wanted(case, identify_weights(known[-1]))
        return [result for result in known if is_wanted(result, _in_same_windows(wanted, result))]

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

    def add(self, checkpoint: Path, weights: Weights, case: Case, measured: Measured) -> None:
        """Add the result of a case, and write the file to disk.

        Args:
            weights: weights of the loaded checkpoint. How they were trained is taken from earlier
                results if there are any: the training record next to the checkpoint may be gone.
        """
        known = self._of_checkpoint(checkpoint)
        if known:
            weights = replace(weights, series=known[-1].series)
        weights = replace(weights, sha256=self._hashes[checkpoint])
        wanted = self._evaluator.wanted(case, weights)
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


def _in_same_windows(wanted: Wanted, result: Result) -> Wanted:
    """Return a wanted result at the length and stride of another one."""
    case = replace(wanted.case, length=result.case.length, stride=result.case.stride)
    return replace(wanted, case=case)
