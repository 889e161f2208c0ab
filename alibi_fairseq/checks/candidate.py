"""Position method under test, and the models that it is tested in."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..models import AlibiLanguageModel
from .small_model import build_model, random_tokens

TRAIN_LENGTH = 32
#: Tokens of a text beyond the training length.
LONG = 4 * TRAIN_LENGTH
HEADS = 4
#: Large enough for every attention backend.
HEAD_DIM = 32


@dataclass(frozen=True)
class Candidate:
    """Position method with its options.

    Attributes:
        name: name in the table.
        flags: options of ``fairseq-train`` that select it.
        device: device of the models.
    """

    name: str
    flags: tuple[str, ...]
    device: torch.device

    def build(self, *flags: str, train_length: int = TRAIN_LENGTH) -> AlibiLanguageModel:
        """Build a model with random weights, the same in every call, in evaluation mode.

        Args:
            flags: more options of ``fairseq-train``.
            train_length: training length in tokens.
        """
        layers = max(2, *(flag.count(",") + 1 for flag in self.flags))
        shape = ["--decoder-layers", str(layers), "--decoder-attention-heads", str(HEADS)]
        shape += ["--decoder-embed-dim", str(HEADS * HEAD_DIM), "--decoder-ffn-embed-dim", "64"]
        torch.manual_seed(1)
        model = build_model(
            "--arch",
            "alibi_lm",
            *shape,
            *self.flags,
            *flags,
            tokens_per_sample=train_length,
            sequential=True,
        )
        vary_parameters(model.decoder.embed_positions)
        return model.to(self.device).eval()

    @functools.cached_property
    def model(self) -> AlibiLanguageModel:
        """Model without more options."""
        return self.build()

    @functools.cached_property
    def long_scores(self) -> Tensor | Exception:
        """Scores of a text beyond the training length, (1, T, V), or the error that it causes."""
        try:
            with torch.no_grad():
                return self.model(self.random_tokens(1, LONG))[0]
        except Exception as error:
            return error

    @property
    def length(self) -> int:
        """Tokens of the texts in the other checks: beyond the training length if possible."""
        scores = self.long_scores
        is_valid = isinstance(scores, Tensor) and bool(scores.isfinite().all())
        return LONG if is_valid else TRAIN_LENGTH

    def random_tokens(self, batch: int, length: int) -> Tensor:
        """Return random words, (B, T)."""
        return random_tokens(batch, length).to(self.device)


@torch.no_grad()
def vary_parameters(positions: nn.Module) -> None:
    """Make the parameters of a method different, because equal or zero ones hide mistakes.

    A parameter keeps its sign and its size, so that it stays in the domain of the method.
    """
    for parameter in positions.parameters():
        varied = parameter * (0.5 + torch.rand_like(parameter))
        drawn = 0.5 * torch.randn_like(parameter)
        parameter.copy_(torch.where(parameter == 0, drawn, varied))
