"""Public names of :mod:`alibi_fairseq.positions`."""

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
from .registry import (
    METHOD_OPTIONS,
    METHODS,
    display_name,
    is_plugin_method,
    known_method,
    register_position_method,
)
from .spec import LayerMethod, MethodSpec, cycle_over_layers, layer_windows

__all__ = [
    "METHODS",
    "METHOD_OPTIONS",
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
    "alibi_slopes",
    "build_position_method",
    "cycle_over_layers",
    "display_name",
    "is_plugin_method",
    "known_method",
    "layer_windows",
    "register_position_method",
    "token_positions",
]
