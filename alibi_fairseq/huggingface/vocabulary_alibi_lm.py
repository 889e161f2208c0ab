"""Input and output layers of the models in ``modeling_alibi_lm.py``: plain or adaptive.

Shapes: B batch, T new tokens, C model width, V vocabulary.
"""

import torch
from torch import nn


def band_ends(bands, vocab_size):
    return [first for first, _ in bands[1:]] + [vocab_size]


class AdaptiveEmbedding(nn.Module):
    """Baevski & Auli 2019: narrow embeddings for rare words, each projected to the model width."""

    def __init__(self, config):
        super().__init__()
        self.bounds = [
            (first, end)
            for (first, _), end in zip(
                config.embedding_bands, band_ends(config.embedding_bands, config.vocab_size)
            )
        ]
        self.bands = nn.ModuleList(
            nn.Sequential(
                nn.Embedding(end - first, width), nn.Linear(width, config.hidden_size, bias=False)
            )
            for (first, end), (_, width) in zip(self.bounds, config.embedding_bands)
        )

    def forward(self, input_ids):
        result: torch.Tensor | None = None
        for (first, end), band in zip(self.bounds, self.bands):
            inside = ((input_ids >= first) & (input_ids < end)).unsqueeze(-1)
            vectors = band((input_ids - first).clamp(0, end - first - 1))
            result = vectors if result is None else torch.where(inside, vectors, result)
        return result


class Embedding(nn.Module):
    """A plain embedding. The model projects it to its own width after scaling it."""

    def __init__(self, config):
        super().__init__()
        width = config.embedding_width
        self.words = nn.Embedding(config.vocab_size, width, config.pad_token_id)
        self.project = projection(width, config.hidden_size)

    def forward(self, input_ids):
        return self.words(input_ids)


class Softmax(nn.Module):
    """A plain output layer: (B, T, C) to (B, T, V)."""

    def __init__(self, config):
        super().__init__()
        self.project = projection(config.hidden_size, config.output_width)
        self.words = nn.Linear(config.output_width, config.vocab_size, bias=False)

    def forward(self, x):
        return self.words(self.project(x))


class AdaptiveSoftmax(nn.Module):
    """Grave et al. 2017. Returns log-probabilities, whose softmax is the distribution."""

    def __init__(self, config):
        super().__init__()
        width = config.output_width
        ends = band_ends(config.softmax_bands, config.vocab_size)
        self.project = projection(config.hidden_size, width)
        self.words = nn.Linear(width, ends[0], bias=False)
        self.classes = nn.Linear(width, len(ends) - 1, bias=False)
        self.tails = nn.ModuleList(
            nn.Sequential(
                nn.Linear(width, narrow, bias=False), nn.Linear(narrow, end - first, bias=False)
            )
            for (first, narrow), end in zip(config.softmax_bands[1:], ends[1:])
        )

    def forward(self, x):
        x = self.project(x)
        words = self.words(x)
        head = torch.cat([words, self.classes(x)], dim=-1).log_softmax(-1)
        parts = [head[..., : words.shape[-1]]]
        for index, tail in enumerate(self.tails):
            prior = head[..., words.shape[-1] + index, None]
            parts.append(prior + tail(x).log_softmax(-1))
        return torch.cat(parts, dim=-1)  # (B, T, V)


def projection(width, wanted):
    """A linear map without bias, where widths differ."""
    return nn.Identity() if width == wanted else nn.Linear(width, wanted, bias=False)
