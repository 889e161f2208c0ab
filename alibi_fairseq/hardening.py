"""Workarounds of :mod:`.compat` that keep files of others from running code or writing files.

See ``SECURITY.md``. They are needed with every release of fairseq.
"""

from __future__ import annotations

import os
import sys
import tarfile
from pathlib import Path

import fairseq
from fairseq import checkpoint_utils, file_utils

from .checkpoints.loading import (
    check_finite,
    check_sums,
    read_errors,
    require_safe_loader,
    wrong_parts,
)
from .checkpoints.options import check_options
from .errors import BadInput
from .literals import evaluate_literal
from .patching import wrap
from .resuming import check_same_model


def checkpoints_validated() -> bool:
    """fairseq evaluates options of a checkpoint as code (facebookresearch/fairseq#4869), and a
    damaged file raises whatever torch or fairseq trips over, without the file's name, or nothing.

    Every command of fairseq, ``from_pretrained`` and our evaluator load checkpoints by this
    function, which returns before anything is built from the options.
    """

    def wrapper(load, path, *arguments, **keywords):
        require_safe_loader(path)
        if os.path.isfile(path):
            check_sums(path)
        with read_errors(path):
            state = load(path, *arguments, **keywords)
        with wrong_parts(path):
            check_options(state.get("cfg") or {}, path)
            check_same_model(state, path)
            check_finite(state, path)
        return state

    return wrap(checkpoint_utils, "load_checkpoint_to_cpu", wrapper)


def no_eval_in_fairseq() -> bool:
    """fairseq calls ``eval`` on options, ``--model-overrides`` and lines of text
    (facebookresearch/fairseq#4869): its modules get one that evaluates literals alone.
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


def archives_extracted_safely() -> bool:
    """``from_pretrained`` extracts an archive wherever its members point, and removes it
    (CVE-2007-4559). A local archive is refused; a downloaded one is extracted with
    Python's filter for data.
    """

    def wrapper(load_archive_file, archive, *arguments, **keywords):
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

    return wrap(file_utils, "load_archive_file", wrapper)
