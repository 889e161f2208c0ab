"""Workarounds for the options of fairseq's commands."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fairseq import options, utils

from ...errors import FOLDER, PACKAGE, UserInputError, usage_error
from . import patch_method


@patch_method(options, "parse_args_and_arch")
def parse_bf16_without_tpu(parse, parser, input_args=None, **keywords):
    """Switch to TPUs only for ``--tpu``.

    ``--bf16`` and ``--memory-efficient-bf16`` switch to TPUs, which crashes on every other device
    (facebookresearch/fairseq#4696).
    """
    parsed = parse(parser, input_args, **keywords)
    args = parsed[0] if keywords.get("parse_known") else parsed
    command = sys.argv[1:] if input_args is None else input_args
    if getattr(args, "bf16", False) and "--tpu" not in command:
        args.tpu = False
    return parsed


@patch_method(options, "parse_args_and_arch")
def report_usage_errors(parse, parser, *arguments, **keywords):
    """Report a wrong flag in one sentence.

    fairseq prints a usage message of 300 lines before the error (not reported upstream).
    """

    def error(message):
        raise usage_error(message, Path(sys.argv[0]).name)

    parser.error = error
    return parse(parser, *arguments, **keywords)


@patch_method(utils, "import_user_module")
def import_user_dirs(import_user_module, args):
    """Import each folder of ``--user-dir``, which fairseq takes for one folder.

    Raises:
        UserInputError: there is no such folder, or it is a second copy of this package.
    """
    given = getattr(args, "user_dir", None)
    if given is None:
        return
    folders = [given] if Path(given).exists() else given.split(",")
    for folder in folders:
        _import_user_dir(import_user_module, folder)


def _import_user_dir(import_user_module, folder: str) -> None:
    """Import one folder, unless it is this package, which is imported already.

    fairseq compares the text of paths: the folder this package was imported from is "not globally
    unique" when ``--user-dir`` leads to it through a link (facebookresearch/fairseq#2815).
    """
    if Path(folder).resolve() == FOLDER:
        return
    if Path(folder).name == PACKAGE:
        raise UserInputError(
            f"There are two copies of {PACKAGE}: {FOLDER} is already imported, and --user-dir is "
            f"{folder}. Remove --user-dir, or uninstall one of them."
        )
    try:
        import_user_module(argparse.Namespace(user_dir=folder))
    except FileNotFoundError as error:
        if Path(folder).exists():  # the plugin itself lacks a file
            raise
        raise UserInputError(f"--user-dir: there is no folder {folder}.") from error
