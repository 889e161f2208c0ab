"""Language models trained with alibi_fairseq, for transformers.

This file, ``configuration_alibi_lm.py``, ``positions_alibi_lm.py``, and ``embeddings_alibi_lm.py``
are copied into the folder of an exported model (``trust_remote_code=True``). They import only torch
and transformers. They implement the features that no architecture of transformers has: ALiBi with
any activation function, T5 bias, KERPLE, Sandwich, xPos, Transformer-XL, adaptive input, and
adaptive softmax, with the blocks of Vaswani et al. or of Llama and Qwen3.

Shapes: B batch, T new tokens, S keys (cached and new), C model width, H heads, G key and value
heads, D head size, V vocabulary.
"""

import inspect

import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache, GenerationMixin, PreTrainedModel
from transformers.activations import ACT2FN
from transformers.integrations.flex_attention import flex_attention_forward
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .configuration_alibi_lm import AlibiLmConfig
from .embeddings_alibi_lm import AdaptiveEmbedding, AdaptiveSoftmax, LinearHead, TokenEmbedding
from .positions_alibi_lm import POSITIONS, NoPositionsModule

#: Name of the key-value cache in calls and outputs: ``cache`` since transformers 5.24.
CACHE = "cache" if "cache" in BaseModelOutputWithPast.__dataclass_fields__ else "past_key_values"


def eager_attention_forward(
    module, query, key, value, attention_mask, scaling, dropout=0.0, position_bias=None, **kwargs
):
    """Compute attention with plain matrix products.

    Args:
        query: (B, H, T, D).
        key: (B, H, S, D); ``value`` has the same shape.
        attention_mask: term added to the scores, (B, 1, T, S), or None.
        position_bias: term added to the scores, (B or 1, H, T, S), or None.

    Returns:
        The output, (B, T, H, D), and the attention weights, (B, H, T, S).
    """
    scores = (query @ key.transpose(2, 3)) * scaling
    if position_bias is not None:
        scores = scores + position_bias
    if attention_mask is not None:
        scores = scores + attention_mask
    at_least_fp32 = torch.promote_types(scores.dtype, torch.float32)
    weights = scores.to(at_least_fp32).softmax(-1).to(query.dtype)
    dropped = nn.functional.dropout(weights, p=dropout, training=module.training)
    output = (dropped @ value).transpose(1, 2).contiguous()
    return output, weights


def add_bias_to_mask(attention_mask, position_bias, distance):
    """Return one mask that holds both the visible keys and the score bias, for SDPA.

    The ``sdpa`` function of older versions of transformers ignores ``position_bias`` (5.10 does).
    None stands for a mask that is only causal, which ``is_causal`` would replace.

    Args:
        attention_mask: visible keys as Booleans, or a term added to the scores, (B, 1, T, S);
            None if each query sees all keys that do not follow it.
        position_bias: (B or 1, H, T, S).
        distance: query position minus key position, (T, S).

    Returns:
        The term that is added to the scores, (B or 1, H, T, S).
    """
    if attention_mask is None:
        attention_mask = distance >= 0
    if attention_mask.dtype == torch.bool:
        hidden = torch.finfo(position_bias.dtype).min
        return torch.where(attention_mask, position_bias, hidden)
    return position_bias + attention_mask


def build_norm(config):
    """Return a norm of the model's type and width."""
    if config.normalization == "rms":
        return nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
    return nn.LayerNorm(config.hidden_size)


