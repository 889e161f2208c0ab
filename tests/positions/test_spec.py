"""The value of a model's position methods: its notations, its name, and JSON."""

from __future__ import annotations

import argparse

import pytest

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.models.config import AlibiLanguageModelConfig
from alibi_fairseq.positions import METHODS, MethodSpec
from alibi_fairseq.positions.display_names import METHOD_NAMES
from alibi_fairseq.positions.spec import LayerMethod, distinct_labels, unique_labels
from alibi_fairseq.results.series import Series, read_series, series_json
from alibi_fairseq.results.training_settings import method_json

#: Notation, name in tables, and JSON.
NAMES = [
    ("alibi", "ALiBi", {"layers": [{"name": "alibi"}]}),
    (
        "t5/t5_max_distance=96",
        "T5 bias",
        {"layers": [{"name": "t5", "options": {"t5_max_distance": 96}}]},
    ),
    (
        "alibi/alibi_slopes=trainable",
        "ALiBi, trainable slopes",
        {"layers": [{"name": "alibi", "options": {"alibi_slopes": "trainable"}}]},
    ),
    (
        "alibi/alibi_slopes=0.5+0.25",
        "ALiBi, other slopes",
        {"layers": [{"name": "alibi", "options": {"alibi_slopes": "0.5,0.25"}}]},
    ),
    (
        "rotary/rotary_base=500000",
        "Rotary, base 500000",
        {"layers": [{"name": "rotary", "options": {"rotary_base": 500000.0}}]},
    ),
    ("alibi/attention_window=64", "ALiBi", {"layers": [{"name": "alibi", "window": 64}]}),
    (
        "alibi/score_scaling=ssmax",
        "ALiBi, SSMax",
        {"layers": [{"name": "alibi"}], "score_scaling": "ssmax"},
    ),
    (
        "rotary+rotary+rotary+none/p_rope=0.75/attention_window=512+512+512+0",
        "3 × Rotary, p-RoPE 0.75 (window 512) + No positions",
        {
            "layers": [
                {"name": "rotary", "options": {"p_rope": 0.75}, "window": 512},
                {"name": "rotary", "options": {"p_rope": 0.75}, "window": 512},
                {"name": "rotary", "options": {"p_rope": 0.75}, "window": 512},
                {"name": "none"},
            ]
        },
    ),
    (
        "alibi/attention_window=64+0/score_scaling=logn",
        "ALiBi (window 64) + ALiBi, logn",
        {"layers": [{"name": "alibi", "window": 64}, {"name": "alibi"}], "score_scaling": "logn"},
    ),
]


@pytest.mark.parametrize(("notation", "label", "content"), NAMES)
def test_notation_and_label_agree(notation, label, content):
    spec = MethodSpec.parse(notation)
    assert spec.notation == notation
    assert spec.label == label


@pytest.mark.parametrize(("notation", "label", "content"), NAMES)
def test_results_record_the_value(notation, label, content):
    method = MethodSpec.parse(notation)
    written = series_json(Series({"method": method_json(method)}))
    assert written == {"settings": {"method": content}}
    series = read_series(written, "a file")
    assert series.method == method
    assert series.method.label == label


@pytest.mark.parametrize(
    "method",
    [
        {"layers": [{"name": 1}]},
        {"layers": [{"name": "alibi", "slopes": "random"}]},
        {"layers": [{"name": "alibi"}], "scaling": "logn"},
        "alibi",
    ],
)
def test_other_content_is_no_method(method):
    with pytest.raises(UserInputError, match="a file: settings must have a position method"):
        read_series({"settings": {"method": method}}, "a file")


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


def test_methods_of_a_plugin_state_an_option_that_differs():
    plain = MethodSpec.plain("of_a_plugin")
    half = MethodSpec((LayerMethod("of_a_plugin", {"exponent": 0.5}),))
    alone = distinct_labels([plain, MethodSpec.plain("alibi")])
    assert list(alone.values()) == ["of_a_plugin", "ALiBi"]
    labels = distinct_labels([plain, half])
    # The plugin is not imported, so the default is unknown.
    assert labels == {plain: "of_a_plugin, exponent default", half: "of_a_plugin, exponent 0.5"}


def test_methods_with_one_label_state_their_notation():
    far = MethodSpec.parse("t5/t5_max_distance=64")
    t5 = MethodSpec.plain("t5")
    alibi = MethodSpec.plain("alibi")
    assert unique_labels([far, t5, alibi]) == {
        far: "T5 bias (t5/t5_max_distance=64)",
        t5: "T5 bias (t5)",
        alibi: "ALiBi",
    }
    assert unique_labels([far, alibi]) == {far: "T5 bias", alibi: "ALiBi"}
