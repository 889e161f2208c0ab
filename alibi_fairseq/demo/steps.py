"""Commands of fairseq as steps of the demonstration."""

from __future__ import annotations

import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent


def fairseq_command(tool: str, *arguments: object) -> list[str]:
    """``fairseq-TOOL --user-dir <this package> …``, run by this Python."""
    user_dir = [] if tool == "preprocess" else ["--user-dir", str(PACKAGE)]
    return [sys.executable, "-m", f"fairseq_cli.{tool}", *map(str, arguments), *user_dir]
