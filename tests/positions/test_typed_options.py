"""Text of options as typed values. ``test_interface.py`` has the invalid ones."""

from __future__ import annotations

import pytest

from alibi_fairseq.positions.alibi import AlibiOptions
from alibi_fairseq.positions.options import RotaryScaling, read_options
from alibi_fairseq.positions.rotary import RotaryOptions
from alibi_fairseq.positions.t5 import T5Options

CASES = [
    (AlibiOptions, "alibi_scale", "none", 1.0),
    (AlibiOptions, "alibi_scale", "dynamic", None),
    (AlibiOptions, "alibi_scale", "2.5", 2.5),
    (AlibiOptions, "alibi_slopes", "random", "random"),
    (AlibiOptions, "alibi_slopes", "0.5,0,0.25", (0.5, 0.0, 0.25)),
    (AlibiOptions, "alibi_bias_max", 16, 16.0),
    (RotaryOptions, "rotary_scaling", "none", None),
    (RotaryOptions, "rotary_scaling", "ntk:dynamic", RotaryScaling("ntk", None)),
    (RotaryOptions, "rotary_scaling", "yarn:4:512", RotaryScaling("yarn", 4.0, 512)),
    (
        RotaryOptions,
        "rotary_scaling",
        "llama3:8:8192:1:4",
        RotaryScaling("llama3", 8.0, 8192, few_turns=1.0, many_turns=4.0),
    ),
    (RotaryOptions, "longrope_short_factors", "none", ()),
    (RotaryOptions, "longrope_short_factors", "1,2.5", (1.0, 2.5)),
    (T5Options, "t5_max_distance", 64, 64),
]


@pytest.mark.parametrize(("kind", "option", "text", "value"), CASES)
def test_text_becomes_a_typed_value(kind, option, text, value):
    assert getattr(read_options(kind, {option: text}), option) == value


@pytest.mark.parametrize("text", ["pi:4.0", "yarn:4.0:512:1.0:32.0", "longrope:2.0:16"])
def test_scaling_is_written_as_it_is_read(text):
    assert read_options(RotaryOptions, {"rotary_scaling": text}).rotary_scaling.text == text
