"""fairseq's transformer decoder with a position method.

Shapes: B batch, T new tokens, S = M or cached + T, M earlier inputs in a state, C model width.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from fairseq.distributed import fsdp_wrap
from fairseq.models.transformer import TransformerDecoder
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.quant_noise import quant_noise
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..attention import FutureMask, ScoreScale, start_of_each_document
from ..blocks.feed_forward import swiglu
from ..blocks.normalization import replace_layer_norms
from ..positions import (
    MethodSpec,
    PositionConfig,
    build_position_method,
    layer_windows,
    rotate_last_queries,
    token_positions,
)
from .output_projection import OutputProjection, parse_excluded_symbols
from .self_attention import AttentionContext, SelfAttention

logger = logging.getLogger(__name__)

#: What a window hands to the next one: the last inputs of each layer, (M, B, C), without gradient.
State = list[Tensor]

#: fairseq requires a number; ``learned``, the only bounded method, checks the length itself.
UNBOUNDED = 10**9


class DecoderLayer(TransformerDecoderLayerBase):
    """fairseq's decoder layer with our attention and optional parts.

    With ``--ffn swiglu``, ``fc1`` computes both the gate and the values that it multiplies.
    """

    def __init__(self, cfg, no_encoder_attn=False):
        self._gated = cfg.ffn == "swiglu"
        self._compiles = cfg.compile_layers
        self._linear_biases = cfg.linear_biases
        super().__init__(cfg, no_encoder_attn)
        if self._gated:
            self.activation_fn = swiglu
        if cfg.normalization == "rms":
            replace_layer_norms(self, cfg.rms_norm_eps)

    def build_self_attention(self, embed_dim, cfg, add_bias_kv=False, add_zero_attn=False):
        return SelfAttention(
            embed_dim,
            cfg.decoder.attention_heads,
            cfg.key_value_heads,
            rms_norm_eps=cfg.rms_norm_eps if cfg.normalize_queries_keys else None,
            bias=cfg.linear_biases,
            dropout=cfg.attention_dropout,
            self_attention=True,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
        )

    def build_fc1(self, input_dim, output_dim, q_noise, qn_block_size):
        if self._gated:
            output_dim *= 2
        layer = nn.Linear(input_dim, output_dim, bias=self._linear_biases)
        return quant_noise(layer, q_noise, qn_block_size)

    def build_fc2(self, input_dim, output_dim, q_noise, qn_block_size):
        layer = nn.Linear(input_dim, output_dim, bias=self._linear_biases)
        return quant_noise(layer, q_noise, qn_block_size)

    def forward(self, x: Tensor, *args, self_attn_mask: AttentionContext, **kwargs):
        """Compute the layer as fairseq does.

        ``self_attn_mask`` carries the context of this forward pass, whose earlier inputs of this
        layer pass through its layer norm as well.
        """
        if self_attn_mask.earlier is not None and self.normalize_before:
            earlier = self.self_attn_layer_norm(self_attn_mask.earlier)
            self_attn_mask = replace(self_attn_mask, earlier=earlier)
        compute = super().forward
        if self._compiles and self.training:
            compute = partial(compiled_layer(), self)
        return compute(x, *args, self_attn_mask=self_attn_mask, **kwargs)


@functools.lru_cache(maxsize=1)
def compiled_layer() -> Callable:
    """Return the computation of fairseq's layer, compiled once for all layers.

    Attention is not compiled: the mask and the rotation are new objects in each forward pass, so
    PyTorch would compile each pass again. This is set here, since it imports PyTorch's compiler.
    """
    not_compiled = torch.compiler.disable(SelfAttention.forward)
    SelfAttention.forward = not_compiled  # type: ignore[method-assign]
    return torch.compile(TransformerDecoderLayerBase.forward)


def checkpoint_activations(layer: nn.Module, offload: bool) -> None:
    """Make a layer recompute its activations in the backward pass.

    fairseq's wrapper starts a separate backward pass in each layer. PyTorch's DDP then rejects
    parameters that layers share, such as the table of ``t5`` (pytorch/pytorch#24005). Therefore, it
    only serves to keep inputs in CPU memory, where shared parameters need ``legacy_ddp``.

    Args:
        layer: the layer, whose ``forward`` is replaced.
        offload: True to keep the inputs of the layer in CPU memory.
    """
    if offload:
        checkpoint_wrapper(layer, offload_to_cpu=True)
    else:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)


class AlibiDecoder(TransformerDecoder):
    """Decoder of the ``alibi_lm`` models.

    It has the state-dict keys of fairseq's ``transformer_lm``. The position method is therefore
    called ``embed_positions`` even if it acts elsewhere.
    """

    def __init__(self, args, dictionary, embed_tokens):
        super().__init__(args, dictionary, embed_tokens, no_encoder_attn=True)
        if args.normalization == "rms":
            replace_layer_norms(self, args.rms_norm_eps)
        spec = MethodSpec.from_options(args)
        self.embed_positions = build_position_method(
            spec,
            PositionConfig(
                embed_dim=args.decoder_embed_dim,
                num_heads=args.decoder_attention_heads,
                num_layers=args.decoder_layers,
                train_length=args.train_length,
                padding_idx=self.padding_idx,
                seed=args.train_seed,
                key_value_heads=args.key_value_heads,
            ),
        )
        self.score_scaling = args.score_scaling
        self.score_scale = None
        if args.score_scaling != "none":
            self.score_scale = ScoreScale(
                args.score_scaling,
                args.decoder_attention_heads,
                args.decoder_layers,
                args.train_length,
                layer_windows(args.train_attention_window, args.decoder_layers),
                args.train_mem_len,
            )
        layers = spec.over(args.decoder_layers)
        self.attention_windows = [layer.window for layer in layers]
        log_by_layer("--position-method", [layer.name for layer in layers])
        log_by_layer("--attention-window", self.attention_windows)
        self.block_diagonal = args.block_diagonal
        for layer in self._all_layers():
            layer.self_attn.backend = args.attention_backend

    def build_output_projection(self, args, dictionary, embed_tokens):
        super().build_output_projection(args, dictionary, embed_tokens)
        excluded = parse_excluded_symbols(args.excluded_symbols)
        if excluded:
            shared: nn.Linear = self.output_projection  # type: ignore[has-type]
            projection = OutputProjection(shared.weight, excluded)  # type: ignore[arg-type]
            self.output_projection = projection

    def build_decoder_layer(self, cfg, no_encoder_attn=False):
        layer = DecoderLayer(cfg, no_encoder_attn)
        if cfg.checkpoint_activations:
            checkpoint_activations(layer, cfg.offload_activations)
        smallest = 0 if cfg.checkpoint_activations else cfg.min_params_to_wrap
        return fsdp_wrap(layer, min_num_params=smallest)

    def _all_layers(self) -> list[DecoderLayer]:
        # Iterating over a LayerDropModuleList drops layers in training.
        return list(nn.ModuleList.__iter__(self.layers))  # type: ignore[arg-type]

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out=None,
        incremental_state: dict | None = None,
        features_only: bool = False,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        state: State | None = None,
    ):
        """Compute the scores of the next token at every new position.

        Args:
            prev_output_tokens: (B, S) tokens. With an ``incremental_state`` they include all cached
                tokens, and the new ones, one or several, come last.
            incremental_state: cache of keys and values, filled by this call.
            state: the state that the call for the window before returned, if the position method
                has a memory; it must not contain padding. None at the start of a text.

        Returns:
            Scores (B, T, V), or features (B, T, C) under an adaptive softmax or ``features_only``;
            and a dictionary with ``attn``, ``inner_states`` if requested, and the ``state`` for the
            next window, None for a method without a memory.
        """
        x, extra = self.extract_features(
            prev_output_tokens,
            incremental_state=incremental_state,
            return_all_hiddens=return_all_hiddens,
            state=state,
        )
        return (x if features_only else self.output_layer(x)), extra

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out=None,
        incremental_state: dict | None = None,
        return_all_hiddens: bool = False,
        state: State | None = None,
        last: int | None = None,
    ):
        """Compute the features before the output layer.

        Args:
            last: return features of only the last ``last`` new positions, (B, last, C); the last
                layer then computes no others. Cannot be combined with an ``incremental_state``.
            others: see :meth:`forward`.
        """
        method = self.embed_positions
        if state is not None and (method.memory_length == 0 or incremental_state is not None):
            raise ValueError("A state needs a position method with a memory, and no cached keys.")
        real = prev_output_tokens.ne(self.padding_idx)  # (B, S)
        start = self._all_layers()[0].self_attn.cached_length(incremental_state)
        tokens = prev_output_tokens[:, start:]  # (B, T)
        document_start = start_of_each_document(
            prev_output_tokens, self.dictionary.eos(), self.block_diagonal
        )
        positions = token_positions(real, document_start)[:, start:]

        x = self._embed(tokens, method.embed(positions))  # (B, T, C)
        x = x.transpose(0, 1)  # (T, B, C)
        if state is not None:
            state = [inputs.to(x) for inputs in state]  # (M, B, C) each

        contexts = self._contexts(method, real, start, tokens.shape[1], state, document_start)
        keep_inputs = return_all_hiddens or method.memory_length > 0
        inputs = []
        final = len(contexts) - 1
        for index, (layer, context) in enumerate(zip(self._all_layers(), contexts)):
            if keep_inputs:
                inputs.append(x)
            if self._is_dropped():
                continue
            if last is not None and index == final:
                x, context = only_last(x, context, last)
            x, _, _ = layer(x, incremental_state=incremental_state, self_attn_mask=context)
        # As in fairseq: the input of each layer, then the output of the last one.
        inner_states = [*inputs, x] if return_all_hiddens else None
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        x = x.transpose(0, 1)  # (B, T, C)
        if self.project_out_dim is not None:
            x = self.project_out_dim(x)
        next_state = None
        if method.memory_length > 0:
            next_state = last_inputs(method.memory_length, inputs, state)
        return x, {"attn": [None], "inner_states": inner_states, "state": next_state}

    def _embed(self, tokens: Tensor, positions: Tensor | None) -> Tensor:
        """Return the input of the first layer, (B, T, C).

        Args:
            tokens: (B, T) token IDs.
            positions: (B, T, C) position embeddings, or None if the method has none.
        """
        x = self.embed_scale * self.embed_tokens(tokens)  # (B, T, C)
        if self.quant_noise is not None:
            x = self.quant_noise(x)
        if self.project_in_dim is not None:
            x = self.project_in_dim(x)
        if positions is not None:
            x = x + positions.to(x.dtype)
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return self.dropout_module(x)

    def _contexts(
        self,
        method,
        real: Tensor,
        start: int,
        length: int,
        state: State | None,
        document_start: Tensor | None = None,
    ) -> list:
        """Return one attention context per layer; equal biases and windows share one mask.

        Args:
            method: position method of the model, which may differ between layers.
            real: (B, S) True for tokens that are not padding, cached ones included.
            start: number of cached tokens.
            length: number of new tokens T.
            state: state of the window before, or None.
            document_start: (B, S) position at which the document of each token starts, or None if
                attention crosses documents.
        """
        num_earlier = state[0].shape[0] if state else 0
        keys = num_earlier + start + length
        padding = hidden_padding(real, self.training)
        if padding is not None:
            padding = nn.functional.pad(padding, (num_earlier, 0))  # (B, S)
        rotations: dict = {}
        masks: dict = {}
        contexts = []
        for index, window in enumerate(self.attention_windows):
            layer_method, number = method.layer_method(index)
            if layer_method not in rotations:
                rotations[layer_method] = layer_method.rotation(start, length, real.device)
            bias = layer_method.bias(number, keys)
            if (bias, window) not in masks:
                masks[bias, window] = FutureMask(
                    bias, length, keys, padding, window, document_start
                )
            mask = masks[bias, window]
            rotation = rotations[layer_method]
            earlier = state[index] if state else None
            scale = None if self.score_scale is None else partial(self.score_scale, index)
            contexts.append(AttentionContext(mask, layer_method, number, rotation, earlier, scale))
        return contexts

    def _is_dropped(self) -> bool:
        return (
            self.training
            and self.decoder_layerdrop > 0
            and torch.rand(()).item() <= self.decoder_layerdrop
        )

    def max_positions(self) -> int:
        """Unbounded: only ``--tokens-per-sample`` limits the length."""
        return UNBOUNDED

    def upgrade_state_dict_named(self, state_dict, name):
        """Drop buffers of older sinusoidal modules, which the authors' checkpoints contain.

        fairseq removes the final norm where the version is missing, as in decoders before version
        3. Our decoders are never that old, but weights that ``--store-ema`` saves after each update
        are incomplete (not reported upstream).
        """
        for buffer in ("_float_tensor", "weights"):
            state_dict.pop(f"{name}.embed_positions.{buffer}", None)
        state_dict.setdefault(f"{name}.version", self.version.clone())
        return super().upgrade_state_dict_named(state_dict, name)


def log_by_layer(flag: str, values: Sequence[str | int]) -> None:
    """Log the values of an option by layer if they differ."""
    if len(set(values)) > 1:
        logger.info("%s by layer: %s", flag, ", ".join(map(str, values)))


def last_inputs(length: int, inputs: list[Tensor], state: State | None) -> State:
    """Copy the last ``length`` inputs of each layer, detached, to free longer tensors.

    Args:
        length: number of inputs to keep.
        inputs: (T, B, C) inputs of each layer.
        state: state of the window before, or None.
    """
    if state:
        inputs = [torch.cat(pair) for pair in zip(state, inputs)]
    return [x[-length:].detach().clone() for x in inputs]


def hidden_padding(real: Tensor, training: bool = False) -> Tensor | None:
    """Return a mask, (B, S), that is True at left padding; None if there is none.

    Right padding needs no mask: it is in the future of every real token. In training fairseq pads
    on the right; on a GPU, an assertion checks this without making the host wait in each step.

    Args:
        real: (B, S) True for tokens that are not padding.
        training: True in training.
    """
    padding = ~real
    has_left_padding = (padding[:, :-1] & real[:, 1:]).any()
    if training and real.device.type != "cpu":
        torch._assert_async(~has_left_padding, "Training on a GPU does not support left padding.")
        return None
    return padding if has_left_padding else None


def only_last(x: Tensor, context: AttentionContext, last: int) -> tuple[Tensor, AttentionContext]:
    """Return the input and context of a layer that computes only the last positions.

    The other positions become earlier inputs, which provide keys and values; their queries, output
    projections and feed-forward activations are not computed.

    Args:
        x: (T, B, C) input of the layer.
        context: context of the layer for all T positions.
        last: number of positions to compute.
    """
    earlier = x[:-last]  # (T - last, B, C)
    x = x[-last:]  # (last, B, C)
    if earlier.shape[0] == 0:
        return x, context
    if context.earlier is not None:
        earlier = torch.cat([context.earlier, earlier])
    mask = replace(context.mask, num_queries=last)
    rotation = None if context.rotation is None else rotate_last_queries(context.rotation)
    return x, replace(context, mask=mask, rotation=rotation, earlier=earlier)
