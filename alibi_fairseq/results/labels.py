"""Names of models in tables and figures."""

from __future__ import annotations

import re

from ..positions.plugin_sources import plugin_sha256
from ..positions.spec import METHOD_NAMES as NAMES_OF_METHODS
from ..positions.spec import OPTION_NAMES as NAMES_OF_OPTIONS
from ..positions.spec import SCALING_NAMES, MethodSpec

#: Names of methods in results, in the order of tables.
METHOD_NAMES = {
    **NAMES_OF_METHODS,
    "alibi_trainable_slopes": "ALiBi, trainable slopes",
    "alibi_random_slopes": "ALiBi, random slopes",
    "alibi_given_slopes": "ALiBi, other slopes",
}
#: Names of options in tables, by their names in results.
OPTION_NAMES = {
    option.removeprefix("rotary_"): name for option, name in NAMES_OF_OPTIONS.items()
} | SCALING_NAMES
# Patterns of the options of a layer that have a value, and of those that have none.
_WITH_VALUE = "base|percent|p_rope"
_WITHOUT_VALUE = "logn|ssmax"
#: One option of :data:`LAYER_LABEL`: its name, and its value, which is empty without one.
LAYER_OPTION = rf"_({_WITH_VALUE}|{_WITHOUT_VALUE})(?:_([\d.e+-]+))?"
#: Method of a layer with its options, such as ``rotary_p_rope_0.75@512×3``.
LAYER_LABEL = re.compile(
    rf"""
    (?P<method>.+?)
    (?P<options>(?:_(?:(?:{_WITH_VALUE})_[\d.e+-]+|{_WITHOUT_VALUE}))*)
    (?:@(?P<window>\d+))?  # attention window in tokens
    (?:×(?P<count>\d+))?   # number of layers
    """,
    re.VERBOSE,
)


def method_facts(method: MethodSpec) -> dict[str, str]:
    """Return the fields of a result record that name the position method and its version."""
    facts = {"position_method": method.recorded_name}
    plugin = plugin_sha256(method.names)
    if plugin:
        facts["plugin_sha256"] = plugin
    if method.display_name:
        facts["display_name"] = method.display_name
    return facts


def model_label(method: str, train_length: int | None, display_name: str | None = None) -> str:
    """Return ``ALiBi, L=512``, or the method alone without a training length.

    Args:
        method: position method.
        train_length: training length in tokens.
        display_name: name that a plugin gives its method.
    """
    name = display_name or method_name(method)
    if train_length is None:
        return name
    return f"{name}, L={train_length}"


def method_name(method: str) -> str:
    """Return the name of a position method in tables and legends.

    Methods of layers are joined: ``rotary_p_rope_0.75@512×3+none`` is "3 × Rotary, p-RoPE 0.75
    (window 512) + No positions". Names that are not in :data:`METHOD_NAMES` are left unchanged.
    """
    if method in METHOD_NAMES:
        return METHOD_NAMES[method]
    layers = re.split(r"\+(?=[a-z])", method)  # not the plus of a number such as 1e+06
    return " + ".join(_layer_name(layer) for layer in layers)


def _layer_name(label: str) -> str:
    """Return the name of the method of a layer, with its options, window, and number of layers."""
    parts = LAYER_LABEL.fullmatch(label)
    if parts is None or parts["method"] not in METHOD_NAMES:
        return label
    name = METHOD_NAMES[parts["method"]]
    for option, value in re.findall(LAYER_OPTION, parts["options"]):
        name += f", {OPTION_NAMES[option]} {value}".rstrip()
    if parts["window"]:
        name += f" (window {parts['window']})"
    if parts["count"]:
        name = f"{parts['count']} × {name}"
    return name


def method_order(method: str) -> tuple[int, str]:
    """Return the sort key of a position method: ALiBi first, unknown methods last by name."""
    known = list(METHOD_NAMES)
    rank = known.index(method) if method in known else len(known)
    return (rank, method)


def size_text(layers: int | None, width: int | None, parameters: int | None) -> str:
    """Return ``3 layers of width 128, 0.7M parameters`` as far as known."""
    parts = []
    if layers is not None and width is not None:
        unit = "layer" if layers == 1 else "layers"
        parts.append(f"{layers} {unit} of width {width}")
    if parameters is not None:
        parts.append(f"{parameters / 1e6:,.3g}M parameters")
    return ", ".join(parts)
