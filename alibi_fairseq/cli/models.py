"""The command ``alibi-fairseq models``."""

from __future__ import annotations

from dataclasses import dataclass

from .options import CliCommand, plugin_option


@dataclass
class Models(CliCommand):
    """Options of ``alibi-fairseq models``, which lists registered models and position methods."""

    user_dir: str | None = plugin_option()

    def __call__(self) -> None:
        """Print the models of this package and of plugins, smallest first."""
        from fairseq.models import MODEL_REGISTRY

        from ..models import AlibiLanguageModel
        from ..positions import METHODS, MethodSpec
        from ..positions.model_patterns import MODEL_PATTERNS
        from ..reporting import markdown

        configs = {}
        for name, model in MODEL_REGISTRY.items():
            if issubclass(model, AlibiLanguageModel):
                configs[name] = model.config()
        headers = ["--arch", "layers", "width", "heads", "KV heads", "FFN"]
        headers += ["parameters", "embeddings"]
        rows = []
        for name in sorted(configs, key=lambda name: layer_parameters(configs[name])):
            config = configs[name]
            row = [
                name,
                str(config.decoder_layers),
                str(config.decoder_embed_dim),
                str(config.decoder_attention_heads),
                str(config.key_value_heads or config.decoder_attention_heads),
                f"{config.decoder_ffn_embed_dim} {config.ffn}",
                f"{layer_parameters(config) / 1e6:,.1f}M",
                "adaptive" if config.adaptive_input else "tied",
            ]
            rows.append(row)
        print(markdown.table(headers, rows))
        print("parameters: layers only; token embeddings add width × dictionary entries")
        print(f"--position-method: {', '.join(METHODS)}")
        print("layer patterns of open models, for compare --methods, and their options of train:")
        for name, pattern in MODEL_PATTERNS.items():
            print(f"  {name}: {' '.join(MethodSpec.parse(name).flags)}  # {pattern.models}")


def layer_parameters(config) -> int:
    """Return the parameters of all layers: attention, feed-forward network, and norms."""
    width = config.decoder_embed_dim
    inner = config.decoder_ffn_embed_dim
    heads = config.decoder_attention_heads
    key_width = width * (config.key_value_heads or heads) // heads
    fc1_width = 2 * inner if config.ffn == "swiglu" else inner
    # Inputs and outputs of the linear layers.
    shapes = [(width, width), (width, key_width), (width, key_width), (width, width)]
    shapes += [(width, fc1_width), (inner, width)]
    total = 0
    for inputs, outputs in shapes:
        total += inputs * outputs
        if config.linear_biases:
            total += outputs
    norm = width if config.normalization == "rms" else 2 * width
    total += 2 * norm
    if config.normalize_queries_keys:
        total += 2 * width // heads
    return config.decoder_layers * total
