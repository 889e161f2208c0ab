"""Where a number comes from: command, code, data, dictionary, versions, machine, seed, time.

A model knows words by their index. Data binarized with another dictionary of the same size loads
and runs, and its perplexity is meaningless. The hash of the training dictionary is therefore kept
in the ``task_state`` that fairseq saves and loads with every checkpoint.
"""

from __future__ import annotations

import hashlib
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

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.files import sha256_files

_PACKAGE = Path(__file__).resolve().parent.parent

#: Key of the dictionary's hash in the checkpoint's ``task_state``.
STATE_KEY = "dictionary_sha256"

_OVERWRITE_FLAG = "#fairseq:overwrite"
_FAIRSEQ = ("fairseq-fixed", "fairseq")


def collect_provenance(
    *,
    seconds: float,
    precision: str | None = "fp32",
    seed: int | None = None,
    data: str | os.PathLike | None = None,
    subsets: Iterable[str] = (),
    command: list[str] | None = None,
) -> dict:
    """Return the ``provenance`` object of a results file, for work that has just been done.

    Args:
        precision: ``fp32``, ``bf16`` or ``fp16``.
        data: fairseq's binary data folder; its dictionary and the given ``subsets`` are hashed.
        command: what was run; this program's own command line by default.
    """
    import torch

    return {
        "command": shlex.join(command if command is not None else _own_command()),
        **_git_state(),
        "data_sha256": None if data is None else data_sha256(data, subsets),
        "dictionary_sha256": None if data is None else dictionary_sha256(data),
        "versions": _versions(),
        "hardware": _hardware(),
        "threads": torch.get_num_threads(),
        "precision": precision,
        "seed": seed,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": round(float(seconds), 3),
    }


def data_sha256(data: str | os.PathLike, subsets: Iterable[str]) -> str | None:
    """SHA-256 of the binary files of splits, in the order given; None when no split is named.

    Of several folders joined by ``:`` every one that holds a split counts.

    Raises:
        UserInputError: a split is in none of the folders.
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
            raise UserInputError(
                f"{data}: no split named {subset!r} ({subset}.idx and {subset}.bin)."
            )
        files += found
    return sha256_files(files) if files else None


def data_folders(data: str | os.PathLike) -> list[Path]:
    """Return the folders of fairseq's data argument, which joins several by ``:``."""
    return [Path(folder) for folder in os.fspath(data).split(":") if folder]


def symbols_sha256(symbols: Iterable[str]) -> str:
    """SHA-256 of a dictionary's own symbols in order, without fairseq's special ones.

    Counts do not enter: two dictionaries with the same hash give every symbol the same index.
    """
    return hashlib.sha256("\n".join(symbols).encode()).hexdigest()


def dictionary_digest(dictionary) -> str:
    """:func:`symbols_sha256` of a ``fairseq.data.Dictionary``."""
    return symbols_sha256(dictionary.symbols[dictionary.nspecial :])


def dictionary_sha256(data: str | os.PathLike) -> str:
    """:func:`symbols_sha256` of ``dict.txt`` in a fairseq data folder, or of that file itself."""
    path = Path(data) if Path(data).is_file() else data_folders(data)[0] / "dict.txt"
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise UserInputError(f"{path}: not a dictionary (not UTF-8 text).") from error
    entries = (line.rstrip().removesuffix(f" {_OVERWRITE_FLAG}") for line in lines if line.strip())
    return symbols_sha256(entry.rsplit(" ", 1)[0] for entry in entries)  # symbols may hold spaces


def bind_dictionary(task) -> None:
    """Check the task's dictionary against the checkpoint's, and record it in the task's state.

    Called when a model is built: by then fairseq has loaded the state of a checkpoint that is to
    be evaluated, and has not yet saved that of a training run. A task without state is left alone.

    Raises:
        UserInputError: the checkpoint was trained with another dictionary.
    """
    state = getattr(task, "state", None)
    if state is None:
        return
    ours = dictionary_digest(task.source_dictionary)
    trained_with = state.state_dict.get(STATE_KEY, ours)
    if trained_with != ours:
        raise UserInputError(
            "The data's dictionary is not the one this checkpoint was trained with (their contents "
            f"differ, SHA-256 {ours[:12]}… and {trained_with[:12]}…), so its word numbers mean "
            "other words; preprocess the text with the dict.txt of the training data "
            "(fairseq-preprocess --srcdict)."
        )
    state.merge_state_dict({STATE_KEY: ours})


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
    tracked = ("--untracked-files=no", "--", ":/", ":(top,exclude)results")
    try:
        # An installed copy may lie inside another repository: ours tracks this file.
        _git("ls-files", "--error-unmatch", "__init__.py")
        changes = [_git("status", "--porcelain", *which) for which in (tracked, ("--", "."))]
        return {"git_commit": _git("rev-parse", "HEAD"), "git_clean": not any(changes)}
    except (OSError, subprocess.SubprocessError):
        return {"git_commit": None, "git_clean": None}


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(_PACKAGE), *arguments]
    return subprocess.check_output(
        command, stderr=subprocess.DEVNULL, text=True, timeout=60
    ).strip()


def version_of(distribution: str) -> str | None:
    """Return the installed version of a distribution, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _versions() -> dict:
    fairseq = (f"{name} {version_of(name)}" for name in _FAIRSEQ if version_of(name))
    return {
        "python": platform.python_version(),
        "torch": version_of("torch"),
        "fairseq": next(fairseq, None),
        "numpy": version_of("numpy"),
        "alibi_fairseq": version_of("alibi-fairseq"),
    }


def _hardware() -> dict:
    import torch

    try:
        first, _, _ = Path("/proc/cpuinfo").read_text().partition("\n\n")
    except OSError:  # not Linux
        first = ""
    pairs = (line.partition(":") for line in first.splitlines())
    cpu, gpu = {key.strip(): value.strip() for key, _, value in pairs}, None
    if torch.cuda.is_available():
        count, gpu = torch.cuda.device_count(), torch.cuda.get_device_name(0)
        gpu = gpu if count == 1 else f"{count} x {gpu}"
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
