"""Where a number comes from: command, code, data, versions, machine, threads, seed, time."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import psutil

from alibi_fairseq.errors import BadInput
from alibi_fairseq.files import sha256_files
from alibi_fairseq.results.dictionaries import data_folders, dictionary_sha256

_PACKAGE = Path(__file__).resolve().parent.parent


def collect_provenance(
    *,
    seconds: float,
    precision: str | None = "fp32",
    seed: int | None = None,
    data: str | os.PathLike | None = None,
    subsets: Iterable[str] = (),
    command: list[str] | None = None,
) -> dict:
    """The ``provenance`` object of a results document, for work that has just been done.

    Args:
        seconds: wall-clock time of the work.
        precision: ``fp32``, ``bf16`` or ``fp16``.
        seed: the seed of the work, None when it has none.
        data: fairseq's binary data folder; hashes its dictionary and the given ``subsets``.
        subsets: the splits that were read, e.g. ``["valid"]``.
        command: what was run; this program's own command line by default.
    """
    return {
        "command": shlex.join(command if command is not None else _own_command()),
        **_git_state(),
        "data_sha256": None if data is None else data_sha256(data, subsets),
        "dictionary_sha256": None if data is None else dictionary_sha256(data),
        "versions": _versions(),
        "hardware": _hardware(),
        "threads": _threads(),
        "precision": precision,
        "seed": seed,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": round(float(seconds), 3),
    }


def data_sha256(data: str | os.PathLike, subsets: Iterable[str]) -> str | None:
    """SHA-256 of the binary files of splits of a fairseq data folder, in the order given.

    Args:
        data: the folder of ``valid.bin``, ``valid.idx``, …; several folders may be joined by
            ``:`` as for fairseq, then every folder that holds the split counts.

    Returns:
        64 hexadecimal digits, or None when no split is named.

    Raises:
        BadInput: a split is in none of the folders.
    """
    files: list[Path] = []
    for subset in subsets:
        found = [
            path
            for folder in data_folders(data)
            for path in (folder / f"{subset}.idx", folder / f"{subset}.bin")
            if path.is_file()
        ]
        if not found:
            raise BadInput(f"{data}: no split named {subset!r} ({subset}.idx and {subset}.bin).")
        files += found
    return sha256_files(files) if files else None


def _own_command() -> list[str]:
    # What a person would type: "python -m package" leaves the path of __main__.py in argv[0], and
    # our commands for fairseq's put the verb there and add where this package is.
    program = Path(sys.argv[0])
    name = program.parent.name.replace("_", "-") if program.name == "__main__.py" else program.name
    added = ("--user-dir", str(_PACKAGE))
    arguments = sys.argv[1:]
    if tuple(arguments[-2:]) == added and " " in name:
        arguments = arguments[:-2]
    return [*(name.split() or ["python"]), *arguments]


def _git_state() -> dict:
    """Commit of the checkout this package runs from; null for an installed copy.

    Clean means that no tracked file outside ``results/``, which runs write to, differs from the
    commit, and that the package has no other files. A user's own files elsewhere do not count.
    """
    unknown = {"git_commit": None, "git_clean": None}
    # An installed copy may lie inside another repository: ours tracks this file.
    if _git("ls-files", "--error-unmatch", "__init__.py") is None:
        return unknown
    commit = _git("rev-parse", "HEAD")
    tracked = ("--untracked-files=no", "--", ":/", ":(top,exclude)results")
    changes = [_git("status", "--porcelain", *which) for which in (tracked, ("--", "."))]
    if commit is None or None in changes:
        return unknown
    return {"git_commit": commit, "git_clean": not any(changes)}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(_PACKAGE), *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _versions() -> dict:
    flavours = ((flavour, version_of(flavour)) for flavour in ("fairseq-fixed", "fairseq"))
    return {
        "python": platform.python_version(),
        "torch": version_of("torch"),
        "fairseq": next((f"{name} {version}" for name, version in flavours if version), None),
        "numpy": version_of("numpy"),
        "alibi_fairseq": version_of("alibi-fairseq"),
    }


def version_of(distribution: str) -> str | None:
    """The installed version of a distribution."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _hardware() -> dict:
    import torch

    cpu = _cpu()
    return {
        "cpu": cpu.get("model name") or platform.processor() or platform.machine() or None,
        "cpu_vendor": cpu.get("vendor_id"),
        "cpu_family": cpu.get("cpu family"),
        "cpu_model": cpu.get("model"),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "gpu": _gpu_name(),
    }


def _cpu() -> dict[str, str]:
    """The first processor in ``/proc/cpuinfo``; empty where that is missing."""
    try:
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    except OSError:  # not Linux
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _gpu_name() -> str | None:
    import torch

    if not torch.cuda.is_available():
        return None
    count = torch.cuda.device_count()
    name = torch.cuda.get_device_name(0)
    return name if count == 1 else f"{count} x {name}"


def _threads() -> int:
    import torch

    return torch.get_num_threads()
