"""Provenance of a results file: command, code, data, versions, machine, seed, and time."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from ..errors import PACKAGE
from .data_hashes import data_sha256, dictionary_sha256
from .json_types import (
    Date,
    JsonObject,
    NonEmptyStr,
    NonNegativeInt,
    NotNegative,
    Positive,
    PositiveCount,
    Sha256,
)

_PACKAGE_FOLDER = Path(__file__).resolve().parent.parent

_FAIRSEQ_DISTRIBUTIONS = ("fairseq-fixed", "fairseq")


class Hardware(JsonObject):
    """Machine of a measurement. None means unknown, or no GPU.

    Attributes:
        cpu: name of the processor.
        cores: number of cores.
        memory_gb: memory in 10⁹ bytes.
        gpu: name of the GPUs, and their number if there are several.
        cpu_family, cpu_model: numbers that tell processors of one name apart.
    """

    cpu: NonEmptyStr | None
    cores: PositiveCount | None
    memory_gb: Positive | None
    gpu: NonEmptyStr | None
    cpu_family: str | None = None
    cpu_model: str | None = None


class Provenance(JsonObject):
    """Origin of results. None means unknown, or, in a merged file, that its parts differ.

    Attributes:
        command: command line; for a merged file, one command per line.
        git_commit: commit of the clone; None for an installed copy. For a run, the commit at its
            last start.
        git_clean: True if nothing outside ``results/`` differed from the commit.
        data_sha256: hash of the ``.idx`` and ``.bin`` files of the splits, or of the text files.
        dictionary_sha256: hash of the symbols in their order.
        versions: of Python and of the libraries that a result may depend on.
        hardware: the machine.
        threads: number of PyTorch's threads.
        precision: precision of the process.
        seed: random seed of the process.
        date: end of the measurement, in UTC.
        seconds: its duration.
        parts: provenance of each of the files that were merged.
    """

    command: NonEmptyStr
    git_commit: NonEmptyStr | None
    git_clean: bool | None
    data_sha256: Sha256 | None
    dictionary_sha256: Sha256 | None
    versions: dict[str, NonEmptyStr | None]
    hardware: Hardware
    threads: PositiveCount | None
    precision: NonEmptyStr | None
    seed: NonNegativeInt | None
    date: Date
    seconds: NotNegative
    parts: list[Provenance] = []


def collect_provenance(
    *,
    seconds: float,
    precision: str | None = "fp32",
    seed: int | None = None,
    data: str | os.PathLike | None = None,
    splits: Sequence[str] = (),
    command: list[str] | None = None,
    git: dict | None = None,
) -> dict:
    """Return the ``provenance`` object of a results file, for work that has just been done.

    Args:
        seconds: duration of the work.
        precision: ``fp32``, ``bf16``, or ``fp16``.
        seed: random seed of the work.
        data: fairseq's binary data folder. Its dictionary and the given ``splits`` are hashed.
        splits: names of the splits of ``data`` that were used.
        command: command that was run (default: the command line of this process).
        git: :func:`git_state` when the work began. None: now, which is right for short work only,
            because the checkout can change in the meantime.
    """
    import torch

    return {
        "command": shlex.join(command if command is not None else own_command()),
        **(git_state() if git is None else git),
        "data_sha256": None if data is None else data_sha256(data, splits),
        "dictionary_sha256": None if data is None else dictionary_sha256(data),
        "versions": _versions(),
        "hardware": _hardware(),
        "threads": torch.get_num_threads(),
        "precision": precision,
        "seed": seed,
        "date": utc_time(),
        "seconds": round(float(seconds), 3),
    }


def utc_time() -> str:
    """Return the current time in UTC, as in ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def own_command() -> list[str]:
    """Return this process's command line as a user would type it."""
    program = Path(sys.argv[0])
    name = program.name
    if name == "__main__.py":  # python -m package
        name = program.parent.name.replace("_", "-")
    arguments = sys.argv[1:]
    # "alibi-fairseq train" adds an option that passes this package to fairseq.
    if " " in name and arguments[-2:] == ["--user-dir", str(_PACKAGE_FOLDER)]:
        arguments = arguments[:-2]
    words = name.split()
    if not words:  # an interactive session
        words = ["python"]
    return [*words, *arguments]


