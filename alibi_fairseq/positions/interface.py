"""Public names of :mod:`alibi_fairseq.positions`."""

from ..options import option
from .alibi import alibi_slopes
from .base import (
    GateBias,
    PendingGates,
    PositionConfig,
    PositionMethod,
    QueryPositionBias,
    RelativeBias,
    Rotation,
    ScoreBias,
    token_positions,
)
from .build import build_position_method
from .layer_pattern import LayerPattern
from .options import plain_type
from .registry import (
    METHODS,
    all_options,
    display_name,
    is_plugin_method,
    known_method,
    method_options,
    methods_with,
    on_registration,
    register_position_method,
)
from .spec import LayerMethod, MethodSpec, cycle_over_layers, layer_windows

__all__ = [
    "METHODS",
    "GateBias",
    "LayerMethod",
    "LayerPattern",
    "MethodSpec",
    "PendingGates",
    "PositionConfig",
    "PositionMethod",
    "QueryPositionBias",
    "RelativeBias",
    "Rotation",
    "ScoreBias",
    "all_options",
    "alibi_slopes",
    "build_position_method",
    "cycle_over_layers",
    "display_name",
    "is_plugin_method",
    "known_method",
    "layer_windows",
    "method_options",
    "methods_with",
    "on_registration",
    "option",
    "plain_type",
    "register_position_method",
    "token_positions",
]
