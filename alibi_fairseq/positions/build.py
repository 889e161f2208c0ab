"""Creation of the position method of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..errors import UserInputError
from .base import PositionConfig, PositionMethod
from .layer_pattern import LayerPattern
from .options import Value, read_options
from .registry import METHODS
from .spec import MethodSpec


def build_position_method(
    method: MethodSpec | str, config: PositionConfig, **options: Value
) -> PositionMethod:
    """Create a position method after validating its options.

    Args:
        method: methods of the layers, or their notation, such as ``alibi`` or ``rotary+none``.
            Unlike that of ``compare``, the notation has neither windows nor score scaling.
        config: model properties.
        options: options in addition to the options of the notation.

    Raises:
        UserInputError: the name is unknown, an option is set that none of the methods uses or has a
            wrong value, or the notation has a window or a score scaling.
        ValueError: a method overrides members that cannot be combined.
    """
    if isinstance(method, str):
        method = _parse_method(method, options)
    layers = method.over(config.num_layers)
    names = [layer.name for layer in layers]
    methods: dict[str, PositionMethod] = {}
    for layer in layers:
        if layer.name not in methods:
            kind = METHODS[layer.name]
            typed = read_options(kind.Options, layer.options)
            own = replace(config, num_layers=names.count(layer.name), options=typed)
            methods[layer.name] = kind(own)
            check_overrides(layer.name, methods[layer.name])
    if len(methods) == 1:
        return methods[names[0]]
    return LayerPattern(config, names, methods)


def _parse_method(notation: str, options: Mapping[str, Value]) -> MethodSpec:
    """Read the notation of position methods, without what belongs to the model around them."""
    spec = MethodSpec.parse(notation, **options)
    if any(spec.windows):
        raise UserInputError(
            f"'{notation[:60]}' has attention windows, which a position method does not apply. Set "
            "attention_window=0 in it, and pass the window of each layer to its FutureMask, or "
            "when calling its TransformerBlock."
        )
    if spec.score_scaling != "none":
        raise UserInputError(
            f"'{notation[:60]}' has score_scaling={spec.score_scaling}, which a position method "
            "does not apply. Set score_scaling=none in it, and scale the queries with ScoreScale, "
            "which TransformerBlock takes as score_scale."
        )
    return spec


def check_overrides(name: str, method: PositionMethod) -> None:
    """Raise ValueError if a method overrides members that cannot be combined."""

    def overrides(member: str) -> bool:
        return getattr(type(method), member) is not getattr(PositionMethod, member)

    # The bias from features takes the place of any other bias.
    if overrides("feature_bias") and overrides("bias"):
        raise ValueError(
            f"Position method '{name}' overrides feature_bias and bias, but a layer has one bias. "
            "Override one of the two."
        )
    # Only the new tokens have positions, but the keys include the memory.
    if method.memory_length > 0 and (overrides("embed") or overrides("rotation")):
        raise ValueError(
            f"Position method '{name}' has a memory and overrides embed or rotation, whose "
            "positions exclude the memory. Act through bias, or set memory_length to 0."
        )
