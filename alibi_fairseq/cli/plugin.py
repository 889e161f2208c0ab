"""Import of a plugin."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path

from ..registration import without_garbage_collection


def import_plugin(folder: str) -> None:
    """Import the plugin that ``--user-dir`` names.

    A plugin with nothing but position methods is imported without fairseq, whose import takes
    seconds. fairseq later finds it imported.

    Raises:
        UserInputError: there is no such folder, or it cannot be a plugin.
    """
    path = Path(os.path.abspath(folder))
    is_new_package = path.name not in sys.modules and (path / "__init__.py").is_file()
    # fairseq also imports these folders.
    has_models = (path / "models").exists() or (path / "tasks").exists()
    if is_new_package and path.name.isidentifier() and not has_models:
        sys.path.insert(0, str(path.parent))
        with without_garbage_collection():
            import_module(path.name)
        return
    from fairseq.utils import import_user_module

    import_user_module(argparse.Namespace(user_dir=folder))
