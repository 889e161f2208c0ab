"""Names of position methods in result records, from the options of a model.

:mod:`..results.labels` has their names in tables and figures.
"""

from __future__ import annotations

from ..positions import METHODS, PositionConfig, cycle_over_layers, display_name, name_layers
from ..positions.alibi import SLOPE_KINDS
from .decoder import parse_windows


def method_facts(options) -> dict[str, str]:
    """Return the fields of a result record that name the position method of a model.

    ``display_name`` is the name that a plugin gives its method in tables.
    """
    name = recorded_method_name(options)
    facts = {"position_method": name}
    shown = display_name(name) if name in METHODS else None
    if shown:
        facts["display_name"] = shown
    return facts


def recorded_method_name(options) -> str:
    """Return the name of a model's position method in result records.

    The model is one of this package or fairseq's own ``transformer_lm``.

    Options that change the method are part of its name in results, so that no table confuses it
    with the paper's:

    - ALiBi with other slopes: ``alibi_trainable_slopes``, ``alibi_random_slopes``,
      ``alibi_given_slopes``
    - rotary with another base, or on a part of the features: ``rotary_percent_0.25``
    - any method with ``--score-scaling``: ``rotary_logn``, ``alibi_ssmax``
    - methods or attention windows that differ between layers, in order: ``rotary×3+none``,
      ``rotary@512×3+none``
    """
    if "position_method" in options:
        name = _layers_name(options)
        scaling = getattr(options, "score_scaling", "none")
        if scaling != "none":
            name += f"_{scaling}"
        return name
    if options.no_token_positional_embeddings:
        return "none"
    return "learned" if options.decoder_learned_pos else "sinusoidal"


def _layers_name(options) -> str:
    """Return the name of the methods and, where they differ, of the windows of all layers."""
    layers = options.decoder_layers
    methods = cycle_over_layers("--position-method", options.position_method, layers)
    windows = parse_windows(getattr(options, "attention_window", "0"), layers)
    windows_differ = len(set(windows)) > 1
    labels = []
    for method, window in zip(methods, windows, strict=True):
        label = _layer_method_name(method, options)
        if windows_differ and window:
            label += f"@{window}"
        labels.append(label)
    return name_layers(labels)


def _layer_method_name(method: str, options) -> str:
    """Return the name of a layer's method with its options that make it another method."""
    slopes = getattr(options, "alibi_slopes", "paper")
    if method == "alibi" and slopes != "paper":
        kind = slopes if slopes in SLOPE_KINDS else "given"
        return f"alibi_{kind}_slopes"
    if method == "rotary":
        for option in ("rotary_base", "rotary_percent", "p_rope"):
            default = getattr(PositionConfig, option)
            value = getattr(options, option, default)
            if value != default:
                method += f"_{option.removeprefix('rotary_')}_{value:g}"
    return method
