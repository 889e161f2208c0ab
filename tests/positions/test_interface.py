"""Interface of position methods, invalid options, and the documented method."""

from __future__ import annotations

import dataclasses
import math
import re
import sys
import types

import pytest
import torch
from commands import ROOT
from conftest import random_tokens, small_model
from omegaconf import OmegaConf

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.positions import (
    METHODS,
    MethodSpec,
    PositionConfig,
    all_options,
    build_position_method,
    register_position_method,
)

#: Methods without a bias, or (``transformer_xl``) with a separate one in each call.
WITHOUT_EQUAL_BIASES = {"sinusoidal", "learned", "rotary", "xpos", "none", "transformer_xl"}
BIASES = [(name, {}) for name in METHODS if name not in WITHOUT_EQUAL_BIASES]
BIASES += [
    ("alibi", {"alibi_slopes": "trainable"}),
    ("alibi", {"alibi_distance": "log", "alibi_clamp": "4"}),
]


@pytest.mark.parametrize(("name", "options"), BIASES)
def test_biases_of_a_method_compare_equal(name, options):
    """Layers with equal biases share one mask.

    The comparison must not compare tensors: from Python 3.13 on, dataclasses compare fields without
    checking identity first.
    """
    config = PositionConfig(64, 8, 2, 16)
    first = build_position_method(name, config, **options)
    second = build_position_method(name, config, **options)
    bias = first.bias(0, 16)
    assert hash(bias) == hash(first.bias(0, 16))
    assert bias == first.bias(0, 16)
    assert (bias == first.bias(1, 16)) == (name not in ("fire", "cope", "bam", "grape_a_qk"))
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
    register_position_method("root", my_plugin.Root)  # registering the same class again is allowed
    with pytest.raises(ValueError, match="'alibi' is registered already"):
        register_position_method("alibi", my_plugin.Root)
    assert_decodes_with_cache("root")


def assert_decodes_with_cache(name):
    """Compare decoding in chunks with a full pass, which differs from one without positions."""
    model = small_model(name)
    tokens = random_tokens(2, 40)
    state = {}
    ends = (1, 2, 17, 30, 40)
    chunks = [model.decoder(tokens[:, :end], incremental_state=state)[0] for end in ends]
    torch.testing.assert_close(torch.cat(chunks, 1), model(tokens)[0], rtol=0, atol=1e-5)
    unbiased = small_model("none")
    shared = unbiased.state_dict().keys()
    unbiased.load_state_dict({key: model.state_dict()[key] for key in shared})
    assert (unbiased(tokens)[0] - model(tokens)[0]).abs().max() > 1e-3


@torch.no_grad()
@pytest.mark.parametrize("name", ["Selective", "Gated"])
def test_documented_methods_with_features_decode_with_cache(name, monkeypatch):
    page = (ROOT / "docs" / "position-method-interface.md").read_text(encoding="utf-8")
    (code,) = re.findall(rf"```python\n((?:(?!```).)*class {name}\(.*?)```", page, re.DOTALL)
    # A module, because dataclasses look up the annotations of their fields there.
    module = types.ModuleType("documented")
    monkeypatch.setitem(sys.modules, "documented", module)
    exec(code, vars(module))
    monkeypatch.setitem(METHODS, name, vars(module)[name])
    assert_decodes_with_cache(name)


def test_display_name_is_not_inherited(monkeypatch):
    class Root(METHODS["none"]):
        display_name = "Root distance"

    class RootHalf(Root):
        pass

    monkeypatch.setitem(METHODS, "root", Root)
    monkeypatch.setitem(METHODS, "root_half", RootHalf)

    def spec_of(method):
        options = {"position_method": method, "decoder_layers": 2}
        return MethodSpec.from_options(OmegaConf.create(options))

    assert spec_of("root").label == "Root distance"
    assert spec_of("root_half").label == "root_half"


class TwoBiases(METHODS["fox"]):
    def bias(self, layer, num_keys):
        return build_position_method("alibi", dataclasses.replace(self.config, options=None)).bias(
            layer, num_keys
        )


class MemoryAndRotation(METHODS["rotary"]):
    memory_length = 8


class MemoryAndEmbeddings(METHODS["sinusoidal"]):
    memory_length = 8


@pytest.mark.parametrize("name", ["plugin", "plugin+none"])
@pytest.mark.parametrize(
    ("method", "message"),
    [
        (TwoBiases, "overrides feature_bias and bias"),
        (MemoryAndRotation, "has a memory and overrides embed or rotation"),
        (MemoryAndEmbeddings, "has a memory and overrides embed or rotation"),
    ],
)
def test_members_that_exclude_each_other_are_rejected(monkeypatch, method, message, name):
    monkeypatch.setitem(METHODS, "plugin", method)
    with pytest.raises(ValueError, match=message):
        build_position_method(name, PositionConfig(64, 8, 2, 16))


