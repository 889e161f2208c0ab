"""Input embeddings and output layers of the models in ``modeling_alibi_lm.py``.

Shapes: B batch, T new tokens, C model width, V vocabulary.
"""

import torch
from torch import Tensor, nn


def band_bounds(bands, vocab_size):
    """Return the first token ID, the end (exclusive), and the width of each band.

    Args:
        bands: (first token ID, width) of each band.
    """
    bounds = []
    for index, (first, width) in enumerate(bands):
        is_last = index == len(bands) - 1
        end = vocab_size if is_last else bands[index + 1][0]
        bounds.append((first, end, width))
    return bounds


class AdaptiveEmbedding(nn.Module):
    """Adaptive input: rare words have narrow embeddings, projected to the model width.

    Source: Baevski & Auli 2019, https://arxiv.org/abs/1809.10853.
    """

    def __init__(self, config):
        super().__init__()
        self.bounds = band_bounds(config.embedding_bands, config.vocab_size)
        self.bands = nn.ModuleList()
        for first, end, width in self.bounds:
            words = nn.Embedding(end - first, width)
            project = nn.Linear(width, config.hidden_size, bias=False)
            self.bands.append(nn.Sequential(words, project))

    def forward(self, input_ids):
        """Return the embeddings, (B, T, C), of token IDs, (B, T)."""
        # The first band starts at token ID 0, so the others replace its vectors.
        embeddings: Tensor | None = None
        for (first, end, _), band in zip(self.bounds, self.bands):
            inside = (input_ids >= first) & (input_ids < end)
            vectors = band((input_ids - first).clamp(0, end - first - 1))
            if embeddings is None:
                embeddings = vectors
            else:
                embeddings = torch.where(inside.unsqueeze(-1), vectors, embeddings)
        return embeddings


class TokenEmbedding(nn.Module):
    """Embedding matrix with a projection, which the model applies after it scales the vectors."""

    def __init__(self, config):
        super().__init__()
        width = config.embedding_width
        self.words = nn.Embedding(config.vocab_size, width, config.pad_token_id)
        self.project = projection(width, config.hidden_size)

    def forward(self, input_ids):
        """Return the embeddings before projection of token IDs, (B, T)."""
        return self.words(input_ids)


class LinearHead(nn.Module):
    """Output layer with one matrix."""

    def __init__(self, config):
        super().__init__()
        self.excluded_symbols = config.excluded_symbols or ()
        self.project = projection(config.hidden_size, config.output_width)
        self.words = nn.Linear(config.output_width, config.vocab_size, bias=False)

    def forward(self, x):
        """Return the logits, (B, T, V), of hidden states, (B, T, C)."""
        logits = self.words(self.project(x))
        for symbol in self.excluded_symbols:
            logits[..., symbol] = -torch.inf
        return logits


class AdaptiveSoftmax(nn.Module):
    """Output layer with a narrow matrix for each band of rare words.

    Source: Grave et al. 2017, https://arxiv.org/abs/1609.04309.
    """

    def __init__(self, config):
        super().__init__()
        width = config.output_width
        bounds = band_bounds(config.softmax_bands, config.vocab_size)
        num_frequent = bounds[0][1]
        rare_bounds = bounds[1:]
        self.project = projection(config.hidden_size, width)
        self.words = nn.Linear(width, num_frequent, bias=False)
        self.classes = nn.Linear(width, len(rare_bounds), bias=False)
        self.tails = nn.ModuleList()
        for first, end, tail_width in rare_bounds:
            narrow = nn.Linear(width, tail_width, bias=False)
            words = nn.Linear(tail_width, end - first, bias=False)
            self.tails.append(nn.Sequential(narrow, words))

    def forward(self, x):
        """Return log-probabilities, (B, T, V); their softmax is the distribution."""
        x = self.project(x)
        words = self.words(x)
        num_frequent = words.shape[-1]
        head = torch.cat([words, self.classes(x)], dim=-1).log_softmax(-1)
        bands = [head[..., :num_frequent]]
        for index, tail in enumerate(self.tails):
            class_log_probability = head[..., num_frequent + index, None]
            bands.append(class_log_probability + tail(x).log_softmax(-1))
        return torch.cat(bands, dim=-1)  # (B, T, V)


def projection(in_features, out_features):
    """Return a linear map without bias, or the identity if both widths are equal."""
    if in_features == out_features:
        return nn.Identity()
    return nn.Linear(in_features, out_features, bias=False)
