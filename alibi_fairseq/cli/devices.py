"""Devices of a run, from the options ``--gpus`` and ``--cpu``."""

from __future__ import annotations

from ..errors import UserInputError
from ..paper.reproduction import DeviceConfig

NO_GPU = "This machine has no GPU. Pass --cpu N for N processes on the CPU."


def selected_devices(gpus: int | None, cpu: int | None) -> DeviceConfig | None:
    """Return the devices that ``--gpus`` or ``--cpu`` selects; None without either."""
    if gpus is not None and cpu is not None:
        raise UserInputError("--gpus and --cpu are mutually exclusive. Pass one.")
    if gpus is not None:
        return DeviceConfig(gpus)
    if cpu is not None:
        return DeviceConfig(cpu, cpu=True)
    return None
