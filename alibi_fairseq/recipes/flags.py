"""Settings as the flags of ``fairseq-train``."""

from __future__ import annotations

from .recipe import Settings

#: What fairseq's command line calls the name of a group's component.
NAME_FLAGS = {
    "task": "--task",
    "model": "--arch",
    "criterion": "--criterion",
    "optimizer": "--optimizer",
    "lr_scheduler": "--lr-scheduler",
}


def flags(settings: Settings) -> list[str]:
    """All settings as command-line words."""
    return [
        word
        for group, options in settings.items()
        for option, value in options.items()
        for word in flag(group, option, value)
    ]


def flag(group: str, option: str, value: object) -> list[str]:
    """One option as command-line words."""
    name = NAME_FLAGS[group] if option == "_name" else "--" + option.replace("_", "-")
    if isinstance(value, bool):
        return [name] if value else []  # every switch used here is off when it is not given
    if isinstance(value, list):
        value = ",".join(str(item) for item in value)
    return [name, str(value)]
