"""Types of the values of a comparison's configuration, as pydantic validates them.

:mod:`..evaluation.option_types` has those that an evaluation needs as well.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer

from ..evaluation.option_types import Float, NonEmptyListOrItem, as_list
from ..positions.display_names import METHOD_NAMES
from ..positions.spec import MethodSpec

#: Methods selected by ``all``: the paper's four, learned, Transformer-XL, and none. ``later``
#: selects the methods of this package that were published after the paper.
PAPER_METHODS = ("sinusoidal", "learned", "rotary", "t5", "alibi", "transformer_xl", "none")
#: Options of ``fairseq-train`` that the configuration determines.
RESERVED = (
    "--arch",
    "--position-method",
    "--tokens-per-sample",
    "--sample-break-mode",
    "--required-batch-size-multiple",
    "--max-tokens",
    "--batch-size",
    "--max-sentences",
    "--max-update",
    "--seed",
    "--save-dir",
    "--lr",
    "--lr-scheduler",
    "--warmup-updates",
    "--user-dir",
    "--update-freq",
    "--distributed-world-size",
    "--log-format",
    "--log-interval",
)
#: Options of ``fairseq-train`` that end some trainings earlier than others.
EARLY_STOPS = ("--patience", "--max-epoch", "--stop-time-hours", "--stop-min-lr")
#: Options of ``fairseq-train`` with which a training has no last checkpoint.
NO_CHECKPOINT = ("--no-save", "--no-last-checkpoints")


def as_methods(value: object) -> list:
    """Return method names, with ``all`` and ``later`` replaced by the methods they stand for."""
    names: list = []
    for name in as_list(value):
        if name == "all":
            names += PAPER_METHODS
        elif name == "later":
            names += [method for method in METHOD_NAMES if method not in PAPER_METHODS]
        else:
            names.append(name)
    return as_list(names)


def as_method(value: object) -> MethodSpec:
    """Return a method from the notation of :mod:`..positions.spec`."""
    return value if isinstance(value, MethodSpec) else MethodSpec.parse(str(value))


def without_repetitions(methods: tuple[MethodSpec, ...]) -> tuple[MethodSpec, ...]:
    """Return each method once, even if it is written in two ways."""
    return tuple(dict.fromkeys(methods))


def as_flags(value: Any) -> list[str]:
    """Return options of ``fairseq-train`` as a list. YAML may give them as one string.

    Raises:
        ValueError: the value is neither text nor a list, the configuration determines one of the
            options, or one stops some models earlier than others, saves no last checkpoint,
            disables the validation, or would apply again to a resumed training.
    """
    if not isinstance(value, str | list | tuple):
        raise ValueError("must be one text or a list of texts; remove the key if it is empty")
    flags = shlex.split(value) if isinstance(value, str) else list(value)
    option_names = [str(flag).partition("=")[0] for flag in flags]
    reserved = [name for name in RESERVED if name in option_names]
    if reserved:
        raise ValueError(f"the comparison itself sets {', '.join(reserved)}")
    for name in EARLY_STOPS:
        if name in option_names:
            raise ValueError(f"{name} may stop models after different numbers of tokens; remove it")
    for name in NO_CHECKPOINT:
        if name in option_names:
            raise ValueError(f"{name} leaves no checkpoint to evaluate; remove it")
    if "--disable-validation" in option_names:
        raise ValueError(
            "--disable-validation prevents training.json, which the comparison reads; remove it"
        )
    for name in option_names:
        if name == "--restore-file" or name.startswith("--reset-"):
            raise ValueError(
                f"{name} would apply again whenever a training is resumed; start from a checkpoint "
                "with --finetune-from-model (its weights) or --continue-once instead"
            )
    return flags


def as_eval_length(value: object) -> int | str:
    """Validate an evaluation length for :func:`tokens_at`.

    Raises:
        ValueError: the value is neither a number of tokens nor a multiple of the training length.
    """
    text = str(value)
    if re.fullmatch(r"[1-9]\d*", text):
        return int(text)
    if re.fullmatch(r"[1-9]\d*x(\+[1-9]\d*)?", text):
        return text
    raise ValueError("must be a number of tokens, or like 4x or 1x+50")


def tokens_at(lengths: Iterable[int | str], train_length: int) -> tuple[int, ...]:
    """Return evaluation lengths in tokens, each once.

    Args:
        lengths: numbers of tokens, multiples of the training length (``4x``), or multiples plus a
            number of tokens (``1x+50``).
        train_length: training length in tokens.
    """
    tokens = []
    for length in lengths:
        # "4x" gives ("4", ""), "1x+50" gives ("1", "+50"), and "128" gives ("", "128").
        multiple, _, extra = str(length).rpartition("x")
        in_tokens = 0
        if multiple:
            in_tokens += int(multiple) * train_length
        if extra:
            in_tokens += int(extra)
        tokens.append(in_tokens)
    return tuple(as_list(tokens))


def at_length(text: str, train_length: int) -> str:
    """Return a text with numbers of tokens for ``{train_length}`` and ``{0.75*train_length}``."""

    def tokens(match: re.Match) -> str:
        factor = float(match[1] or 1)
        return str(round(factor * train_length))

    return re.sub(r"\{(?:(\d*\.?\d+)\*)?train_length\}", tokens, text)


# Types of the keys. An invalid value raises ValueError, which pydantic reports with its key.
#: Evaluation length in tokens or in training lengths (:func:`tokens_at`).
EvalLength = Annotated[int | str, BeforeValidator(as_eval_length)]
LearningRate = Annotated[Float, Field(gt=0)]
Method = Annotated[
    MethodSpec,
    BeforeValidator(as_method),
    PlainSerializer(lambda method: method.notation, return_type=str),
]
Methods = Annotated[
    NonEmptyListOrItem[Method], BeforeValidator(as_methods), AfterValidator(without_repetitions)
]
Flags = Annotated[tuple[str, ...], BeforeValidator(as_flags)]