class AlibiLmAttention(nn.Module):
    """Causal self-attention with a score bias."""

    def __init__(self, config, layer_idx):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.is_causal = True
        self.scaling = config.head_dim**-0.5
        width = config.hidden_size
        key_width = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(width, width, bias=config.linear_biases)
        self.k_proj = nn.Linear(width, key_width, bias=config.linear_biases)
        self.v_proj = nn.Linear(width, key_width, bias=config.linear_biases)
        self.out_proj = nn.Linear(width, width, bias=config.linear_biases)
        self.q_norm: nn.Module = nn.Identity()
        self.k_norm: nn.Module = nn.Identity()
        if config.normalize_queries_keys:
            self.q_norm = nn.RMSNorm(config.head_dim, config.rms_norm_eps)
            self.k_norm = nn.RMSNorm(config.head_dim, config.rms_norm_eps)

    def forward(
        self,
        x,
        rotate,
        layer_bias,
        position_ids,
        distance,
        bias,
        attention_mask,
        kv_cache,
        **kwargs,
    ):
        """Compute the output, (B, T, C), and the attention weights if the backend returns them.

        Args:
            x: (B, T, C).
            rotate: method of the model's positions, not their module, which accelerate would move
                to the device of this layer.
            layer_bias: method of the model's positions.
            position_ids: (B or 1, T).
            distance: query position minus key position, (T, S).
            bias: score bias of all layers, (1, H, T, S); None if each layer has a separate one.
            attention_mask: mask in the format of the backend, or None.
            kv_cache: keys and values of earlier tokens, or None.
        """
        q = self.q_norm(self.split_heads(self.q_proj(x)))  # (B, H, T, D)
        k = self.k_norm(self.split_heads(self.k_proj(x)))  # (B, G, T, D)
        v = self.split_heads(self.v_proj(x))
        q, k = rotate(q, k, position_ids)
        if kv_cache is not None:
            k, v = kv_cache.update(k, v, self.layer_idx)  # (B, G, S, D)
        k = self.repeat_heads(k)  # (B, H, S, D)
        v = self.repeat_heads(v)
        if bias is None:
            bias = layer_bias(self.layer_idx, q, k, distance.clamp(min=0))
        backend = self.config._attn_implementation
        if backend == "sdpa" and bias is not None:
            attention_mask = add_bias_to_mask(attention_mask, bias, distance)
            bias = None
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(backend, eager_attention_forward)
        if bias is not None:
            # FlexAttention indexes the batch dimension, which does not broadcast there.
            kwargs["position_bias"] = bias.expand(len(q), -1, -1, -1)
        output, weights = attend(
            self,
            q,
            k,
            v,
            attention_mask,
            scaling=self.scaling,
            dropout=self.config.attention_dropout if self.training else 0.0,
            **kwargs,
        )
        return self.out_proj(output.reshape(x.shape)), weights

    def split_heads(self, x):
        """Reshape (B, T, heads · D) to (B, heads, T, D)."""
        return x.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)

    def repeat_heads(self, x):
        """Repeat each key or value head for its group of query heads, (B, H, S, D)."""
        group = self.config.num_attention_heads // self.config.num_key_value_heads
        return x if group == 1 else x.repeat_interleave(group, dim=1)


class AlibiLmDecoderLayer(GradientCheckpointingLayer):
    """Self-attention and feed-forward sublayer, with norms before or after each."""

    def __init__(self, config, layer_idx):
        super().__init__()
        self.config = config
        self.self_attn = AlibiLmAttention(config, layer_idx)
        self.self_attn_layer_norm = build_norm(config)
        width = config.hidden_size
        inner = config.intermediate_size
        # With a gate, fc1 computes the gate and the values that it multiplies.
        fc1_width = 2 * inner if config.gated_ffn else inner
        self.fc1 = nn.Linear(width, fc1_width, bias=config.linear_biases)
        self.fc2 = nn.Linear(inner, width, bias=config.linear_biases)
        self.final_layer_norm = build_norm(config)
        self.activation = ACT2FN[config.hidden_act]

    def forward(self, x, *attention_inputs, **kwargs):
        """Compute the output, (B, T, C), and the attention weights.

        ``attention_inputs`` are the arguments of :meth:`AlibiLmAttention.forward` after ``x``. They
        are positional, because reentrant gradient checkpointing passes no gradients to keyword
        arguments, such as a learned score bias.
        """
        residual = x
        if self.config.normalize_before:
            x = self.self_attn_layer_norm(x)
        x, weights = self.self_attn(x, *attention_inputs, **kwargs)
        x = residual + self.dropout(x, self.config.dropout)
        if not self.config.normalize_before:
            x = self.self_attn_layer_norm(x)

        residual = x
        if self.config.normalize_before:
            x = self.final_layer_norm(x)
        x = self.fc1(x)
        if self.config.gated_ffn:
            gate, x = x.chunk(2, dim=-1)
            x = self.activation(gate) * x
        else:
            x = self.activation(x)
        x = self.dropout(x, self.config.activation_dropout)
        x = residual + self.dropout(self.fc2(x), self.config.dropout)
        if not self.config.normalize_before:
            x = self.final_layer_norm(x)
        return x, weights

    def dropout(self, x, p):
        """Apply dropout with probability ``p`` during training."""
        return nn.functional.dropout(x, p=p, training=self.training)


