"""Position in the data of an epoch, when a training run resumes with other batches per update.

fairseq saves how many batches each process has read in the epoch. Process p of P reads the batches
p, p + P, p + 2P … of the shuffled epoch, so that the same number is another position with another
number of processes. Some data would be read twice, or not at all (not reported upstream).
"""

from __future__ import annotations

import logging

from ..errors import UserInputError
from ..results.series import Series, read_series
from ..results.settings import canonical

logger = logging.getLogger(__name__)

#: Options that determine the batches of an epoch, and their order.
_BATCH_OPTIONS = (
    "task",
    "tokens_per_sample",
    "sample_break_mode",
    "max_tokens",
    "batch_size",
    "required_batch_size_multiple",
    "seed",
)


def adapt_position(position: dict, saved: dict, current: dict, path: str) -> None:
    """Convert the position of a checkpoint to the processes and the batches of this command.

    Args:
        position: state of fairseq's iterator, which is changed.
        saved: options of the checkpoint.
        current: options of this command.
        path: path of the checkpoint.

    Raises:
        UserInputError: the epoch has different batches than before, or another order of them.
    """
    batches_per_process = position.get("iterations_in_epoch", 0)
    if batches_per_process == 0:
        return
    if "plan" in position:
        # All processes read all batches. SegmentIterator checks the rows of the text.
        processes_before = 1
        processes = 1
        _check_same_batches(saved, current, path, ["task"])
    else:
        processes_before = saved.get("distributed_world_size", 1)
        processes = current.get("distributed_world_size", 1)
        compared = list(_BATCH_OPTIONS)
        if current.get("grouped_shuffling"):  # shuffles groups of one batch per process
            compared.append("distributed_world_size")
        _check_same_batches(saved, current, path, compared)
    batches = batches_per_process * processes_before
    passes = _passes_per_update(current, position["epoch"])
    updates = batches // (processes * passes)
    position["iterations_in_epoch"] = updates * passes
    repeated = batches - updates * passes * processes
    if repeated:
        logger.warning(
            f"{path}: {repeated} of the {batches} batches that were read in this epoch are read "
            f"again, because {batches} is no multiple of {processes * passes} batches per update"
        )


def check_same_text(saved: dict, series: Series, data: str) -> None:
    """Compare the training data with those of a checkpoint from the middle of an epoch.

    Args:
        saved: series in the checkpoint.
        series: series of this training.
        data: fairseq's data argument.

    Raises:
        UserInputError: they differ, so that some text would be read twice, or not at all.
    """
    before = canonical(read_series(saved, "the checkpoint").settings)
    now = canonical(series.settings)
    for name in ("data.train", "data.train_lines"):
        hashes = (before.get(name), now.get(name))
        if None not in hashes and hashes[0] != hashes[1]:
            raise UserInputError(
                f"The checkpoint was saved mid-epoch with other training data than {data}. Resume "
                "with the old data until the epoch ends, or pass --reset-dataloader once to start "
                "over with the first epoch's data."
            )


def _check_same_batches(saved: dict, current: dict, path: str, compared: list[str]) -> None:
    """Raise UserInputError if the options make other batches, or shuffle them otherwise."""
    for option in compared:
        before = saved.get(option, current.get(option))
        now = current.get(option)
        if before == now:
            continue
        flag = "--" + option.replace("_", "-")
        processes = saved.get("distributed_world_size", 1)
        raise UserInputError(
            f"{path} was saved mid-epoch with {flag} {before} on {processes} GPUs or processes. "
            f"{flag} {now} would change the batches. Resume with the old value until the epoch "
            "ends, or pass --reset-dataloader once to start over with the first epoch's data."
        )


def _passes_per_update(options: dict, epoch: int) -> int:
    """Return ``--update-freq`` of an epoch."""
    frequencies = options.get("update_freq") or [1]
    return frequencies[min(epoch, len(frequencies)) - 1]
