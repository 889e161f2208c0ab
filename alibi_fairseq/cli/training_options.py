"""Options that this package adds to fairseq's trainings."""

from __future__ import annotations

from dataclasses import dataclass

from ..options import names, option, positive_integer


def update_counts(text: str) -> list[int]:
    """Return ``1000,2000`` as [1000, 2000].

    Raises:
        ValueError: an item is no number of updates.
    """
    try:
        return [positive_integer(item) for item in names(text)]
    except ValueError:
        raise ValueError("must be numbers of updates separated by commas") from None


@dataclass
class OwnTrainingOptions:
    """Options that this package adds to all trainings."""

    keep_at: list[int] = option(
        "also save after these numbers of updates, and keep each as checkpoint_N.pt",
        (),
        type=update_counts,
        metavar="N,…",
    )
