"""Workarounds that keep files of others from running code or writing files, and load those of older fairseq.

See ``SECURITY.md``. All but :func:`older_checkpoints` are needed with every release of fairseq.
"""

from __future__ import annotations

import ast
import operator
import os
import sys
import tarfile
from argparse import Namespace
from pathlib import Path

import fairseq
from fairseq import checkpoint_utils, file_utils
from fairseq.logging import meters

from ..checkpoints.loading import (
    check_finite,
    reading,
    safe_types_allowed,
    wrong_parts,
)
from ..checkpoints.options import check_options, plain
from ..errors import BadInput
from . import around, mentions, workaround
from .resuming import check_same_model


@around(
    checkpoint_utils,
    "load_checkpoint_to_cpu",
    lambda: not mentions(checkpoint_utils.load_checkpoint_to_cpu, "weights_only"),
)
def older_checkpoints(load, *arguments, **keywords):
    """torch 2.6 loads only tensors and plain values by default, and checkpoints of
    older fairseq hold an ``argparse.Namespace`` (facebookresearch/fairseq#5610).

    Types that hold values and run no code are allowed while fairseq loads a checkpoint; everything
    else is still refused.
    """
    with safe_types_allowed():
        return load(*arguments, **keywords)


@around(checkpoint_utils, "load_checkpoint_to_cpu")
def checkpoints_validated(load, path, *arguments, **keywords):
    """fairseq evaluates options of a checkpoint as code (facebookresearch/fairseq#4869), and a
    damaged file raises whatever torch or fairseq trips over, without the file's name, or nothing.

    Every command of fairseq, ``from_pretrained`` and our evaluator load checkpoints by this
    function, which returns before anything is built from the options.
    """
    with reading(path):
        state = load(path, *arguments, **keywords)
    with wrong_parts(path):
        check_options(state.get("cfg") or {}, path)
        check_same_model(state, path)
        check_finite(state, path)
    return state


@around(checkpoint_utils, "_upgrade_state_dict")
def options_not_resolved(upgrade, state):
    """Options that older checkpoints hold as ``args`` become a configuration while they are loaded,
    where omegaconf replaces ``${oc.env:…}`` by the value of a variable (facebookresearch/fairseq#4869).
    """
    try:
        plain(vars(state["args"]) if isinstance(state.get("args"), Namespace) else None)
    except ValueError as error:
        raise BadInput(
            f"The options of the checkpoint cannot be loaded safely: {error}."
        ) from error
    return upgrade(state)


@around(meters.MetersDict, "load_state_dict")
def meters_by_name_only(load, self, state_dict):
    """The class names of metrics in a training state are looked up among everything that fairseq's
    module holds, and called (facebookresearch/fairseq#4869).
    """
    for _, _, name, _ in state_dict:
        kind = getattr(meters, name, None) if isinstance(name, str) else None
        if not (isinstance(kind, type) and issubclass(kind, meters.Meter)):
            raise TypeError(f"{str(name)[:60]!r} is no meter of fairseq's")
    return load(self, state_dict)


@workaround
def no_eval_in_fairseq() -> bool:
    """fairseq calls ``eval`` on options, ``--model-overrides`` and lines of text
    (facebookresearch/fairseq#4869): its modules get one that evaluates only literals.
    """
    here = Path(fairseq.__file__).parent.parent
    folders = (str(here / "fairseq") + os.sep, str(here / "fairseq_cli") + os.sep)
    modules = [
        module
        for module in list(sys.modules.values())
        if str(getattr(module, "__file__", "")).startswith(folders)
        and getattr(module, "eval", None) is not evaluate_literal
    ]
    for module in modules:
        module.eval = evaluate_literal  # type: ignore[attr-defined]
    return bool(modules)


@around(file_utils, "load_archive_file")
def archives_extracted_safely(load_archive_file, archive, *arguments, **keywords):
    """``from_pretrained`` extracts an archive wherever its members point, and removes it
    (CVE-2007-4559). A local archive is refused; a downloaded one is extracted with
    Python's filter for data.
    """
    if os.path.isfile(archive):
        raise BadInput(f"{archive} is not a folder; extract it and name the folder.")
    if not hasattr(tarfile, "data_filter"):
        raise BadInput(f"{archive} is not a folder; this Python cannot extract it safely.")
    before = vars(tarfile.TarFile).get("extraction_filter")
    tarfile.TarFile.extraction_filter = staticmethod(tarfile.data_filter)
    try:
        return load_archive_file(archive, *arguments, **keywords)
    finally:
        tarfile.TarFile.extraction_filter = before


_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
#: Longest text, and most items of a list that is repeated: ``[(512, 3)] * 4``.
LIMIT = 10_000


def evaluate_literal(text, *scope):
    """The value of a Python literal, or of sums and products of numbers and lists.

    That is all that fairseq uses ``eval`` for: ``"20000,60000"``, ``"(0.9, 0.98)"``,
    ``"[(512, 3)] * 4"``.

    Args:
        scope: ignored; namespaces that a caller of ``eval`` may pass.

    Raises:
        TypeError: the text is no string, as ``eval`` raises it.
        ValueError: the text is anything else.
    """
    if not isinstance(text, str):
        raise TypeError(f"expected a string, not {type(text).__name__}")
    if len(text) > LIMIT:
        raise ValueError("the text is too long for an option")
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError, ArithmeticError, TypeError) as error:
        raise ValueError(f"{text[:80]!r} is not a literal") from error


def _value(node: ast.expr):
    if not isinstance(node, ast.BinOp) or type(node.op) not in _OPERATORS:
        return ast.literal_eval(node)
    left, right = _value(node.left), _value(node.right)
    if isinstance(node.op, ast.Mult):
        for repeated, times in ((left, right), (right, left)):
            if isinstance(repeated, (list, tuple, str, bytes)) and times * len(repeated) > LIMIT:
                raise ValueError("a repeated list is too long for an option")
    return _OPERATORS[type(node.op)](left, right)
