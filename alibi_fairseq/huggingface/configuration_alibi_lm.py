"""Configuration of the language models in ``modeling_alibi_lm.py``."""

from transformers import PreTrainedConfig

FIELDS = {
    "vocab_size": 1000,
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    # Key and value heads, each shared by a group of query heads. None: num_attention_heads.
    "num_key_value_heads": None,
    "hidden_act": "relu",
    # Feed-forward network: three matrices, one of which is a gate with the activation.
    "gated_ffn": False,
    # Biases of the linear layers of attention and feed-forward network.
    "linear_biases": True,
    # A key of POSITIONS.
    "position_method": "alibi",
    # Tokens per training sample.
    "train_length": 512,
    # Norms: "layer" or "rms"; before each sublayer (False: after it), after the last layer, and
    # after the embeddings.
    "normalization": "layer",
    "normalize_before": True,
    "final_norm": True,
    "embedding_norm": False,
    # RMSNorm of each query and key head, before positions act on them.
    "normalize_queries_keys": False,
    "rms_norm_eps": 1e-6,
    # Factor of the token embeddings.
    "embedding_scale": 1.0,
    # Adaptive input and adaptive softmax: (first token ID, width) of each band, the most frequent
    # words first. None: one matrix.
    "embedding_bands": None,
    "softmax_bands": None,
    # Widths of the input and output matrix. If they differ from hidden_size, there is a projection.
    # None: hidden_size.
    "embedding_width": None,
    "output_width": None,
    # Token IDs without probability, such as fairseq's symbols that an imported model lacks.
    # None: there are none.
    "excluded_symbols": None,
    # alibi: divisor of the slopes. None: number of keys / train_length, but at least 1.
    "alibi_scale": 1.0,
    # alibi: the smallest slope is 2^-alibi_bias_max.
    "alibi_bias_max": 8.0,
    # learned: repeat the last position past the table.
    "clamp_learned_positions": False,
    # rotary with options: rope_parameters of GPT-NeoX; None for the plain rotation.
    "rotary_parameters": None,
    # Number of keys that a token attends to, including its own. None: all up to its own.
    "sliding_window": None,
    # transformer_xl: number of past states to attend to (see AlibiLmForCausalLM.keep_memory).
    "memory_length": 0,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "use_cache": True,
    "initializer_range": 0.02,
}
#: fairseq's token IDs of special symbols. Its language models begin a text with </s>.
SPECIAL_TOKEN_IDS = {"bos_token_id": 2, "pad_token_id": 1, "eos_token_id": 2}


class AlibiLmConfig(PreTrainedConfig):
    """Configuration of a model. The keyword arguments are ``FIELDS``."""

    model_type = "alibi_lm"
    keys_to_ignore_at_inference = ["past_key_values", "cache"]

    def __init__(self, **kwargs):
        for name, default in FIELDS.items():
            setattr(self, name, kwargs.pop(name, default))
        scale = self.alibi_scale
        if scale is not None and not (isinstance(scale, (int, float)) and scale > 0):
            raise ValueError(
                f"alibi_scale must be a positive number or None (dynamic), not {scale!r}."
            )
        for name, default in (
            ("num_key_value_heads", self.num_attention_heads),
            ("embedding_width", self.hidden_size),
            ("output_width", self.hidden_size),
        ):
            setattr(self, name, getattr(self, name) or default)
        super().__init__(**{"tie_word_embeddings": True, **SPECIAL_TOKEN_IDS, **kwargs})

    @property
    def head_dim(self):
        return self.hidden_size // self.num_attention_heads
