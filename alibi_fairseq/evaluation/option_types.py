"""Types of the options of an evaluation: splits, lengths, strides, overrides, and devices.

Each raises a ValueError, which says what the text must be. argparse names the option.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..options import float_or_nan, names, positive_integer

if TYPE_CHECKING:
    import torch


#: Requirement of the name of a device.
NO_DEVICE = "must be auto, cpu, or a GPU of this machine, such as cuda:0"


def parse_splits(text: str) -> tuple[str, ...]:
    """Return ``valid,test`` as ("valid", "test")."""
    return tuple(names(text))


def parse_lengths(text: str) -> tuple[int, ...]:
    """Return ``512,1024`` as (512, 1024)."""
    try:
        return tuple(positive_integer(item) for item in names(text))
    except ValueError:
        raise ValueError("must be numbers of tokens separated by commas") from None


def parse_strides(text: str) -> tuple[int | None, ...]:
    """Return ``full,64`` as (None, 64)."""
    try:
        return tuple(parse_stride(item) for item in names(text))
    except ValueError:
        raise ValueError("must be 'full' or numbers of tokens, separated by commas") from None


def parse_stride(text: str) -> int | None:
    """Return None for ``full``, and other strides as a number.

    Raises:
        ValueError: the text is neither.
    """
    return None if text == "full" else positive_integer(text)


def format_items(items: Iterable[object]) -> str:
    """Return ("valid", "test") as ``valid,test``."""
    return ",".join(map(str, items))


def format_stride(stride: int | None) -> str:
    """Return ``full`` for None, and other strides as digits."""
    return "full" if stride is None else str(stride)


def format_strides(strides: Iterable[int | None]) -> str:
    """Return (None, 64) as ``full,64``."""
    return format_items(map(format_stride, strides))


def parse_count(text: str) -> int:
    """Return a number of tokens, which may be 0."""
    if not text.isdecimal():
        raise ValueError("must be a number of tokens of at least 0")
    return int(text)


def parse_gigabytes(text: str) -> float:
    """Return a finite number above 0."""
    number = float_or_nan(text)
    if not 0 < number < math.inf:
        raise ValueError("must be a positive number")
    return number


def parse_overrides(text: str) -> dict:
    """Return the value of a JSON object."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise ValueError("must be a JSON object")
    return value


def parse_device(name: str) -> str:
    """Return the name of a device that exists on this machine."""
    if name not in ("auto", "cpu"):
        find_device(name)
    return name


def find_device(name: str) -> torch.device:
    """Return a device of this machine. ``auto`` is a GPU if there is one.

    Raises:
        ValueError: the device does not exist.
    """
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(NO_DEVICE) from error
    counts = {"cpu": 1, "cuda": torch.cuda.device_count()}
    index = device.index or 0
    # No other type of device is supported.
    if index >= counts.get(device.type, 0):
        raise ValueError(NO_DEVICE)
    return device
