"""Configuration of the language models in ``modeling_alibi_lm.py``."""

from transformers import PreTrainedConfig


class AlibiLmConfig(PreTrainedConfig):
    """Shape of the model.

    Args:
        position_method: a key of ``POSITIONS``.
        train_length: tokens per training sample.
        normalize_before, final_norm, embedding_norm: where layer norms stand.
        embedding_scale: factor of the token embeddings.
        embedding_bands, softmax_bands: adaptive input and softmax, the most frequent words first:
            a list of (first word, width) pairs; None for a plain matrix.
        embedding_width, output_width: of the plain matrices; differs from ``hidden_size`` where
            there is a projection.
        alibi_scale: ``alibi``: what the slopes are divided by; None for keys / train_length.
        alibi_bias_max: ``alibi``: largest exponent of the slopes.
        clamp_learned_positions: ``learned``: repeat the last position past the table.
        sliding_window: keys that a token attends to, its own included; None for all before it.
        memory_length: ``transformer_xl``: past states to look back at, see
            :meth:`AlibiLmForCausalLM.keep_memory`.
    """

    model_type = "alibi_lm"
    keys_to_ignore_at_inference = ["past_key_values"]

    def __init__(
        self,
        vocab_size=1000,
        hidden_size=512,
        intermediate_size=2048,
        num_hidden_layers=6,
        num_attention_heads=8,
        hidden_act="relu",
        position_method="alibi",
        train_length=512,
        normalize_before=True,
        final_norm=True,
        embedding_norm=False,
        embedding_scale=1.0,
        embedding_bands=None,
        softmax_bands=None,
        embedding_width=None,
        output_width=None,
        alibi_scale=1.0,
        alibi_bias_max=8.0,
        clamp_learned_positions=False,
        sliding_window=None,
        memory_length=0,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        use_cache=True,
        initializer_range=0.02,
        tie_word_embeddings=True,
        bos_token_id=2,
        pad_token_id=1,
        eos_token_id=2,
        **kwargs,
    ):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.hidden_act = hidden_act
        self.position_method = position_method
        self.train_length = train_length
        self.normalize_before = normalize_before
        self.final_norm = final_norm
        self.embedding_norm = embedding_norm
        self.embedding_scale = embedding_scale
        self.embedding_bands = embedding_bands
        self.softmax_bands = softmax_bands
        self.embedding_width = embedding_width or hidden_size
        self.output_width = output_width or hidden_size
        self.alibi_scale = alibi_scale
        self.alibi_bias_max = alibi_bias_max
        self.clamp_learned_positions = clamp_learned_positions
        self.sliding_window = sliding_window
        self.memory_length = memory_length
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.activation_dropout = activation_dropout
        self.use_cache = use_cache
        self.initializer_range = initializer_range
        super().__init__(
            tie_word_embeddings=tie_word_embeddings,
            bos_token_id=bos_token_id,
            pad_token_id=pad_token_id,
            eos_token_id=eos_token_id,
            **kwargs,
        )

    @property
    def head_dim(self):
        return self.hidden_size // self.num_attention_heads