def git_state() -> dict:
    """Return the commit of the checkout this package runs from; null for an installed copy.

    Its keys are ``git_commit`` and ``git_clean``.

    Clean means that no tracked file outside ``results/``, which runs write to, differs from the
    commit, and that the package has no other files. A user's own files elsewhere do not count.
    """
    try:
        # This fails for an installed copy inside another repository, which does not track the file.
        _git("ls-files", "--error-unmatch", "__init__.py")
        changed = _git(
            "status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)results"
        )
        changed_in_package = _git("status", "--porcelain", "--", ".")
        commit = _git("rev-parse", "HEAD")
    except (OSError, subprocess.SubprocessError):
        return {"git_commit": None, "git_clean": None}
    return {"git_commit": commit, "git_clean": not changed and not changed_in_package}


def _git(*arguments: str) -> str:
    """Return the output of a git command in the folder of the package."""
    command = ["git", "-C", str(_PACKAGE_FOLDER), *arguments]
    return subprocess.check_output(
        command, stderr=subprocess.DEVNULL, text=True, timeout=60
    ).strip()


def installed_version(distribution: str) -> str | None:
    """Return the installed version of a distribution, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _versions() -> dict:
    """Return the versions that a result may depend on."""
    return {
        "python": platform.python_version(),
        "torch": installed_version("torch"),
        "fairseq": _fairseq_version(),
        "numpy": installed_version("numpy"),
        # Of the code that runs: the metadata of a clone is as old as its installation. An import of
        # the package would be circular.
        "alibi_fairseq": sys.modules[PACKAGE].__version__,
    }


def _fairseq_version() -> str | None:
    """Return name and version of the installed distribution of fairseq, or None."""
    for name in _FAIRSEQ_DISTRIBUTIONS:
        version = installed_version(name)
        if version:
            return f"{name} {version}"
    return None


def _hardware() -> dict:
    """Describe the machine."""
    import torch

    cpu = _first_processor()
    gpu = None
    if torch.cuda.is_available():
        gpu = torch.cuda.get_device_name(0)
        count = torch.cuda.device_count()
        if count > 1:
            gpu = f"{count} x {gpu}"
    return {
        "cpu": cpu.get("model name") or platform.processor() or platform.machine() or None,
        "cpu_vendor": cpu.get("vendor_id"),
        "cpu_family": cpu.get("cpu family"),
        "cpu_model": cpu.get("model"),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "gpu": gpu,
    }


def _first_processor() -> dict[str, str]:
    """Return the description of the first processor on Linux; empty elsewhere."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return {}
    first, _, _ = text.partition("\n\n")
    facts = {}
    for line in first.splitlines():
        key, _, value = line.partition(":")
        facts[key.strip()] = value.strip()
    return facts


def merge_provenance(origins: Sequence[Provenance]) -> Provenance:
    """Merge the provenance of several results files, some of which may be merged already.

    ``seconds`` is the sum, ``date`` the latest date, and ``command`` has a command per line. Other
    values that differ between the files are null. ``parts`` has the provenance of each file. Equal
    ones count once, because several files can contain the same measurements.
    """
    parts: list[Provenance] = []
    for origin in origins:
        for part in origin.parts or [origin]:
            if part not in parts:
                parts.append(part)
    if len(parts) == 1:
        return parts[0]
    merged = _common([part.model_dump(exclude_unset=True) for part in parts])
    merged["command"] = "\n".join(dict.fromkeys(part.command for part in parts))
    merged["date"] = max(part.date for part in parts)
    merged["seconds"] = sum(part.seconds for part in parts)
    return Provenance(**merged, parts=parts)


def _common(parts: Sequence[dict]) -> dict:
    """Return the values that all parts share, and None for values that differ.

    Nested objects are compared key by key.
    """
    common: dict = {}
    for key in parts[0]:
        values: list[Any] = [part.get(key) for part in parts]
        if all(isinstance(value, dict) for value in values):
            common[key] = _common(values)
        elif values.count(values[0]) == len(values):
            common[key] = values[0]
        else:
            common[key] = None
    return common
