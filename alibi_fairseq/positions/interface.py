"""Public names of :mod:`alibi_fairseq.positions`."""

from ..options import option
from .alibi import alibi_slopes
from .base import (
    FeatureBias,
    GateBias,
    PendingBias,
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
from .token_features import (
    append_features,
    compute_features,
    feature_bias,
    rotate_by_features,
    rotate_last_queries,
)

__all__ = [
    "METHODS",
    "FeatureBias",
    "GateBias",
    "LayerMethod",
    "LayerPattern",
    "MethodSpec",
    "PendingBias",
    "PositionConfig",
    "PositionMethod",
    "QueryPositionBias",
    "RelativeBias",
    "Rotation",
    "ScoreBias",
    "all_options",
    "append_features",
    "alibi_slopes",
    "build_position_method",
    "compute_features",
    "cycle_over_layers",
    "display_name",
    "feature_bias",
    "is_plugin_method",
    "known_method",
    "layer_windows",
    "method_options",
    "methods_with",
    "on_registration",
    "option",
    "plain_type",
    "register_position_method",
    "rotate_by_features",
    "rotate_last_queries",
    "token_positions",
]
