"""Options of a training as version 3 recorded them: text, by the name of their field.

Records have the options that differ from their default.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from .settings import COMPONENTS, DEFAULTS, GROUPS, Settings, component_defaults, plain

#: Options that version 3 recorded under another name than the field, or not as an option.
_ALIASES = {"max_sentences": "batch_size", "arch": "model"}
#: Options of the command that version 3 left out of records: the first because its default is a
#: reference, the second in early records.
_UNRECORDED = ("total_num_update", "criterion")


def command_options(command: str) -> dict[str, str]:
    """Return the options of a training command that records lack."""
    try:
        words = shlex.split(command)
    except ValueError:
        return {}
    options = _options_of_words(words)
    return {name: options[name] for name in _UNRECORDED if name in options}


def _options_of_words(words: Iterable[str]) -> dict[str, str]:
    """Return the options of a command by field, as text; a flag without a value is empty."""
    options: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, _, value = word.removeprefix("--").replace("-", "_").partition("=")
            name = _ALIASES.get(name, name)
            options[name] = value
        elif name:
            options[name] = word
            name = ""
    return options


def settings_from_text(options: Mapping[str, str], architecture: str | None) -> dict[str, Any]:
    """Return options as text, by the name of their field, as settings.

    Args:
        options: the options; names of components are those of their groups.
        architecture: name of the architecture; None: of ``options``.
    """
    settings: dict[str, Any] = {}
    for group in COMPONENTS:
        if group in options:
            settings[group] = options[group]
    if architecture is not None:
        settings["model"] = architecture
    for name, text in options.items():
        if name == "distributed_world_size":
            settings["processes"] = plain(text)
        elif name not in COMPONENTS and name != "data":
            settings[_setting_name(name, settings)] = _parse_value(text)
    return settings


def _parse_value(text: str) -> Any:
    """Return the value of an option that is text in version 3, where a set flag is empty."""
    known = {"": True, "True": True, "False": False, "None": None}
    return known[text] if text in known else plain(text)


def _setting_name(field: str, components: Settings) -> str:
    """Return the name of the setting of a field, which version 3 recorded without its group.

    Several groups may have a field, but only one of them other than as a reference to it.
    """
    found = ""
    for group in (*GROUPS, *COMPONENTS):
        if group in COMPONENTS:
            defaults = component_defaults(group, components.get(group))
        else:
            defaults = DEFAULTS[group]
        if field in defaults:
            if not str(defaults[field]).startswith("${"):
                return f"{group}.{field}"
            found = found or f"{group}.{field}"
    return found or _UNLISTED.get(field, f"model.{field}")


#: Groups of options that the table of defaults lacks, because new results record them otherwise.
_UNLISTED = {
    "finetune_from_model": "start.finetune_from_model",
    "restore_file": "start.restore_file",
    "continue_once": "start.continue_once",
}
