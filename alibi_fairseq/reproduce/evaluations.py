"""The evaluations of a trained model, and whether results belong to its current checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..results.schema import load_document
from ..workflow import Command, Step
from .data import ALIBI
from .plan import Measurement
from .trainings import Training


def evaluation_step(
    training: Training, measurement: Measurement, age: int, out: Path, log: Path | None
) -> Step:
    """One sweep with ``alibi-fairseq eval``.

    Args:
        age: updates of the checkpoint.
        out: results of this run on this split, for sweeps at all strides.
        log: takes the output; None: it is shown.
    """
    model = training.model(age)
    stride = "full" if measurement.stride is None else str(measurement.stride)
    words = ["eval", training.data.argument, "--path", str(model)]
    words += ["--lengths", ",".join(map(str, measurement.lengths)), "--stride", stride]
    words += ["--subset", measurement.subset, "--out", str(out)]
    words += ["--device", "cpu"] if training.machine.cpu else []

    def stale() -> bool:
        sha256 = training.stamp(age).output_sha256
        return any(cell["checkpoint_sha256"] != sha256 for cell in cells_of(out, model))

    def done() -> bool:
        measured = {
            (cell["subset"], cell["length"], cell["stride"]) for cell in cells_of(out, model)
        }
        return not stale() and measured >= set(points(measurement))

    def begin() -> None:
        if stale():  # of an older checkpoint
            out.unlink()

    return Step(
        title=f"evaluating {training.recipe.path}",
        work=Command([*ALIBI, *words], log),
        done=done,
        begin=begin,
    )


def points(measurement: Measurement) -> Iterator[tuple[str, int, int]]:
    """Split, length and stride of each cell."""
    for length in measurement.lengths:
        yield measurement.subset, length, measurement.stride or length


def cells_of(out: Path, model: Path) -> list[dict]:
    """The cells of a checkpoint in a results file, which need not exist."""
    if not out.is_file():
        return []
    cells = load_document(out)["cells"]
    return [cell for cell in cells if Path(cell["checkpoint"]).resolve() == model.resolve()]
