"""Reading a checkpoint that somebody else made, without running what is in it.

A checkpoint is a pickle, and a pickle can call any function. Only tensors, plain values and a short
list of types that hold values (:func:`alibi_fairseq.compat.values_only`) are let in.
"""

from __future__ import annotations

import os
import pickle
import re
import zipfile
from pathlib import Path

import torch

from ..compat import values_only
from ..errors import BadInput


def read_checkpoint(path: str | os.PathLike) -> dict:
    """The content of a checkpoint file, tensors on the CPU.

    Raises:
        BadInput: there is no such file, it is none or damaged, or it holds anything but values.
    """
    if not Path(path).is_file():
        raise BadInput(f"There is no checkpoint {path}.")
    try:
        with values_only():
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=_is_zip(path))
    except pickle.UnpicklingError as error:
        raise BadInput(_refusal(path, str(error))) from error
    except (RuntimeError, EOFError, ValueError, KeyError) as error:
        raise BadInput(_damaged(path)) from error
    if not isinstance(state, dict):
        raise BadInput(f"{path} holds a {type(state).__name__}, not a checkpoint of fairseq.")
    return state


def _is_zip(path) -> bool:
    """Files of torch 1.6 and later; their tensors can stay on the disk until they are used."""
    return zipfile.is_zipfile(path)


def updates_of(path: str | os.PathLike) -> int:
    """How many updates a checkpoint of fairseq has seen."""
    history = read_checkpoint(path).get("optimizer_history")
    if not history or "num_updates" not in history[-1]:
        raise BadInput(f"{path} does not say how many updates it has seen.")
    return history[-1]["num_updates"]


def _refusal(path, message: str) -> str:
    wanted = re.search(r"GLOBAL (\S+)", message)
    if wanted is None:
        return _damaged(path)
    return (
        f"{path} asks for {wanted[1]}, which is not on the list of types that only hold values; "
        "it may be a trap, and nothing of it was run."
    )


def _damaged(path) -> str:
    return f"{path} is not a checkpoint, or it is damaged; fetch it again."
