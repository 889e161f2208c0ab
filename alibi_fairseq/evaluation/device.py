"""Device on which models are evaluated, and the precision there."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

#: Requirement of the name of a device.
NO_DEVICE = "must be auto, cpu, or a GPU of this machine, such as cuda:0"


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


def find_dtype(precision: str) -> torch.dtype:
    """Return the type of weights and activations in ``fp32``, ``bf16``, or ``fp16``."""
    import torch

    return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
