"""How this process was started: as a command of fairseq or of this project, or inside another program."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from ..errors import BadInput

PACKAGE = "alibi_fairseq"
#: Where this package lies.
FOLDER = Path(__file__).resolve().parent.parent
#: Whether importing this package imported fairseq into a program without logging handlers.
fairseq_imported_here = False


def note_fairseq_import() -> None:
    """Call before importing fairseq."""
    global fairseq_imported_here
    fairseq_imported_here = "fairseq" not in sys.modules and not logging.getLogger().handlers


def is_command() -> bool:
    """Return whether this process is a command of fairseq or of this project, and not another program."""
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


def is_this_package(user_dir: str) -> bool:
    """Return whether a ``--user-dir`` leads to this copy of the package; False for another plugin.

    Raises:
        BadInput: it leads to a second copy.
    """
    if Path(user_dir).resolve() == FOLDER:
        return True
    if Path(user_dir).name == PACKAGE:
        raise BadInput(
            f"Two copies of {PACKAGE}: {FOLDER} is already imported and --user-dir names "
            f"{user_dir}; drop --user-dir or uninstall one of them."
        )
    return False
