"""How this process was started: as a command of fairseq or of this project, or inside another program."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

#: Whether importing this package imported fairseq into a program without logging handlers.
fairseq_imported_here = False


def note_fairseq_import() -> None:
    """Call before importing fairseq."""
    global fairseq_imported_here
    fairseq_imported_here = "fairseq" not in sys.modules and not logging.getLogger().handlers


def is_command() -> bool:
    """Whether this process is a command of fairseq or of this project, and not another program."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    module = spec.name if spec else ""
    program = Path(sys.argv[0] if sys.argv else "")
    if str(program) == "-m":  # python -m imports the package before it sets anything else
        module = sys.orig_argv[sys.orig_argv.index("-m") + 1]
    return (
        module.split(".")[0] in ("fairseq_cli", "alibi_fairseq")
        or program.name.startswith(("fairseq-", "alibi-fairseq"))
        or program.parent.name == "fairseq_cli"
    )


def asks_for_help() -> bool:
    """Whether this process is ``alibi-fairseq --help`` or ``--version``, which need no model."""
    return is_command() and sys.argv[1:] in (["-h"], ["--help"], ["--version"])
