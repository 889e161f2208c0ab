"""What the demonstration trains and measures, in its full and its quick form."""

from __future__ import annotations

from dataclasses import dataclass

TRAIN_LENGTH = 64
SEED = 1

#: Flags a method needs besides ``--position-method``, for training and for evaluation.
METHOD_FLAGS: dict[str, dict[str, list[str]]] = {
    # Its table ends with the training length; without the override the evaluation would stop there.
    "learned": {"evaluate": ["--model-overrides", "{'clamp_learned_positions': True}"]},
    # One row reads the whole text, so that the memory is empty once and not once per row.
    "transformer_xl": {
        "train": ["--task", "segment_language_modeling", "--mem-len", str(TRAIN_LENGTH)],
        "evaluate": ["--task", "segment_language_modeling", "--batch-size", "1"],
    },
}


@dataclass(frozen=True)
class Settings:
    """Size of one demonstration.

    Attributes:
        vocabulary: sentencepiece pieces.
        updates: optimiser steps per model.
        tokens: tokens per step.
        lengths: evaluation lengths, in tokens.
    """

    vocabulary: int
    updates: int
    tokens: int
    lengths: tuple[int, ...]


# 600 updates of 4,096 tokens are four passes over the 0.6M tokens of the embedded text.
FULL = Settings(vocabulary=2000, updates=600, tokens=4096, lengths=(64, 128, 256, 512, 1024))
# Enough to see every step work; too little to learn much.
QUICK = Settings(vocabulary=1000, updates=60, tokens=2048, lengths=(64, 256, 1024))


def task_flags(method: str, stage: str) -> list[str]:
    """``--task …`` and further flags of a method; ``stage`` is ``train`` or ``evaluate``."""
    flags = METHOD_FLAGS.get(method, {}).get(stage, [])
    return flags if "--task" in flags else ["--task", "language_modeling", *flags]
