"""``alibi-fairseq models``: the registered models with their sizes, and the position methods."""

from __future__ import annotations

import argparse

_COLUMNS = ("--arch", "layers", "width", "heads", "FFN", "parameters", "embeddings")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: there are no options."""


def run(args: argparse.Namespace) -> None:
    from ..positions import METHODS

    rows = [_COLUMNS, *sizes()]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip())
    print("\nparameters: of the layers; token embeddings come on top, width × dictionary entries")
    print(f"--position-method: {', '.join(METHODS)}")


def sizes() -> list[tuple[str, ...]]:
    """A row per registered model of this project or a plugin, smallest first."""
    from fairseq.models import MODEL_REGISTRY

    from ..models import AlibiLanguageModel

    found = []
    for name, model in MODEL_REGISTRY.items():
        if issubclass(model, AlibiLanguageModel):
            found.append((name, model.config()))
    return [_row(*each) for each in sorted(found, key=lambda each: layer_parameters(each[1]))]


def layer_parameters(config) -> int:
    """Parameters of all layers: attention, feed-forward network and two norms each."""
    width, inner = config.decoder_embed_dim, config.decoder_ffn_embed_dim
    attention = 4 * (width * width + width)
    feed_forward = 2 * width * inner + inner + width
    return config.decoder_layers * (attention + feed_forward + 4 * width)


def _row(name: str, config) -> tuple[str, ...]:
    return (
        name,
        str(config.decoder_layers),
        str(config.decoder_embed_dim),
        str(config.decoder_attention_heads),
        str(config.decoder_ffn_embed_dim),
        f"{layer_parameters(config) / 1e6:,.1f}M",
        "adaptive" if config.adaptive_input else "tied",
    )
