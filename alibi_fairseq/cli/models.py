"""The command ``alibi-fairseq models``."""

from __future__ import annotations

from dataclasses import dataclass

from ..positions import METHODS
from ..reporting import markdown
from .options import CliCommand, plugin_option


@dataclass
class Models(CliCommand):
    """Options of ``alibi-fairseq models``, which lists registered models and position methods."""

    user_dir: str | None = plugin_option()

    def __call__(self) -> None:
        """Print the models of this package and of plugins, smallest first."""
        from fairseq.models import MODEL_REGISTRY

        from ..models import AlibiLanguageModel

        configs = {}
        for name, model in MODEL_REGISTRY.items():
            if issubclass(model, AlibiLanguageModel):
                configs[name] = model.config()
        headers = ["--arch", "layers", "width", "heads", "FFN", "parameters", "embeddings"]
        rows = []
        for name in sorted(configs, key=lambda name: layer_parameters(configs[name])):
            config = configs[name]
            row = [
                name,
                str(config.decoder_layers),
                str(config.decoder_embed_dim),
                str(config.decoder_attention_heads),
                str(config.decoder_ffn_embed_dim),
                f"{layer_parameters(config) / 1e6:,.1f}M",
                "adaptive" if config.adaptive_input else "tied",
            ]
            rows.append(row)
        print(markdown.table(headers, rows))
        print("parameters: layers only; token embeddings add width × dictionary entries")
        print(f"--position-method: {', '.join(METHODS)}")


def layer_parameters(config) -> int:
    """Return the parameters of all layers: attention, feed-forward network, and two norms each."""
    width, inner = config.decoder_embed_dim, config.decoder_ffn_embed_dim
    attention = 4 * (width * width + width)
    feed_forward = 2 * width * inner + inner + width
    return config.decoder_layers * (attention + feed_forward + 4 * width)
