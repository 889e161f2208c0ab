"""Evaluation sweep: every combination of checkpoint, split, length, and stride is measured once.

Each measurement is written to disk before the next one starts. An interrupted sweep resumes if it is
started again with the same output file.
"""

from __future__ import annotations

from itertools import groupby, product
from operator import itemgetter
from pathlib import Path

from ..data.probes import SETTINGS_FILE
from ..data.worker_pool import progress
from ..files import locked
from ..results.data_folder import DataFolder
from .checkpoint import load_checkpoint
from .config import SweepConfig, find_device
from .probe_cases import ProbeCases
from .sweep_results import SweepResults
from .text_cases import TextCases


def run_sweep(data: Path, checkpoints: list[Path], config: SweepConfig, out: Path) -> list[dict]:
    """Make the measurements that are not in the output file yet.

    Args:
        data: folder of fairseq's binary data.
        checkpoints: checkpoints to evaluate.
        config: settings of the sweep.
        out: results file.

    Returns:
        The result records of all measurements, including those of earlier sweeps.

    Raises:
        UserInputError: a measurement is impossible.
    """
    # The lock also detects an output that cannot be written, before anything is measured.
    lock = out.with_name(f".{out.name}.lock")
    with locked(lock, f"--out {out}", "evaluation"):
        folder = DataFolder.open(data)
        cases: TextCases | ProbeCases
        if (folder.path / SETTINGS_FILE).is_file():
            cases = ProbeCases(config, folder)
        else:
            cases = TextCases(config, folder)
        results = SweepResults(out, checkpoints, config, cases, folder)
        measurements = list(product(dict.fromkeys(checkpoints), cases.cases))
        pending = [
            (checkpoint, case)
            for checkpoint, case in measurements
            if results.find(checkpoint, case) is None
        ]
        _measure(pending, config, cases, folder, results)
        records = [results.find(checkpoint, case) for checkpoint, case in measurements]
        return [record for record in records if record is not None]


def _measure(
    pending: list[tuple[Path, dict]],
    config: SweepConfig,
    cases: TextCases | ProbeCases,
    folder: DataFolder,
    results: SweepResults,
) -> None:
    """Measure cases of checkpoints, each of which is loaded once, and add them to the results."""
    total = sum(cases.inputs(case) for _, case in pending)
    with progress(total, "evaluating", "tok", disable=not pending) as bar:
        for checkpoint, group in groupby(pending, key=itemgetter(0)):
            model = load_checkpoint(
                checkpoint,
                folder.path,
                find_device(config.device),
                config.precision,
                config.overrides,
            )
            for _, case in group:
                settings = ", ".join(f"{key} {value}" for key, value in case.items())
                bar.set_description(f"{'/'.join(checkpoint.parts[-2:])} {settings}")
                earlier = results.of_checkpoint(checkpoint)
                measured = cases.measure(model, case, earlier, bar.update)
                results.add(checkpoint, {**model.facts, **case, **measured})
