"""Iterables cut by the total size of their items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

Item = TypeVar("Item")


def take_until(
    items: Iterable[Item], most: int, size: Callable[[Any], int] = len, least: int = 1
) -> Iterator[Item]:
    """Yield items until their total size reaches ``most``, but at least ``least`` items.

    Args:
        items: the items.
        most: size to reach.
        size: function that returns the size of an item.
        least: smallest number of items.
    """
    total = 0
    for number, item in enumerate(items, 1):
        yield item
        total += size(item)
        if total >= most and number >= least:
            return


def batches(items: Iterable[Item], most: int, size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Yield lists of consecutive items, each as long as needed for a total size of ``most``."""
    remaining = iter(items)
    while True:
        batch = list(take_until(remaining, most, size))
        if not batch:
            return
        yield batch
