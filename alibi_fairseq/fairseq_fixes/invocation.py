"""Where this package lies, and whether it was imported by a command."""

from __future__ import annotations

import sys
from pathlib import Path

PACKAGE = "alibi_fairseq"
FOLDER = Path(__file__).resolve().parent.parent


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
