"""Trained models, and the notation of their evaluations.

Tests, tables, and figures of a study name an evaluation METHOD-TRAINED@LENGTH/STRIDE. In
``alibi-1@4/0.125``, the position method is ALiBi, and the numbers are in training lengths L of the
study (:class:`.compared_models.ComparedModels`). With L = 128, the models were trained on 128
tokens, and are evaluated in windows of 512 tokens of which each scores the last 16. Without a
stride, as in ``sinusoidal-4@4``, windows don't overlap.

- ``alibi-1@4:limited`` ends in a variant: a set of options that this evaluation overrides.
- ``alibi/alibi_slopes=even-1@16`` has an option of the method.
- ``books/alibi-128@512`` begins with a corpus, if it isn't the one of the compared models. These
  numbers are tokens, as in all of ``small_models/secondary_changes.csv``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from alibi_fairseq.positions.spec import LayerMethod, MethodSpec


class TrainedModel(NamedTuple):
    """What the seeds of a model share.

    Attributes:
        corpus: the text that it was trained on.
        method: its position method (:func:`method_notation`).
    """

    corpus: str
    method: str
    train_length: int

    def run_name(self, seed: int | None) -> str:
        """Return the name of the run of a seed, and of the folder that keeps its results."""
        return f"{self.corpus}-{self.method.replace('/', '-')}-{self.train_length}-seed{seed}"


def method_notation(method: MethodSpec) -> str:
    """Return the notation of a method, with the options that are part of its name.

    Others, such as a distance that grows with the training length, are not.

    Args:
        method: the same method in all layers.
    """
    (layer,) = method.layers
    return MethodSpec((LayerMethod(layer.name, layer.label_options),)).notation


_EVALUATION = re.compile(
    r"(?:(?P<corpus>\w+)/)?(?P<method>\w+(?:/\w+=[\w.]+)*)-(?P<trained>\d+)@(?P<length>\d+)"
    r"(?:/(?P<stride>[\d.]+))?(?::(?P<variant>\w+))?"
)


@dataclass(frozen=True)
class EvaluationKey:
    """One evaluation of the models of a method and training length.

    Attributes:
        corpus: the text that the models were trained on.
        method: their position method (:func:`method_notation`).
        length: tokens per evaluation window.
        stride: tokens scored per window; equal to ``length`` without overlap.
        variant: name of a set of overridden options; empty as trained.
        tested_on: the text of the test split.
    """

    corpus: str
    method: str
    train_length: int
    length: int
    stride: int
    variant: str = ""
    tested_on: str = ""

    @classmethod
    def parse(cls, text: str, corpus: str, unit: int = 1) -> EvaluationKey:
        """Return the evaluation of a notation, which the top of this file explains.

        Args:
            text: the notation, such as ``alibi-1@4/0.125``.
            corpus: the text that the models were trained on, unless the text names it.
            unit: number of tokens of which the numbers are multiples, such as L.
        """
        match = _EVALUATION.fullmatch(text)
        assert match is not None, text
        length = int(match["length"]) * unit
        stride = round(float(match["stride"]) * unit) if match["stride"] else length
        corpus = match["corpus"] or corpus
        train_length = int(match["trained"]) * unit
        variant = match["variant"] or ""
        return cls(corpus, match["method"], train_length, length, stride, variant, corpus)

    @property
    def model(self) -> TrainedModel:
        """The models."""
        return TrainedModel(self.corpus, self.method, self.train_length)
