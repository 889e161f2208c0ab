"""The value of a model's position methods: its notations, names, and JSON."""

from __future__ import annotations

import argparse

import pytest

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.models.config import AlibiLanguageModelConfig
from alibi_fairseq.positions import METHODS, MethodSpec
from alibi_fairseq.positions.spec import METHOD_NAMES, LayerMethod
from alibi_fairseq.results.model import Model
from alibi_fairseq.results.names import method_facts

#: Notation, name in results, and name in tables.
NAMES = [
    ("alibi", "alibi", "ALiBi"),
    ("t5/t5_max_distance=96", "t5", "T5 bias"),
    ("alibi/alibi_slopes=trainable", "alibi_trainable_slopes", "ALiBi, trainable slopes"),
    ("alibi/alibi_slopes=0.5+0.25", "alibi_given_slopes", "ALiBi, other slopes"),
    ("rotary/rotary_base=500000", "rotary_base_500000", "Rotary, base 500000"),
    ("alibi/attention_window=64", "alibi", "ALiBi"),
    ("alibi/score_scaling=ssmax", "alibi_ssmax", "ALiBi, SSMax"),
    (
        "rotary+rotary+rotary+none/p_rope=0.75/attention_window=512+512+512+0",
        "rotary_p_rope_0.75@512×3+none",
        "3 × Rotary, p-RoPE 0.75 (window 512) + No positions",
    ),
    (
        "alibi/attention_window=64+0/score_scaling=logn",
        "alibi@64+alibi_logn",
        "ALiBi (window 64) + ALiBi, logn",
    ),
]


@pytest.mark.parametrize(("notation", "recorded", "label"), NAMES)
def test_notation_and_names_agree(notation, recorded, label):
    spec = MethodSpec.parse(notation)
    assert spec.notation == notation
    assert spec.recorded_name == recorded
    assert spec.label == label


@pytest.mark.parametrize(("notation", "recorded", "label"), NAMES)
def test_tables_have_the_same_label(notation, recorded, label):
    model = Model(train_length=64, **method_facts(MethodSpec.parse(notation)))
    assert model.position_method == recorded
    assert model.method_name == label


@pytest.mark.parametrize("layers", [4, 8])
@pytest.mark.parametrize("notation", [notation for notation, _, _ in NAMES])
def test_flags_give_the_trainer_the_same_model(notation, layers):
    spec = MethodSpec.parse(notation)
    options = {"decoder_layers": layers}
    defaults = vars(AlibiLanguageModelConfig())
    for flag, value in zip(spec.flags[::2], spec.flags[1::2], strict=True):
        option = flag.removeprefix("--").replace("-", "_")
        options[option] = type(defaults[option])(value)
    assert MethodSpec.from_options(argparse.Namespace(**defaults | options)) == spec


@pytest.mark.parametrize(
    ("notation", "shortest"),
    [
        ("rotary/p_rope=1", "rotary"),
        ("rotary/rotary_base=1e4", "rotary"),
        ("rotary+rotary/rotary_base=1e6", "rotary/rotary_base=1000000"),
        ("alibi/attention_window=0", "alibi"),
    ],
)
def test_notations_of_one_model_are_equal(notation, shortest):
    spec = MethodSpec.parse(notation)
    assert spec == MethodSpec.parse(shortest)
    assert hash(spec) == hash(MethodSpec.parse(shortest))
    assert spec.notation == shortest


def test_values_of_options_distinguish_models():
    assert MethodSpec.parse("rotary/p_rope=0.5") != MethodSpec.parse("rotary/p_rope=0.75")


def test_methods_and_windows_may_have_different_periods():
    layers = MethodSpec.parse("rotary+none/attention_window=8+4+0").over(7)
    assert [layer.name for layer in layers] == ["rotary", "none"] * 3 + ["rotary"]
    assert [layer.window for layer in layers] == [8, 4, 0, 8, 4, 0, 8]


def test_options_belong_to_the_layers_of_their_method():
    spec = MethodSpec.parse("rotary+none/p_rope=0.75")
    assert spec.layers == (LayerMethod("rotary", {"p_rope": 0.75}), LayerMethod("none"))


def test_option_of_another_method_is_rejected():
    with pytest.raises(UserInputError, match="--p-rope applies only to position method rotary"):
        MethodSpec.parse("alibi+none/p_rope=0.75")


def test_every_method_has_a_name_in_tables():
    assert list(METHOD_NAMES) == list(METHODS)
