"""Measurement of a sweep: each of its cases once, on every checkpoint.

Each measurement is written to disk before the next one starts. An interrupted sweep resumes if it
is started again with the same output file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ..data.probe_data import PROBE_FILE
from ..files import locked, sha256_file
from ..progress_bar import make_progress_bar
from ..results.case import Case
from ..results.data_folder import DataFolder
from ..results.file_names import lock_path
from ..results.provenance import collect_provenance
from ..results.result import Result
from .checkpoint import LoadedModel, load_checkpoint
from .config import SweepConfig
from .device import find_device
from .evaluator import Evaluator
from .probe_evaluator import ProbeEvaluator
from .split_identity import probe_splits
from .sweep_results import SweepResults
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
            seconds=0, precision=config.precision, data=folder.path, subsets=splits
        )
        hashes = {path: sha256_file(path) for path in checkpoints}
        results = SweepResults(out, hashes, evaluator, provenance)

        def load(checkpoint: Path) -> LoadedModel:
            model = load_checkpoint(
                checkpoint,
                folder.path,
                find_device(config.device),
                config.precision,
                config.overrides,
            )
            # Training may replace the file while other checkpoints are measured.
            results.check_unchanged(checkpoint, sha256_file(checkpoint))
            return model

        return measure_cases(checkpoints, evaluator, results, load)


def measure_cases(
    checkpoints: list[Path],
    evaluator: Evaluator,
    results: SweepResults,
    load: Callable[[Path], LoadedModel],
) -> list[Result]:
    """Measure the cases of checkpoints that are not in the results, and add them.

    Args:
        checkpoints: checkpoints to evaluate.
        evaluator: evaluator of the sweep.
        results: results of the sweep.
        load: loads a checkpoint. It is called once for each checkpoint that has a missing case.

    Returns:
        The results of all cases.

    Raises:
        UserInputError: a model cannot compute a case. None of its cases is measured then.
    """
    missing: dict[Path, list[Case]] = {}
    total = 0
    for checkpoint in dict.fromkeys(checkpoints):
        known = results.find(checkpoint)
        missing_cases = [case for case in evaluator.sweep.cases if case not in known]
        if missing_cases:
            missing[checkpoint] = missing_cases
            total += sum(evaluator.num_inputs(case) for case in missing_cases)
    if not missing:
        print("All measurements already complete. Nothing was evaluated.\n")
    with make_progress_bar(total, "evaluating", "tok", disable=not missing) as bar:
        for checkpoint, missing_cases in missing.items():
            model = load(checkpoint)
            for case in missing_cases:
                evaluator.check(model, case)
            for case in missing_cases:
                bar.set_description(f"{'/'.join(checkpoint.parts[-2:])} {_describe(case)}")
                earlier = results.on_same_text(checkpoint, case)
                measured = evaluator.measure(model, case, earlier, bar.update)
                results.add(checkpoint, model.weights, case, measured)
    found = []
    for checkpoint in dict.fromkeys(checkpoints):
        known = results.find(checkpoint)
        found += [known[case] for case in evaluator.sweep.cases if case in known]
    return found


def _describe(case: Case) -> str:
    """Return a case in words, for the progress bar."""
    if case.depth is not None:
        return f"length {case.length}, depth {case.depth}"
    return f"split {case.split}, length {case.length}, stride {case.stride}"
