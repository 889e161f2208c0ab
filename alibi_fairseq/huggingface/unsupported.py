"""Errors for models that exist in only one of the two libraries."""

from __future__ import annotations

from ..errors import UserInputError


def not_in_transformers(option: str) -> UserInputError:
    """Return the error for one of our options that models of transformers lack."""
    return UserInputError(
        f"Cannot export a model with {option}, which no model of transformers has. Train without "
        "it."
    )


def not_in_fairseq(setting: str) -> UserInputError:
    """Return the error for a setting in ``config.json`` that our decoder lacks."""
    return UserInputError(
        f"Cannot import a model with {setting}, which our decoder does not have. `alibi-fairseq "
        "eval` evaluates it in transformers."
    )
