"""Results of an evaluation: those that a checkpoint should have, and the file that keeps them.

The evaluation and the runs of an experiment both ask :func:`find_wanted` what is measured. The file
is valid after every measurement, and may have other results, which are kept. A new result replaces
the one with its identity.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path, PurePath

from ..errors import UserInputError
from ..positions.plugin_sources import plugin_sha256
from ..results.case import Case
from ..results.file import Results, load, save
from ..results.provenance import Provenance, merge_provenance, utc_time
from ..results.result import Result, Wanted, is_wanted, replaces
from ..results.series import Reading, Series
from ..results.settings import selection
from .cases import EvaluatedData
from .config import SweepConfig
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


def find_wanted(
    known: Sequence[Result], config: SweepConfig, data: EvaluatedData, cases: Iterable[Case]
) -> dict[Case, Result]:
    """Return the results that an evaluation should have and has, by case.

    Args:
        known: results of one checkpoint. The last one records how it was trained.
    """
    if not known:
        return {}
    weights = identify_weights(known[-1])
    wanted = {case: wanted_result(config, data, case, weights) for case in dict.fromkeys(cases)}
    found = {}
    for result in known:
        want = wanted.get(result.case)
        if want is not None and is_wanted(result, want):
            found[result.case] = result
    return found


def wanted_result(config: SweepConfig, data: EvaluatedData, case: Case, weights: Weights) -> Wanted:
    """Return the result of a case that an evaluation of a checkpoint should have.

    The losses of documents are wanted if the evaluation knows where they begin, even if the case
    doesn't depend on it.

    Args:
        case: one of :func:`.cases.list_cases`.
    """
    settings = weights.series.settings
    overrides = dict(config.overrides or {})
    plugin = plugin_sha256(_method_names(weights.series, overrides))
    if plugin != settings.get("plugin"):  # edited since, or another method
        overrides["plugin"] = plugin
    reading = Reading(
        at=weights.at,
        selection=selection(settings) if weights.at == "best" else None,
        overrides=overrides,
        precision=config.precision,
        variant=weights.variant,
    )
    documents = data.splits[case.split].documents
    return Wanted(
        series=weights.series,
        seed=weights.seed,
        reading=reading,
        case=case,
        details=frozenset() if documents is None else frozenset({"documents"}),
        documents=documents,
        checkpoint_sha256=weights.sha256,
    )


def _method_names(series: Series, overrides: dict) -> Sequence[str]:
    """Return the position methods of the layers at evaluation."""
    if "position_method" in overrides:
        return str(overrides["position_method"]).split(",")
    return series.method.names


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

    def find(self, checkpoint: Path) -> dict[Case, Result]:
        """Return the results of a checkpoint that have been measured, by case."""
        return self._find(self._of_checkpoint(checkpoint), self._evaluator.cases)

    def on_same_text(self, checkpoint: Path, case: Case) -> list[Result]:
        """Return the results of a checkpoint that differ from a case in the windows at most."""
        known = self._of_checkpoint(checkpoint)
        cases = []
        for result in known:
            windows = result.case
            cases.append(replace(case, length=windows.length, stride=windows.stride))
        return list(self._find(known, cases).values())

    def _find(self, known: Sequence[Result], cases: Iterable[Case]) -> dict[Case, Result]:
        """Return the results that the evaluation wants."""
        return find_wanted(known, self._evaluator.config, self._evaluator.data, cases)

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
        wanted = wanted_result(self._evaluator.config, self._evaluator.data, case, weights)
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
