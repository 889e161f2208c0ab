"""Workarounds that keep files of others from running code or writing files, and load those of older fairseq.

See ``SECURITY.md``.
"""

from __future__ import annotations

import ast
import os
import sys
from argparse import Namespace
from pathlib import Path

import fairseq
from fairseq import checkpoint_utils, file_utils
from fairseq.logging import meters

from ..checkpoints.loading import check_finite, reading, safe_types_allowed, wrong_parts
from ..checkpoints.option_validation import check_options, plain
from ..errors import UserInputError
from . import patch_method
from .resume import check_same_model

#: Longest text of an option.
LONGEST = 10_000


@patch_method(checkpoint_utils, "load_checkpoint_to_cpu")
def checkpoints_validated(load, path, *arguments, **keywords):
    """fairseq evaluates options of a checkpoint as code (facebookresearch/fairseq#4869), and a
    damaged file raises whatever torch or fairseq trips over, without the file's name, or nothing.
    torch 2.6 loads only tensors and plain values by default, and checkpoints of older fairseq hold an
    ``argparse.Namespace`` (facebookresearch/fairseq#5610): types that hold values are allowed.

    Every command of fairseq, ``from_pretrained`` and our evaluator load checkpoints by this
    function, which returns before anything is built from the options.
    """
    with safe_types_allowed(), reading(path):
        state = load(path, *arguments, **keywords)
    with wrong_parts(path):
        check_options(state.get("cfg") or {}, path)
        check_same_model(state, path)
        check_finite(state, path)
    return state


@patch_method(checkpoint_utils, "_upgrade_state_dict")
def options_not_resolved(upgrade, state):
    """Options that older checkpoints hold as ``args`` become a configuration while they are loaded,
    where omegaconf replaces ``${oc.env:…}`` by the value of a variable (facebookresearch/fairseq#4869).
    """
    try:
        plain(vars(state["args"]) if isinstance(state.get("args"), Namespace) else None)
    except ValueError as error:
        raise UserInputError(
            f"The options of the checkpoint cannot be loaded safely: {error}."
        ) from error
    return upgrade(state)


@patch_method(meters.MetersDict, "load_state_dict")
def meters_by_name_only(load, self, state_dict):
    """The class names of metrics in a training state are looked up among everything that fairseq's
    module holds, and called (facebookresearch/fairseq#4869).
    """
    for _, _, name, _ in state_dict:
        kind = getattr(meters, name, None) if isinstance(name, str) else None
        if not (isinstance(kind, type) and issubclass(kind, meters.Meter)):
            raise TypeError(f"{str(name)[:60]!r} is no meter of fairseq's")
    return load(self, state_dict)


def no_eval_in_fairseq() -> None:
    """fairseq calls ``eval`` on options, ``--model-overrides`` and lines of text
    (facebookresearch/fairseq#4869): its modules get one that evaluates only literals.
    """
    here = Path(fairseq.__file__).parent.parent
    folders = (str(here / "fairseq") + os.sep, str(here / "fairseq_cli") + os.sep)
    for module in list(sys.modules.values()):
        if str(getattr(module, "__file__", "")).startswith(folders):
            module.eval = evaluate_literal  # type: ignore[attr-defined]


@patch_method(file_utils, "load_archive_file")
def archives_not_extracted(load_archive_file, folder, *arguments, **keywords):
    """``from_pretrained`` downloads an archive, extracts it wherever its members point, and removes it
    (CVE-2007-4559).
    """
    if not os.path.isdir(folder):
        raise UserInputError(f"{folder} is not a folder; extract it and name the folder.")
    return load_archive_file(folder, *arguments, **keywords)


def evaluate_literal(text, *scope):
    """The value of a Python literal, which is all that language models use fairseq's ``eval`` for:
    ``"20000,60000"``, ``"(0.9, 0.98)"``.

    Args:
        scope: ignored; namespaces that a caller of ``eval`` may pass.

    Raises:
        TypeError: the text is no string, as ``eval`` raises it.
        ValueError: the text is anything else.
    """
    if not isinstance(text, str):
        raise TypeError(f"expected a string, not {type(text).__name__}")
    if len(text) > LONGEST:
        raise ValueError("the text is too long for an option")
    try:
        return ast.literal_eval(text.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError, TypeError) as error:
        raise ValueError(f"{text[:80]!r} is not a literal") from error


no_eval_in_fairseq()
