"""Language models trained with alibi_fairseq, for transformers.

This file and its two neighbours travel with an exported model (``trust_remote_code=True``) and
need nothing but transformers. They hold what no architecture of the library does: ALiBi with any
activation, T5 bias, KERPLE, Sandwich, xPos, Transformer-XL, adaptive input and adaptive softmax.

Shapes: B batch, T new tokens, S keys (cached + new), C model width, H heads, D head size,
V vocabulary.
"""

import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache, GenerationMixin, PreTrainedModel
from transformers.activations import ACT2FN
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .configuration_alibi_lm import AlibiLmConfig
from .positions_alibi_lm import POSITIONS, NoPositionsModule

#: Name of the key-value cache in calls and outputs: ``cache`` since transformers 5.24.
CACHE = "cache" if "cache" in BaseModelOutputWithPast.__dataclass_fields__ else "past_key_values"


def eager_attention_forward(
    module, query, key, value, attention_mask, scaling, dropout=0.0, position_bias=None, **kwargs
):
    scores = (query @ key.transpose(2, 3)) * scaling
    if position_bias is not None:
        scores = scores + position_bias
    if attention_mask is not None:
        scores = scores + attention_mask
    at_least_fp32 = torch.promote_types(scores.dtype, torch.float32)
    weights = scores.to(at_least_fp32).softmax(-1).to(query.dtype)
    dropped = nn.functional.dropout(weights, p=dropout, training=module.training)
    return (dropped @ value).transpose(1, 2).contiguous(), weights


class Attention(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.is_causal = True
        self.scaling = config.head_dim**-0.5
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(config.hidden_size, config.hidden_size) for _ in range(4)
        )

    def forward(
        self, x, positions, position_ids, distance, bias, attention_mask, kv_cache, **kwargs
    ):
        q, k, v = (
            project(x).unflatten(-1, (self.config.num_attention_heads, -1)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )  # (B, H, T, D) each
        q, k = positions.rotate(q, k, position_ids)
        if kv_cache is not None:
            k, v = kv_cache.update(k, v, self.layer_idx)  # (B, H, S, D)
        if bias is None:
            bias = positions.layer_bias(self.layer_idx, q, k, distance)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        dropout = self.config.attention_dropout if self.training else 0.0
        how = {"scaling": self.scaling, "dropout": dropout, "position_bias": bias, **kwargs}
        output, weights = attend(self, q, k, v, attention_mask, **how)
        return self.out_proj(output.reshape(x.shape)), weights


class AlibiLmDecoderLayer(GradientCheckpointingLayer):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.config = config
        self.self_attn = Attention(config, layer_idx)
        self.self_attn_layer_norm = nn.LayerNorm(config.hidden_size)
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size)
        self.activation = ACT2FN[config.hidden_act]

    def forward(self, x, *context, **kwargs):
        norms, nothing = (self.self_attn_layer_norm, self.final_layer_norm), (lambda x: x,) * 2
        before, after = (norms, nothing) if self.config.normalize_before else (nothing, norms)
        y, weights = self.self_attn(before[0](x), *context, **kwargs)
        x = after[0](x + self.dropout(y, self.config.dropout))
        y = self.dropout(self.activation(self.fc1(before[1](x))), self.config.activation_dropout)
        return after[1](x + self.dropout(self.fc2(y), self.config.dropout)), weights

    def dropout(self, x, p):
        return nn.functional.dropout(x, p=p, training=self.training)


def bounds(bands, vocab_size):
    """(first word, one past the last, width) of each band."""
    ends = [first for first, _ in bands[1:]] + [vocab_size]
    return [(first, end, width) for (first, width), end in zip(bands, ends)]


class AdaptiveEmbedding(nn.Module):
    """Baevski & Auli 2019: narrow embeddings for rare words, each projected to the model width."""

    def __init__(self, config):
        super().__init__()
        self.bounds = bounds(config.embedding_bands, config.vocab_size)
        self.bands = nn.ModuleList(
            nn.Sequential(
                nn.Embedding(end - first, width), nn.Linear(width, config.hidden_size, bias=False)
            )
            for first, end, width in self.bounds
        )

    def forward(self, input_ids):
        result: torch.Tensor | None = None
        for (first, end, _), band in zip(self.bounds, self.bands):
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
        self.excluded_symbols = config.excluded_symbols or ()
        self.project = projection(config.hidden_size, config.output_width)
        self.words = nn.Linear(config.output_width, config.vocab_size, bias=False)

    def forward(self, x):
        logits = self.words(self.project(x))
        for symbol in self.excluded_symbols:
            logits[..., symbol] = -torch.inf
        return logits


