"""Configuration of the language models in ``modeling_alibi_lm.py``."""

from transformers import PreTrainedConfig

FIELDS = {
    "vocab_size": 1000,
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "hidden_act": "relu",
    # A key of POSITIONS.
    "position_method": "alibi",
    # Tokens per training sample.
    "train_length": 512,
    # Where layer norms stand: in front of each sublayer, behind the last, behind the embeddings.
    "normalize_before": True,
    "final_norm": True,
    "embedding_norm": False,
    # Factor of the token embeddings.
    "embedding_scale": 1.0,
    # Adaptive input and softmax: (first word, width) of each band, the most frequent words first;
    # None for a plain matrix of the widths below, which differ from hidden_size (None) where there
    # is a projection.
    "embedding_bands": None,
    "softmax_bands": None,
    "embedding_width": None,
    "output_width": None,
    # Token IDs without probability: fairseq's symbols that an imported model lacks;
    # None: all have some.
    "excluded_symbols": None,
    # alibi: what the slopes are divided by, None for keys / train_length; their largest exponent.
    "alibi_scale": 1.0,
    "alibi_bias_max": 8.0,
    # learned: repeat the last position past the table.
    "clamp_learned_positions": False,
    # rotary with options: rope_parameters of GPT-NeoX; None for the plain rotation.
    "rotary_parameters": None,
    # Keys that a token attends to, its own included; None for all before it.
    "sliding_window": None,
    # transformer_xl: past states to look back at, see AlibiLmForCausalLM.keep_memory.
    "memory_length": 0,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "use_cache": True,
    "initializer_range": 0.02,
}
#: fairseq's numbers of special symbols; its language models begin a text with </s>.
SYMBOLS = {"bos_token_id": 2, "pad_token_id": 1, "eos_token_id": 2}


class AlibiLmConfig(PreTrainedConfig):
    """Shape of the model: ``FIELDS``, by keyword."""

    model_type = "alibi_lm"
    keys_to_ignore_at_inference = ["past_key_values", "cache"]

    def __init__(self, **kwargs):
        for name, default in FIELDS.items():
            setattr(self, name, kwargs.pop(name, default))
        for width in ("embedding_width", "output_width"):
            setattr(self, width, getattr(self, width) or self.hidden_size)
        super().__init__(**{"tie_word_embeddings": True, **SYMBOLS, **kwargs})

    @property
    def head_dim(self):
        return self.hidden_size // self.num_attention_heads
