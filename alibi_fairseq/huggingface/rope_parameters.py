"""Conversion of our rotary options to the ``rope_parameters`` of transformers, and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..errors import UserInputError
from ..positions.options import TURNS, RotaryScaling
from ..positions.rotary import Rotary
from ..positions.rotary_frequencies import BASE, ntk_base
from .unsupported import not_in_fairseq, not_in_transformers

#: transformers' names of our scalings. ``ntk`` with a factor is exported as another base instead.
NATIVE_ROPE_TYPES = {
    "pi": "linear",
    "ntk": "dynamic",
    "yarn": "yarn",
    "llama3": "llama3",
    "longrope": "longrope",
}
#: transformers' names of two numbers of turns: the most of a divided frequency, and the least of an
#: unchanged one.
TURN_KEYS = {
    "yarn": ("beta_slow", "beta_fast"),
    "llama3": ("low_freq_factor", "high_freq_factor"),
}
#: Options for the factors of ``longrope``, by transformers' names.
FACTOR_KEYS = {
    "short_factor": "longrope_short_factors",
    "long_factor": "longrope_long_factors",
}


def rope_parameters(method: Rotary) -> dict[str, Any]:
    """Return the ``rope_parameters`` of the same rotation.

    Raises:
        UserInputError: transformers has none.
    """
    options = method.options
    scaling = method.scaling
    parameters = {
        "rope_type": "default",
        "rope_theta": options.rotary_base,
        "partial_rotary_factor": options.rotary_percent,
    }
    if options.p_rope < 1:
        parameters["rope_type"] = "proportional"
        parameters["partial_rotary_factor"] = options.p_rope
        if scaling is not None:  # only pi can be combined with it
            parameters["factor"] = _fixed_factor(method, scaling)
        return parameters
    if scaling is None:
        return parameters
    if scaling.kind == "ntk" and scaling.factor is not None:
        base = ntk_base(options.rotary_base, scaling.factor, method.features)
        parameters["rope_theta"] = base
        return parameters
    parameters["rope_type"] = NATIVE_ROPE_TYPES[scaling.kind]
    if scaling.kind == "ntk":
        if scaling.original_length != method.config.train_length:
            raise _length_dependence_error(method)
        parameters["factor"] = 1.0
        return parameters
    parameters["factor"] = _fixed_factor(method, scaling)
    if scaling.kind != "pi":
        parameters["original_max_position_embeddings"] = scaling.original_length
    if scaling.kind in TURN_KEYS:
        few, many = TURN_KEYS[scaling.kind]
        parameters[few] = scaling.few_turns
        parameters[many] = scaling.many_turns
    if scaling.kind == "longrope":
        parameters["short_factor"] = list(scaling.short_factors)
        parameters["long_factor"] = list(scaling.long_factors)
    return parameters


def _fixed_factor(method: Rotary, scaling: RotaryScaling) -> float:
    """Return the factor of a scaling.

    Raises:
        UserInputError: it depends on the length of the text.
    """
    if scaling.factor is None:
        raise _length_dependence_error(method)
    return scaling.factor


def _length_dependence_error(method: Rotary) -> UserInputError:
    """Return the error of a scaling that transformers lacks."""
    given = method.options.rotary_scaling
    assert given is not None
    return not_in_transformers(f"--rotary-scaling {given.text}, which depends on the length")


def rotary_options(parameters: dict[str, Any], train_length: int) -> dict[str, Any]:
    """Return the options of a model with these ``rope_parameters``, without default values.

    Raises:
        UserInputError: our decoder has no such rotation.
    """
    rest = {key: value for key, value in parameters.items() if value is not None}
    older_type = rest.pop("type", "default")  # its name in transformers 4
    rope_type = rest.pop("rope_type", older_type)
    base = rest.pop("rope_theta", BASE)
    fraction = rest.pop("partial_rotary_factor", 1.0)
    options: dict[str, Any] = {}
    if base != BASE:
        options["rotary_base"] = float(base)
    if fraction != 1:
        name = "p_rope" if rope_type == "proportional" else "rotary_percent"
        options[name] = float(fraction)
    if rope_type == "proportional":
        rope_type = "linear" if rest.get("factor", 1.0) != 1 else "default"
    if rope_type == "default":
        rest.pop("factor", None)
    else:
        options |= _scaling_options(rope_type, rest, train_length)
    if rest:
        raise not_in_fairseq(f"{min(rest)} in rope_parameters")
    return options


def _scaling_options(rope_type: str, rest: dict[str, Any], train_length: int) -> dict[str, str]:
    """Return the options of a scaling, whose keys are removed from ``rest``."""
    kinds = {native_name: kind for kind, native_name in NATIVE_ROPE_TYPES.items()}
    kind = kinds.get(rope_type)
    factor = rest.pop("factor", None)
    if kind is None or factor is None or (kind == "ntk" and factor != 1):
        raise not_in_fairseq(f"rope_type = {rope_type} and factor = {factor}")
    if kind == "ntk":
        return {"rotary_scaling": "ntk:dynamic"}
    length = rest.pop("original_max_position_embeddings", train_length)
    scaling = RotaryScaling(kind, factor, length)
    if kind in TURN_KEYS:
        few_key, many_key = TURN_KEYS[kind]
        few, many = TURNS[kind]
        scaling = replace(
            scaling, few_turns=rest.pop(few_key, few), many_turns=rest.pop(many_key, many)
        )
    options = {"rotary_scaling": scaling.text}
    if kind == "longrope":
        for key, option in FACTOR_KEYS.items():
            options[option] = ",".join(str(number) for number in rest.pop(key))
    return options
