"""Workarounds that load untrusted files and files of older fairseq without running their code.

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

from ...errors import UserInputError
from ..loading import check_finite, reading_checkpoint, safe_types_allowed
from ..option_validation import check_options, plain_values
from ..resume import adapt_data_position, check_same_model
from . import patch_method

#: Longest text of an option.
LONGEST = 10_000


@patch_method(checkpoint_utils, "load_checkpoint_to_cpu")
def load_validated_checkpoint(load, path, *arguments, **keywords):
    """Load a checkpoint, and validate it before anything is built from its options.

    fairseq evaluates options of a checkpoint as code (facebookresearch/fairseq#4869). A corrupted
    file raises an arbitrary error of torch or fairseq without the file's name, or none. torch 2.6
    loads only tensors and plain values by default, but checkpoints of older fairseq hold an
    ``argparse.Namespace`` (facebookresearch/fairseq#5610): types that hold values are allowed.

    Every command of fairseq, ``from_pretrained``, and our evaluator load checkpoints with this
    function.
    """
    with safe_types_allowed(), reading_checkpoint(path):
        state = load(path, *arguments, **keywords)
    check_options(state.get("cfg") or {}, path)
    check_finite(state, path)
    check_same_model(state, path)
    adapt_data_position(state, path)
    return state


@patch_method(checkpoint_utils, "_upgrade_state_dict")
def reject_interpolations(upgrade, state):
    """Reject options in the ``args`` of older checkpoints that are not plain values.

    They become a configuration while they are loaded, where omegaconf replaces ``${oc.env:…}`` by
    the value of an environment variable (facebookresearch/fairseq#4869).
    """
    args = state.get("args")
    try:
        if isinstance(args, Namespace):
            plain_values(vars(args))
    except ValueError as error:
        raise UserInputError(
            f"The options of the checkpoint cannot be loaded safely: {error}."
        ) from error
    return upgrade(state)


@patch_method(meters.MetersDict, "load_state_dict")
def load_known_meters(load, self, state_dict):
    """Restore only fairseq's meters from a training state.

    fairseq looks the class names of metrics up among everything that its module holds, and calls
    them (facebookresearch/fairseq#4869).
    """
    for _, _, name, _ in state_dict:
        kind = getattr(meters, name, None) if isinstance(name, str) else None
        if not (isinstance(kind, type) and issubclass(kind, meters.Meter)):
            raise UserInputError(
                f"The saved metrics ask for {str(name)[:60]!r}, which is no meter of fairseq. "
                "Do not use this checkpoint."
            )
    return load(self, state_dict)


def replace_eval_in_fairseq() -> None:
    """Replace ``eval`` in fairseq's modules by a function that evaluates only literals.

    fairseq calls ``eval`` on options, ``--model-overrides`` and lines of text
    (facebookresearch/fairseq#4869).
    """
    root = Path(fairseq.__file__).parent.parent
    folders = (str(root / "fairseq") + os.sep, str(root / "fairseq_cli") + os.sep)
    for module in list(sys.modules.values()):
        if str(getattr(module, "__file__", "")).startswith(folders):
            module.eval = evaluate_literal  # type: ignore[attr-defined]


@patch_method(file_utils, "load_archive_file")
def reject_archives(load_archive_file, folder, *arguments, **keywords):
    """Reject anything but a folder as a model.

    ``from_pretrained`` downloads an archive, extracts it wherever its members point, and removes it
    (CVE-2007-4559).
    """
    if not os.path.isdir(folder):
        raise UserInputError(
            f"{folder} is not a folder. If it is an archive, extract it and pass the folder."
        )
    return load_archive_file(folder, *arguments, **keywords)


def evaluate_literal(text, *scope):
    """Return the value of a Python literal, such as ``"20000,60000"`` or ``"(0.9, 0.98)"``.

    Language models use fairseq's ``eval`` for nothing else.

    Args:
        text: the literal.
        scope: namespaces that a caller of ``eval`` may pass; ignored.

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


replace_eval_in_fairseq()
