"""Models that a study compares, and changes between their evaluations.

Evaluations have the notation of :mod:`.evaluation_key`, in training lengths of the study.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .estimates import Estimate, change_between
from .evaluation_key import EvaluationKey
from .losses import DocumentLosses, Losses

#: Stride of evaluations with overlapping windows, as the end of a notation.
SLIDING = "/0.125"


@dataclass(frozen=True)
class ComparedModels:
    """The models that the tests compare: the key ``tests`` of a study's YAML file.

    Attributes:
        corpus: text that they are trained and tested on.
        train_length: training length L of all models but those that E6 trains at 4 L.
        baseline: when E6's sinusoidal embeddings count as trained. ``lead``: the 95% interval of
            ALiBi's lead over them, both trained at 4 L, ends at
            :data:`.baseline.LARGEST_LEAD` or below. ``share``: they recover at least
            :data:`.baseline.SMALLEST_SHARE` of ALiBi's gain over no positions. Two finished
            studies keep that rule of their protocols, which most published baselines fail.
    """

    corpus: str
    train_length: int
    baseline: Literal["lead", "share"] = "lead"

    @property
    def sliding_stride(self) -> int:
        """Tokens scored per overlapping window."""
        return self.train_length // 8

    def key(self, evaluation: str) -> EvaluationKey:
        """Return the key of an evaluation whose numbers are training lengths.

        Args:
            evaluation: its notation, such as ``alibi-1@4/0.125``.
        """
        return EvaluationKey.parse(evaluation, self.corpus, self.train_length)


@dataclass(frozen=True)
class ComparedLosses:
    """Losses of the models that a study compares, by evaluation (:meth:`ComparedModels.key`).

    Attributes:
        models: the models.
        by_key: losses of all finished models.
    """

    models: ComparedModels
    by_key: Losses

    def find(self, evaluation: str) -> DocumentLosses | None:
        """Return the losses of an evaluation; None without them."""
        return self.by_key.get(self.models.key(evaluation))

    def change(self, first: str, second: str) -> Estimate | None:
        """Estimate the change from the second to the first evaluation; None if it is not known."""
        return change_between(self.by_key, self.models.key(first), self.models.key(second))
