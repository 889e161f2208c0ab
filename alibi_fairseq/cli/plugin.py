"""Import of plugins."""

from __future__ import annotations

import argparse


def import_plugin(folder: str) -> None:
    """Import the plugin that ``--user-dir`` names, or several separated by commas.

    Raises:
        UserInputError: there is no such folder, or it cannot be a plugin.
    """
    from fairseq.utils import import_user_module

    import_user_module(argparse.Namespace(user_dir=folder))