class AdaptiveSoftmax(nn.Module):
    """Grave et al. 2017. Returns log-probabilities, whose softmax is the distribution."""

    def __init__(self, config):
        super().__init__()
        width = config.output_width
        (_, frequent, _), *rare = bounds(config.softmax_bands, config.vocab_size)
        self.project = projection(config.hidden_size, width)
        self.words = nn.Linear(width, frequent, bias=False)
        self.classes = nn.Linear(width, len(rare), bias=False)
        self.tails = nn.ModuleList(
            nn.Sequential(
                nn.Linear(width, narrow, bias=False), nn.Linear(narrow, end - first, bias=False)
            )
            for first, end, narrow in rare
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


class AlibiLmPreTrainedModel(PreTrainedModel):
    config_class = AlibiLmConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["AlibiLmDecoderLayer"]
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_flash_attn = False  # its kernels take no bias
    _supports_attention_backend = True
    _can_compile_fullgraph = True

    def _init_weights(self, module):
        super()._init_weights(module)
        for parameter in module.parameters(recurse=False):
            if isinstance(module, NoPositionsModule):
                nn.init.normal_(parameter, std=self.config.initializer_range)


class AlibiLmModel(AlibiLmPreTrainedModel):
    """The transformer without its output layer."""

    def __init__(self, config):
        super().__init__(config)
        embedding = AdaptiveEmbedding if config.embedding_bands else Embedding
        self.embed_tokens = embedding(config)
        self.positions = POSITIONS[config.position_method](config)
        embedding_norm = nn.LayerNorm if config.embedding_norm else nn.Identity
        self.layernorm_embedding = embedding_norm(config.hidden_size)
        self.layers = nn.ModuleList(
            AlibiLmDecoderLayer(config, index) for index in range(config.num_hidden_layers)
        )
        final_norm = nn.LayerNorm if config.final_norm else nn.Identity
        self.layer_norm = final_norm(config.hidden_size)
        self.gradient_checkpointing = False
        self.post_init()

    def get_input_embeddings(self):
        return None if self.config.embedding_bands else self.embed_tokens.words

    def set_input_embeddings(self, value):
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
            cache: newer name of ``past_key_values``.
            inputs_embeds: (B, T, E) before scale and projection; adaptive input has none.
        """
        if past_key_values is None:
            past_key_values = cache
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Give either input_ids or inputs_embeds.")
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        x = inputs_embeds * self.config.embedding_scale
        if isinstance(self.embed_tokens, Embedding):
            x = self.embed_tokens.project(x)
        if (self.config.use_cache if use_cache is None else use_cache) and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        new, past = x.shape[1], 0
        keys, first = new, 0
        if past_key_values is not None:
            past = past_key_values.get_seq_length()
            # A static cache is longer than S; that of a sliding window begins later.
            keys, first = past_key_values.get_mask_sizes(new, 0)
        slots = past + torch.arange(new, device=x.device)
        distance = slots[:, None] - (first + torch.arange(keys, device=x.device))
        distance = distance.clamp(min=0)  # (T, S)
        if position_ids is None and attention_mask is not None and attention_mask.dim() == 2:
            position_ids = (attention_mask.long().cumsum(1) - 1).clamp(min=0)[:, -new:]
        elif position_ids is None:
            position_ids = slots.unsqueeze(0)

        embedded = self.positions.embed(position_ids)
        if embedded is not None:
            x = x + embedded.to(x.dtype)
        x = self.layernorm_embedding(x)
        x = nn.functional.dropout(x, p=self.config.dropout, training=self.training)
        windowed = self.config.sliding_window is not None
        make_mask = create_sliding_window_causal_mask if windowed else create_causal_mask
        mask = make_mask(
            config=self.config,
            inputs_embeds=x,
            attention_mask=attention_mask,
            **{CACHE: past_key_values},
        )
        bias = self.positions.bias(distance, past + new)
        bias = None if bias is None else bias.to(x.dtype).unsqueeze(0)  # (1, H, T, S)

        states, attentions = [], []
        for layer in self.layers:
            states.append(x)
            x, weights = layer(
                x, self.positions, position_ids, distance, bias, mask, past_key_values, **kwargs
            )
            attentions.append(weights)
        x = self.layer_norm(x)
        return BaseModelOutputWithPast(
            last_hidden_state=x,
            **{CACHE: past_key_values},
            hidden_states=(*states, x) if output_hidden_states else None,
            attentions=tuple(attentions) if output_attentions else None,
        )


class AlibiLmForCausalLM(AlibiLmPreTrainedModel, GenerationMixin):
    """The language model. Under an adaptive softmax its logits are log-probabilities."""

    def __init__(self, config):
        super().__init__(config)
        self.model = AlibiLmModel(config)
        self.lm_head = (AdaptiveSoftmax if config.softmax_bands else Softmax)(config)
        tails = range(len(config.softmax_bands or ()) - 1)
        outputs = ["lm_head.words.weight", *(f"lm_head.tails.{i}.1.weight" for i in tails)]
        inputs = "model.embed_tokens." + ("bands.{}.0" if config.softmax_bands else "words")
        self._tied_weights_keys = {
            name: f"{inputs.format(i)}.weight" for i, name in enumerate(outputs)
        }
        self.post_init()

    def get_output_embeddings(self):
        return None if self.config.softmax_bands else self.lm_head.words

    def set_output_embeddings(self, value):
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
        """Compute the logits. ``cache`` is the newer name of ``past_key_values``."""
        if past_key_values is None:
            past_key_values = cache
        outputs = self.model(
            input_ids, attention_mask, position_ids, past_key_values, inputs_embeds, **kwargs
        )
        x = outputs.last_hidden_state
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(x[:, kept])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, self.config.vocab_size, **kwargs)
        result = CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            **{CACHE: getattr(outputs, CACHE)},
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )
        return result if return_dict is not False else result.to_tuple()

    def keep_memory(self, past_key_values):
        """Cut a ``DynamicCache`` to the last ``memory_length`` states of every layer.

        Called between segments, it reads a long text as the model did in training:
        ``past = model.keep_memory(model(segment, past_key_values=past).past_key_values)``.
        """
        for layer in past_key_values.layers:
            layer.keys = layer.keys[:, :, -self.config.memory_length :]
            layer.values = layer.values[:, :, -self.config.memory_length :]
        return past_key_values
