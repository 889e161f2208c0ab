"""Options of position methods that cannot be, by the method and the option that is named."""

from __future__ import annotations

import math

import pytest

from alibi_fairseq.errors import BadInput
from alibi_fairseq.positions import PositionConfig, build_position_method

BAD = [
    *(("alibi", "alibi_bias_max", value) for value in (0.0, -8.0, math.inf, math.nan)),
    *(("alibi", "alibi_scale", value) for value in ("dynamc", "-1", "0", "nan", "inf", "")),
    *(("alibi", "alibi_slopes", value) for value in ("papier", "0.5,0.25", "none.txt")),
    *(("alibi", "alibi_slopes", f"{value},1,1,1,1,1,1,1") for value in ("0", "-1", "nan", "inf")),
    *(("rotary", "rotary_scaling", value) for value in ("yarn", "yarn:", "yarn:0.5", "pi:-2", "")),
    *(("rotary", "rotary_scaling", value) for value in ("ntk:nan", "linear:4", "pi:4:0", "pi:4:x")),
    ("transformer_xl", "mem_len", -3),
    # Options of another method.
    *((name, "rotary_scaling", "yarn:4") for name in ("alibi", "xpos")),
    *(("rotary", "alibi_slopes", "random"), ("alibi", "mem_len", 4)),
    # Odd head sizes cannot be turned in pairs.
    *((name, "decoder_embed_dim", 60) for name in ("rotary", "xpos")),
    ("alibbi", "alibi", None),  # no method, with a hint
]


@pytest.mark.parametrize(("name", "option", "value"), BAD)
def test_refused(name, option, value):
    width = value if option == "decoder_embed_dim" else 64
    heads = 4 if width == 60 else 8
    given = {option: value} if hasattr(PositionConfig, option) else {}
    with pytest.raises(BadInput, match=option.replace("_", "-")):
        build_position_method(name, PositionConfig(width, heads, 2, 16, **given))