#: Method, option, and invalid values. The error message names the option.
INVALID_VALUES = [
    ("alibi", "alibi_bias_max", [0.0, -8.0, math.inf, math.nan]),
    ("alibi", "alibi_scale", ["dynamc", "-1", "0", "nan", "inf", ""]),
    ("alibi", "alibi_distance", ["logarithmic", ""]),
    ("alibi", "alibi_clamp", ["0", "-92", "nan", "inf", ""]),
    ("alibi", "alibi_cap", ["0", "-30", "dynamic"]),
    ("inkling", "inkling_extent", [0, -1]),
    ("inkling", "alibi_cap", ["4"]),
    ("alibi", "alibi_slopes", ["papier", "0.5,0.25", "none.txt"]),
    ("alibi", "alibi_slopes", [f"{slope},1,1,1,1,1,1,1" for slope in ("x", "-1", "nan", "inf")]),
    ("rotary", "rotary_scaling", ["yarn", "yarn:", "yarn:0.5", "pi:-2", ""]),
    ("rotary", "rotary_scaling", ["ntk:nan", "linear:4", "pi:4:0", "pi:4:x"]),
    ("rotary", "rotary_scaling", ["llama3:8:16:4:1", "yarn:4:16:1"]),
    ("rotary", "rotary_scaling", ["pi:4:16:1:4", "longrope:dynamic"]),
    ("rotary", "rotary_base", [0.5, 1.0, -1.0, math.inf, math.nan]),
    ("rotary", "rotary_percent", [1.1, 0.0, -0.5, math.nan, 0.4, 0.1]),
    ("rotary", "p_rope", [1.1, 0.0, -0.5, math.nan]),
    ("rotary", "longrope_short_factors", ["1,1,1,1"]),  # without the scaling
    ("transformer_xl", "mem_len", [-3]),
    # Options of another method.
    ("alibi", "rotary_scaling", ["yarn:4"]),
    ("xpos", "rotary_scaling", ["yarn:4"]),
    ("rotary", "alibi_slopes", ["random"]),
    ("alibi", "mem_len", [4]),
    ("xpos", "rotary_base", [0.5]),
    ("xpos", "rotary_percent", [0.5]),
    ("xpos", "p_rope", [0.5]),
    ("alibbi", "alibi", [None]),  # unknown method; the message suggests "alibi"
]
INVALID = [(name, option, value) for name, option, values in INVALID_VALUES for value in values]


@pytest.mark.parametrize(("name", "option", "value"), INVALID)
def test_invalid_options_are_rejected(name, option, value):
    options = {option: value} if option in all_options() else {}
    with pytest.raises(UserInputError, match=option.replace("_", "-")):
        build_position_method(name, PositionConfig(64, 8, 2, 16), **options)


@pytest.mark.parametrize(
    ("notation", "message"),
    [
        ("rotary/attention_window=64", "'rotary/attention_window=64' has attention windows"),
        ("rotary+none/attention_window=64+0", "Set attention_window=0 .* FutureMask"),
        ("rnope_swa", "'rnope_swa' has attention windows"),
        ("swan/attention_window=0", "'swan/attention_window=0' has score_scaling=logn"),
        ("alibi/score_scaling=ssmax", "Set score_scaling=none .* ScoreScale"),
    ],
)
def test_options_that_are_not_of_the_method_are_rejected(notation, message):
    with pytest.raises(UserInputError, match=message):
        build_position_method(notation, PositionConfig(64, 8, 4, 16))


def test_patterns_build_without_these_options():
    config = PositionConfig(64, 8, 4, 16)
    method = build_position_method("swan/attention_window=0/score_scaling=none", config)
    assert method.names == ["rotary", "rotary", "rotary", "none"]


@pytest.mark.parametrize("factors", ["none", "", "1,1,1", "1,1,1,1,1", "1,1,1,0", "1,1,1,x"])
@pytest.mark.parametrize("option", ["longrope_short_factors", "longrope_long_factors"])
def test_longrope_lists_must_fit(option, factors):
    lists = {"longrope_short_factors": "1,1,1,1", "longrope_long_factors": "1,2,3,4"}
    lists[option] = factors
    config = PositionConfig(64, 8, 2, 16)
    with pytest.raises(UserInputError, match="--" + option.replace("_", "-")):
        build_position_method("rotary", config, rotary_scaling="longrope:4", **lists)


def test_p_rope_is_not_combined_with_other_partial_rotations():
    for options in ({"rotary_percent": 0.5}, {"rotary_scaling": "yarn:4"}):
        with pytest.raises(UserInputError, match="--p-rope cannot be combined"):
            build_position_method("rotary", PositionConfig(64, 8, 2, 16), p_rope=0.5, **options)
