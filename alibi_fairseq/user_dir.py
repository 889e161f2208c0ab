"""Where this package lies, and whether a ``--user-dir`` leads to it."""

from __future__ import annotations

from pathlib import Path

from .errors import BadInput

PACKAGE = "alibi_fairseq"
FOLDER = Path(__file__).resolve().parent


def is_this_package(user_dir: str) -> bool:
    """Whether a ``--user-dir`` leads to this copy of the package; False for another plugin.

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
