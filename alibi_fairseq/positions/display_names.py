"""Names of position methods and of their options in tables and figures."""

from __future__ import annotations

#: Names of the methods of this package in tables and figures, in the order of tables.
METHOD_NAMES = {
    "alibi": "ALiBi",
    "sinusoidal": "Sinusoidal",
    "learned": "Learned",
    "rotary": "Rotary",
    "t5": "T5 bias",
    "transformer_xl": "Transformer-XL",
    "none": "No positions",
    "kerple": "KERPLE",
    "sandwich": "Sandwich",
    "xpos": "xPos",
    "fox": "FoX",
    "fire": "FIRE",
    "cope": "CoPE",
    "bam": "BAM",
    "grape_a_qk": "GRAPE-A-QK",
    "inkling": "Inkling bias",
}
#: Names in tables of the options whose values are part of the name of a method. Other options, such
#: as a distance that grows with the training length, are not.
OPTION_NAMES = {
    "rotary_base": "base",
    "rotary_percent": "percent",
    "p_rope": "p-RoPE",
    "alibi_distance": "distance",
    "alibi_clamp": "clamp",
    "alibi_cap": "cap",
    "inkling_extent": "extent",
}
#: Kinds of ALiBi's slopes in tables. Slopes that are given as numbers are ``given``.
SLOPE_NAMES = {
    "even": "even slopes",
    "trainable": "trainable slopes",
    "random": "random slopes",
    "given": "other slopes",
}
#: Labels with a fixed place in tables, in that order.
KNOWN_LABELS = [*METHOD_NAMES.values(), *(f"ALiBi, {name}" for name in SLOPE_NAMES.values())]
#: Values of ``--score-scaling``, and their names in tables.
SCORE_SCALING_NAMES = {"logn": "logn", "ssmax": "SSMax"}


def method_name(name: str) -> str:
    """Return the name of a registered method in tables, if it is one of this package."""
    return METHOD_NAMES.get(name, name)
