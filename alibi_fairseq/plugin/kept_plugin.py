"""Copy of the plugin of a model's position method, which a training keeps in its save folder.

``--user-dir SAVE_DIR/plugin/NAME`` evaluates the model, or resumes its training, after an edit of
the plugin.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from ..errors import UserInputError
from ..files import atomic_folder
from ..results.file_names import COPIED_PLUGIN, PLUGIN_FOLDER


def keep_plugin(files: Mapping[str, Path], save_dir: Path, resumes: bool) -> None:
    """Copy the source files of a plugin to ``plugin/`` in the save folder.

    Nothing is copied, and the folder stays as it is, if there are no files, if the training itself
    uses the copy, or if it resumes and no training marked the folder as its copy.

    Args:
        files: source files by their path in the copy, from :func:`.plugin_files`.
        save_dir: save folder of the training.
        resumes: False if a new training starts.

    Raises:
        UserInputError: a new training would replace a folder that no training wrote.
    """
    folder = save_dir / PLUGIN_FOLDER
    in_use = any(file.resolve().is_relative_to(folder.resolve()) for file in files.values())
    if not files or in_use:
        return
    if folder.exists() and not (folder / COPIED_PLUGIN).is_file():
        if resumes:
            return
        raise UserInputError(
            f"{folder}, where this training would copy its plugin, was not written by a training. "
            "Rename it, or choose another --save-dir."
        )
    with atomic_folder(folder, replaces=True) as copies:
        for name, file in files.items():
            copy = copies / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
        (copies / COPIED_PLUGIN).touch()