class AlibiLmPreTrainedModel(PreTrainedModel):
    """Features and initialization of the models below."""

    config_class = AlibiLmConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["AlibiLmDecoderLayer"]
    _supports_sdpa = True
    # Older versions of transformers ignore the score bias here (5.10 does).
    _supports_flex_attn = "position_bias" in inspect.signature(flex_attention_forward).parameters
    _supports_flash_attn = False  # its kernels have no score bias
    _supports_attention_backend = True
    _can_compile_fullgraph = True

    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, NoPositionsModule):
            for parameter in module.parameters(recurse=False):
                nn.init.normal_(parameter, std=self.config.initializer_range)

    def resize_token_embeddings(self, *args, **kwargs):
        """Change the size of the vocabulary, unless it is divided into bands."""
        if self.config.embedding_bands or self.config.softmax_bands:
            raise ValueError(
                "Adaptive input and adaptive softmax cannot be resized. Their bands depend on the "
                "frequencies of the words."
            )
        return super().resize_token_embeddings(*args, **kwargs)


class AlibiLmModel(AlibiLmPreTrainedModel):
    """Transformer without its output layer."""

    def __init__(self, config):
        super().__init__(config)
        self.embed_tokens: AdaptiveEmbedding | TokenEmbedding
        if config.embedding_bands:
            self.embed_tokens = AdaptiveEmbedding(config)
        else:
            self.embed_tokens = TokenEmbedding(config)
        self.positions = POSITIONS[config.position_method](config)
        self.layernorm_embedding: nn.Module = nn.Identity()
        if config.embedding_norm:
            self.layernorm_embedding = build_norm(config)
        self.layers = nn.ModuleList(
            AlibiLmDecoderLayer(config, index) for index in range(config.num_hidden_layers)
        )
        self.layer_norm: nn.Module = nn.Identity()
        if config.final_norm:
            self.layer_norm = build_norm(config)
        self.gradient_checkpointing = False
        self.post_init()

    def get_input_embeddings(self):
        """Return the module that computes ``inputs_embeds``, without scaling and projection."""
        if self.config.embedding_bands:
            return self.embed_tokens
        return self.embed_tokens.words

    def set_input_embeddings(self, value):
        """Replace the module that computes ``inputs_embeds``."""
        if self.config.embedding_bands:
            self.embed_tokens = value
        else:
            self.embed_tokens.words = value

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        cache: Cache | None = None,
        **kwargs,
    ) -> BaseModelOutputWithPast:
        """Compute the hidden states.

        Args:
            attention_mask: False or 0 at padding, (B, S), or a mask of four dimensions.
            position_ids: (B or 1, T). Without cache and attention mask, positions that restart
                separate packed documents.
            inputs_embeds: output of :meth:`get_input_embeddings` before scaling, (B, T, E). It is
                projected to the model width afterwards, except for adaptive input.
            use_cache: return the keys and values; has no effect with gradient checkpointing.
            cache: newer name of ``past_key_values``.
        """
        if past_key_values is None:
            past_key_values = cache
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        x = self.embed_inputs(input_ids, inputs_embeds)
        kv_cache = self.select_cache(past_key_values, use_cache)
        num_new = x.shape[1]
        num_past = 0
        num_keys = num_new
        first_key = 0
        if kv_cache is not None:
            num_past = kv_cache.get_seq_length()
            # A static cache also has room for later keys. The cache of a sliding window has lost
            # its first keys.
            num_keys, first_key = kv_cache.get_mask_sizes(num_new, 0)
        query_positions = num_past + torch.arange(num_new, device=x.device)
        key_positions = first_key + torch.arange(num_keys, device=x.device)
        distance = query_positions[:, None] - key_positions  # (T, S)
        given_positions = position_ids
        if position_ids is None:
            position_ids = count_positions(attention_mask, query_positions)

        key_dtype = x.dtype
        if torch.is_autocast_enabled(x.device.type):
            key_dtype = torch.get_autocast_dtype(x.device.type)
        self.positions.check(position_ids, key_dtype)
        position_embeddings = self.positions.embed(position_ids)
        if position_embeddings is not None:
            x = x + position_embeddings.to(x.dtype)
        x = self.layernorm_embedding(x)
        x = nn.functional.dropout(x, p=self.config.dropout, training=self.training)
        mask = self.make_mask(x, attention_mask, kv_cache, given_positions)
        bias = self.positions.bias(distance.clamp(min=0), num_past + num_new)
        if bias is not None:
            bias = bias.to(x.dtype).unsqueeze(0)  # (1, H, T, S)

        hidden_states = [x]
        attentions = []
        for layer in self.layers:
            x, weights = layer(
                x,
                self.positions.rotate,
                self.positions.layer_bias,
                position_ids,
                distance,
                bias,
                mask,
                kv_cache,
                **kwargs,
            )
            hidden_states.append(x)
            attentions.append(weights)
        x = self.layer_norm(x)
        hidden_states[-1] = x
        return BaseModelOutputWithPast(
            last_hidden_state=x,
            **{CACHE: kv_cache},
            hidden_states=tuple(hidden_states) if output_hidden_states else None,
            attentions=tuple(attentions) if output_attentions else None,
        )

    def embed_inputs(self, input_ids, inputs_embeds):
        """Return the embeddings, scaled and at the model width, (B, T, C)."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Pass either input_ids or inputs_embeds.")
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        x = inputs_embeds * self.config.embedding_scale
        if isinstance(self.embed_tokens, TokenEmbedding):
            x = self.embed_tokens.project(x)
        return x

    def select_cache(self, past_key_values, use_cache):
        """Return the KV cache that the layers read and extend, or None."""
        if self.gradient_checkpointing and self.training:
            # The backward pass runs each layer again, which would append its keys a second time.
            if past_key_values is not None and past_key_values.get_seq_length() > 0:
                raise ValueError(
                    "Gradient checkpointing cannot train with cached keys. Pass no "
                    "past_key_values, or call gradient_checkpointing_disable()."
                )
            return None
        if past_key_values is not None:
            return past_key_values
        if use_cache is None:
            use_cache = self.config.use_cache
        if not use_cache:
            return None
        return DynamicCache(config=self.config)

    def make_mask(self, x, attention_mask, kv_cache, position_ids):
        """Return the causal mask in the format of the attention backend, or None.

        Without cache and attention mask, ``position_ids`` that restart begin a new document, as in
        all models of transformers. It does not see the documents before it.
        """
        if self.config._attn_implementation == "flex_attention" and x.device.type == "cpu":
            # PyTorch 2.13 returns NaN for small heads there, and does not compile with padding.
            raise ValueError(
                "On a CPU, flex_attention returns wrong values. Choose sdpa or eager attention."
            )
        create_mask = create_causal_mask
        if self.config.sliding_window is not None:
            create_mask = create_sliding_window_causal_mask
        return create_mask(
            config=self.config,
            inputs_embeds=x,
            attention_mask=attention_mask,
            position_ids=position_ids,
            **{CACHE: kv_cache},
        )


def count_positions(attention_mask, query_positions):
    """Return the positions of the new tokens, (B or 1, T). Padding does not count.

    Args:
        attention_mask: False or 0 at padding, (B, S); None or a mask of four dimensions if there
            is no padding to skip.
        query_positions: positions of the new tokens if padding counted, (T,).
    """
    if attention_mask is None or attention_mask.dim() != 2:
        return query_positions.unsqueeze(0)
    num_new = query_positions.shape[0]
    counts = attention_mask.long().cumsum(1)
    return (counts - 1).clamp(min=0)[:, -num_new:]


class AlibiLmForCausalLM(AlibiLmPreTrainedModel, GenerationMixin):
    """Causal language model. With an adaptive softmax, its logits are log-probabilities."""

    def __init__(self, config):
        super().__init__(config)
        self.model = AlibiLmModel(config)
        self.lm_head: AdaptiveSoftmax | LinearHead
        if config.softmax_bands:
            self.lm_head = AdaptiveSoftmax(config)
            self._tied_weights_keys = {
                "lm_head.words.weight": "model.embed_tokens.bands.0.0.weight",
            }
            for band in range(1, len(config.softmax_bands)):
                output_weight = f"lm_head.tails.{band - 1}.1.weight"
                input_weight = f"model.embed_tokens.bands.{band}.0.weight"
                self._tied_weights_keys[output_weight] = input_weight
        else:
            self.lm_head = LinearHead(config)
            self._tied_weights_keys = {"lm_head.words.weight": "model.embed_tokens.words.weight"}
        self.post_init()

    def get_input_embeddings(self):
        """Return the module that computes ``inputs_embeds`` (see :class:`AlibiLmModel`)."""
        return self.model.get_input_embeddings()

    def set_input_embeddings(self, value):
        """Replace the module that computes ``inputs_embeds``."""
        self.model.set_input_embeddings(value)

    def get_output_embeddings(self):
        """Return the output matrix; None for an adaptive softmax, which has one per band."""
        if self.config.softmax_bands:
            return None
        return self.lm_head.words

    def set_output_embeddings(self, value):
        """Replace the output matrix."""
        self.lm_head.words = value

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        return_dict: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        cache: Cache | None = None,
        **kwargs,
    ) -> CausalLMOutputWithPast | tuple:
        """Compute the logits, (B, T, V), and with labels the loss.

        Args:
            logits_to_keep: number of last tokens, or their indices; 0 stands for all.
            cache: newer name of ``past_key_values``.
        """
        if past_key_values is None:
            past_key_values = cache
        outputs = self.model(
            input_ids, attention_mask, position_ids, past_key_values, inputs_embeds, **kwargs
        )
        x = outputs.last_hidden_state
        keep_last = isinstance(logits_to_keep, int)
        x = x[:, -logits_to_keep:] if keep_last else x[:, logits_to_keep]
        logits = self.lm_head(x)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, self.config.vocab_size, **kwargs)
        output = CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            **{CACHE: getattr(outputs, CACHE)},
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )
        if return_dict is False:
            return output.to_tuple()
        return output

    def keep_memory(self, past_key_values):
        """Reduce a ``DynamicCache`` to the last ``memory_length`` states of each layer.

        Call this method after each segment of a long text to read it as in training:
        ``past = model.keep_memory(model(segment, past_key_values=past).past_key_values)``.
        """
        for layer in past_key_values.layers:
            num_keys = layer.keys.shape[2]
            first = num_keys - min(self.config.memory_length, num_keys)
            layer.keys = layer.keys[:, :, first:]
            layer.values = layer.values[:, :, first:]
        return past_key_values
