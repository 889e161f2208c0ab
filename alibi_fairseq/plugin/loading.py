"""Reading untrusted checkpoints without running code from them.

A checkpoint is a pickle, and a pickle can call any function. Only tensors, plain values, and a
short list of types that hold values (``SAFE_TYPES``) are loaded.
"""

from __future__ import annotations

import argparse
import os
import re
import typing
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy
import omegaconf
import torch
from omegaconf.base import ContainerMetadata, Metadata
from omegaconf.nodes import AnyNode

from ..errors import UserInputError
from ..files import open_input
from ..results.file_names import BEST_CHECKPOINT, LAST_CHECKPOINT

#: The types that a checkpoint of fairseq may hold: values, and nothing that could run code.
SAFE_TYPES = [
    argparse.Namespace,
    omegaconf.DictConfig,
    omegaconf.ListConfig,
    ContainerMetadata,
    Metadata,
    AnyNode,
    defaultdict,
    bool,
    dict,
    float,
    int,
    list,
    str,
    (typing.Any, "typing.Any"),
    numpy.dtype,
    *(type(numpy.dtype(kind)) for kind in ("float32", "float64", "int64")),
    (numpy.float64(0).__reduce__()[0], "numpy.core.multiarray.scalar"),
    (numpy.float64(0).__reduce__()[0], "numpy._core.multiarray.scalar"),
]
#: Checkpoints of a folder to suggest first.
_PREFERRED = (BEST_CHECKPOINT, LAST_CHECKPOINT)


def read_checkpoint(path: str | os.PathLike) -> dict:
    """Read a checkpoint file, with tensors on the CPU.

    Raises:
        UserInputError: it is damaged or no checkpoint, or it holds anything but values.
    """
    with safe_types_allowed(), reading_checkpoint(path):
        # Since torch 1.6 a file is a zip archive, whose tensors can stay on the disk until used.
        mmap = zipfile.is_zipfile(path)
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
        if not isinstance(state, dict):
            raise TypeError(f"it holds a {type(state).__name__}")
    return state


def safe_types_allowed(*more: type) -> AbstractContextManager:
    """Let ``torch.load(…, weights_only=True)`` read ``SAFE_TYPES`` and ``more`` inside the block.

    Checkpoints of older fairseq hold them (facebookresearch/fairseq#5610). All other types are
    rejected.
    """
    return torch.serialization.safe_globals([*SAFE_TYPES, *more])


def require_safe_loader(path: str | os.PathLike) -> None:
    """Raise UserInputError if a torch before 2.10, which setup.py excludes, reads a checkpoint.

    Its loader could be made to run code (CVE-2025-32434) and to corrupt memory (CVE-2026-24747).
    """
    if torch.__version__ < (2, 10):  # type: ignore[operator]  # TorchVersion compares with tuples
        raise UserInputError(
            f"{path} was not read: with PyTorch {torch.__version__} a checkpoint can run code "
            "(CVE-2025-32434, CVE-2026-24747). Install PyTorch 2.10 or later."
        )


def require_file(path: str | os.PathLike) -> None:
    """Raise UserInputError for a folder, a device, or a pipe. Suggest a checkpoint in a folder."""
    folder = Path(path)
    if not folder.is_dir():
        if folder.exists():
            open_input(path).close()
        return
    names = [file.name for file in folder.glob("*.pt")]
    advice = "It has no checkpoint (*.pt), nor a Hugging Face model (config.json)."
    if names:
        preferred = [name for name in _PREFERRED if name in names]
        advice = f"Name the checkpoint in it: {folder / (preferred or sorted(names))[0]}."
    raise UserInputError(f"{path} is a folder. {advice}")


@contextmanager
def reading_checkpoint(path: str | os.PathLike) -> Iterator[None]:
    """Compare a checkpoint's checksums, which torch stores and never compares, before the block.

    Any error of the block that reads a corrupted file becomes a UserInputError. Files of torch
    before 1.6 have no checksums.
    """
    require_safe_loader(path)
    require_file(path)
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                damaged = archive.testzip()
                if damaged:
                    raise UserInputError(
                        f"{path} is damaged: the checksum of {damaged} in it does not match. Use "
                        "another checkpoint."
                    )
        yield
    except (UserInputError, FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except Exception as error:
        reason = (
            f"cannot be read as a checkpoint ({type(error).__name__}); it is damaged or was not "
            "written completely. Use another one."
        )
        if unsafe := re.search(r"(?:[Uu]nsupported|blocked).{0,40}?GLOBAL (\S+)", str(error)):
            reason = (
                f"asks for {unsafe[1]}, which is not on the list of types that only hold values, "
                "so it was not read; it may be malicious."
            )
        raise UserInputError(f"{path} {reason}") from error


def check_finite(state: dict, path: str | os.PathLike) -> None:
    """Raise UserInputError if a stored tensor, used or not, holds NaN or infinity."""
    weights = state.get("model")
    for name, tensor in weights.items() if isinstance(weights, dict) else ():
        if not torch.is_tensor(tensor) or str(name).endswith("_float_tensor"):
            continue  # fairseq's placeholders, whose memory is never initialized
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise UserInputError(
                f"{name} in {path} has values that are not finite: training diverged, or the "
                "file is damaged. Use an earlier checkpoint."
            )


def check_ties(weights: dict, model: torch.nn.Module, path: str | os.PathLike) -> None:
    """Raise UserInputError if a file holds different values for a tensor that the model shares."""
    first_name: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if name not in weights:
            continue
        first = first_name.setdefault(id(parameter), name)
        if not torch.equal(weights[first], weights[name]):
            raise UserInputError(
                f"{path} has different values in {first} and {name}, which the options tie. Use "
                "the options it was trained with."
            )


def load_update_count(path: str | os.PathLike) -> int:
    """Return the number of updates that a checkpoint of fairseq has seen."""
    return read_checkpoint(path)["optimizer_history"][-1]["num_updates"]
