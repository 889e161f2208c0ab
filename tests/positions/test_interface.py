"""Interface of position methods, invalid options, and the documented method."""

from __future__ import annotations

import dataclasses
import math
import re
import sys

import pytest
import torch
from commands import ROOT
from conftest import random_tokens, small_model

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.positions import (
    METHODS,
    PositionConfig,
    build_position_method,
    register_position_method,
)


@pytest.mark.parametrize(
    ("name", "options"),
    [*((name, {}) for name in METHODS), ("alibi", {"alibi_slopes": "trainable"})],
)
def test_equal_biases_are_one_bias(name, options):
    """Compare biases, since layers with equal biases share one mask.

    The comparison must not compare tensors: from Python 3.13 on, dataclasses compare fields without
    checking identity first.
    """
    first, second = (
        build_position_method(name, PositionConfig(64, 8, 2, 16, **options)) for _ in range(2)
    )
    bias = first.bias(0, 16)
    if bias is None or type(bias).__eq__ is object.__eq__:
        return
    assert hash(bias) == hash(first.bias(0, 16))
    assert bias == first.bias(0, 16)
    assert (bias == first.bias(1, 16)) == (name not in ("fire", "cope", "bam"))
    assert (bias == second.bias(0, 16)) != bias.needs_grad
    values = [getattr(bias, field.name) for field in dataclasses.fields(bias) if field.compare]
    assert not any(isinstance(value, torch.Tensor) for value in values)


@torch.no_grad()
def test_documented_method_decodes_with_cache(tmp_path, monkeypatch):
    """Use the guide's code as an outside package. test_documented_commands runs its commands."""
    guide = (ROOT / "docs" / "adding-a-position-method.md").read_text(encoding="utf-8")
    (tmp_path / "my_plugin").mkdir()
    code = re.search(r"```python\n(.*?)```", guide, re.DOTALL)[1]
    (tmp_path / "my_plugin" / "__init__.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(METHODS, "root", None)  # removed again after the test
    del METHODS["root"]
    import my_plugin

    monkeypatch.delitem(sys.modules, "my_plugin")
    register_position_method("root", my_plugin.Root)  # the same again is no harm
    with pytest.raises(ValueError, match="'alibi' is registered already"):
        register_position_method("alibi", my_plugin.Root)
    model = small_model("root")
    tokens = random_tokens(2, 40)
    state = {}
    ends = (1, 2, 17, 30, 40)
    chunks = [model.decoder(tokens[:, :end], incremental_state=state)[0] for end in ends]
    torch.testing.assert_close(torch.cat(chunks, 1), model(tokens)[0], rtol=0, atol=1e-5)
    other = small_model("none")
    other.load_state_dict(model.state_dict())
    assert (other(tokens)[0] - model(tokens)[0]).abs().max() > 1e-3


#: Method, option and value; the sentence names the option.
BAD = [
    *(("alibi", "alibi_bias_max", value) for value in (0.0, -8.0, math.inf, math.nan)),
    *(("alibi", "alibi_scale", value) for value in ("dynamc", "-1", "0", "nan", "inf", "")),
    *(("alibi", "alibi_slopes", value) for value in ("papier", "0.5,0.25", "none.txt")),
    *(("alibi", "alibi_slopes", f"{value},1,1,1,1,1,1,1") for value in ("x", "-1", "nan", "inf")),
    *(("rotary", "rotary_scaling", value) for value in ("yarn", "yarn:", "yarn:0.5", "pi:-2", "")),
    *(("rotary", "rotary_scaling", value) for value in ("ntk:nan", "linear:4", "pi:4:0", "pi:4:x")),
    *(("rotary", "rotary_scaling", value) for value in ("llama3:8:16:4:1", "yarn:4:16:1")),
    *(("rotary", "rotary_scaling", value) for value in ("pi:4:16:1:4", "longrope:dynamic")),
    *(("rotary", "rotary_base", value) for value in (0.5, 1.0, -1.0, math.inf, math.nan)),
    *(("rotary", "rotary_percent", value) for value in (1.1, 0.0, -0.5, math.nan, 0.4, 0.1)),
    *(("rotary", "p_rope", value) for value in (1.1, 0.0, -0.5, math.nan, 0.1)),
    ("rotary", "longrope_short_factors", "1,1,1,1"),  # without the scaling
    ("transformer_xl", "mem_len", -3),
    # Options of another method.
    *((name, "rotary_scaling", "yarn:4") for name in ("alibi", "xpos")),
    *(("rotary", "alibi_slopes", "random"), ("alibi", "mem_len", 4)),
    # Odd head sizes cannot be turned in pairs.
    *((name, "decoder_embed_dim", 60) for name in ("rotary", "xpos")),
    *(("xpos", option, 0.5) for option in ("rotary_base", "rotary_percent", "p_rope")),
    ("alibbi", "alibi", None),  # no method, with a hint
]


@pytest.mark.parametrize(("name", "option", "value"), BAD)
def test_invalid_options_are_rejected(name, option, value):
    width = value if option == "decoder_embed_dim" else 64
    heads = 4 if width == 60 else 8
    given = {option: value} if hasattr(PositionConfig, option) else {}
    with pytest.raises(UserInputError, match=option.replace("_", "-")):
        build_position_method(name, PositionConfig(width, heads, 2, 16, **given))


@pytest.mark.parametrize("factors", ["none", "", "1,1,1", "1,1,1,1,1", "1,1,1,0", "1,1,1,x"])
@pytest.mark.parametrize("wrong", ["longrope_short_factors", "longrope_long_factors"])
def test_longrope_lists_must_fit(wrong, factors):
    lists = {"longrope_short_factors": "1,1,1,1", "longrope_long_factors": "1,2,3,4"}
    lists[wrong] = factors
    config = PositionConfig(64, 8, 2, 16, rotary_scaling="longrope:4", **lists)
    with pytest.raises(UserInputError, match="--" + wrong.replace("_", "-")):
        build_position_method("rotary", config)


def test_p_rope_is_not_combined_with_other_partial_rotations():
    for other in ({"rotary_percent": 0.5}, {"rotary_scaling": "yarn:4"}):
        with pytest.raises(UserInputError, match="--p-rope cannot be combined"):
            build_position_method("rotary", PositionConfig(64, 8, 2, 16, p_rope=0.5, **other))
