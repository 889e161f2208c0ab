"""Options of a plugin's position method: flags, types, names, resuming, and evaluation."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from commands import SHORT, as_process, in_process
from conftest import random_tokens, small_model

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.evaluation.checkpoint import load_checkpoint
from alibi_fairseq.huggingface.export import export_checkpoint
from alibi_fairseq.positions import (
    METHODS,
    MethodSpec,
    PositionConfig,
    PositionMethod,
    RelativeBias,
    build_position_method,
    option,
    register_position_method,
)


@dataclass(frozen=True)
class PowerBias(RelativeBias):
    exponent: float
    reversed: bool

    def at(self, distance):
        bias = distance.float() ** self.exponent  # (*distance.shape)
        return (bias if self.reversed else -bias)[None]


@dataclass(frozen=True)
class PowerOptions:
    exponent: float = option("power of the distance", 0.5)
    nearest: int = option("an option that the bias ignores", 0)
    reversed: bool = option("prefer distant keys", False)
    kind: str = option("another kind", "plain")


class Power(PositionMethod):
    Options = PowerOptions
    display_name = "Power of the distance"

    def bias(self, layer, num_keys):
        return PowerBias(self.options.exponent, self.options.reversed)


@pytest.fixture
def power(monkeypatch):
    monkeypatch.setitem(METHODS, "power", None)  # removed again after the test
    del METHODS["power"]
    register_position_method("power", Power)


def test_flags_set_typed_options(power):
    flags = ["--exponent", "2", "--nearest", "3", "--reversed", "--kind", "other"]
    options = small_model("power", *flags).decoder.embed_positions.options
    assert options == PowerOptions(2.0, 3, True, "other")
    assert isinstance(options.exponent, float)
    assert small_model("power").decoder.embed_positions.options == PowerOptions()


def test_option_changes_the_bias_as_its_formula(power):
    """With the exponent 1, the bias is that of ALiBi with the slope 1 in all heads."""
    model = small_model("power", "--exponent", "1")
    alibi = small_model("alibi", "--alibi-slopes", ",".join(["1"] * 8))
    alibi.load_state_dict(model.state_dict())
    tokens = random_tokens(2, 20)
    torch.testing.assert_close(model(tokens)[0], alibi(tokens)[0])


@pytest.mark.parametrize(
    ("notation", "label"),
    [
        ("power", "Power of the distance"),
        ("power/exponent=0.75", "Power of the distance, exponent 0.75"),
        ("power/nearest=3", "Power of the distance, nearest 3"),
        ("power/reversed=true", "Power of the distance, reversed true"),
        ("power+none/exponent=0.75", "Power of the distance, exponent 0.75 + No positions"),
    ],
)
def test_options_are_part_of_the_name(power, notation, label):
    spec = MethodSpec.parse(notation)
    assert spec.notation == notation
    assert spec.label == label
    model = small_model(*spec.flags[1:])
    assert MethodSpec.from_options(model.decoder.args) == spec


@pytest.mark.parametrize(
    ("value", "expected"), [("true", True), ("false", False), (True, True), (False, False)]
)
def test_truth_values_from_python(power, value, expected):
    config = PositionConfig(num_heads=4, embed_dim=32, num_layers=2, train_length=16)
    assert build_position_method("power", config, reversed=value).options.reversed is expected
    for wrong in ("False", "yes", "0"):
        with pytest.raises(UserInputError, match="reversed of 'power' must be true or false"):
            build_position_method("power", config, reversed=wrong)


@pytest.mark.parametrize("setting", ["exponent=much", "nearest=0.5", "reversed=yes"])
def test_values_of_another_type_are_rejected(power, setting):
    with pytest.raises(UserInputError, match=f"{setting.partition('=')[0]} .* must be"):
        MethodSpec.parse(f"power/{setting}")


@pytest.mark.parametrize(("name", "default"), [("dropout", 0.5), ("seed", 3), ("p_rope", 0.5)])
def test_names_of_other_options_are_rejected(monkeypatch, name, default):
    monkeypatch.setitem(METHODS, "other", None)
    del METHODS["other"]
    options = type("Options", (), {"__annotations__": {name: float}, name: default})
    method = type("Other", (PositionMethod,), {"Options": dataclass(frozen=True)(options)})
    with pytest.raises(UserInputError, match=f"'{name}' of the position method 'other'"):
        register_position_method("other", method)


@pytest.mark.ci
@pytest.mark.parametrize("default", [1.0, True])
def test_methods_of_a_plugin_do_not_share_an_option_with_another_default(
    power, monkeypatch, default
):
    """A model has one value of an option, so the other method's default would be trained."""
    monkeypatch.setitem(METHODS, "other", None)
    del METHODS["other"]
    annotations = {"exponent": type(default)}
    options = type("Options", (), {"__annotations__": annotations, "exponent": default})
    method = type("Other", (PositionMethod,), {"Options": dataclass(frozen=True)(options)})
    with pytest.raises(UserInputError, match="'exponent' of the position method 'other'"):
        register_position_method("other", method)
    monkeypatch.delitem(METHODS, "other")
    same = type("Options", (), {"__annotations__": {"exponent": float}, "exponent": 0.5})
    method = type("Other", (PositionMethod,), {"Options": dataclass(frozen=True)(same)})
    register_position_method("other", method)


def test_subclass_of_a_method_inherits_its_options(monkeypatch):
    monkeypatch.setitem(METHODS, "alibi_child", None)
    del METHODS["alibi_child"]
    register_position_method("alibi_child", type("Child", (METHODS["alibi"],), {}))
    model = small_model("alibi_child", "--alibi-scale", "2")
    assert model.decoder.embed_positions.options.alibi_scale == 2.0


@pytest.mark.ci
def test_option_is_kept_overridden_and_not_exported(power, data_bin, tmp_path):
    flags = ["--position-method", "power", "--exponent", "0.75", "--save-dir", tmp_path]
    in_process("train", data_bin, *SHORT, *flags)
    checkpoint = tmp_path / "checkpoint_last.pt"
    loaded = load_checkpoint(checkpoint, data_bin)
    assert loaded.method.notation == "power/exponent=0.75"
    assert loaded.method.label == "Power of the distance, exponent 0.75"
    changed = load_checkpoint(checkpoint, data_bin, overrides={"exponent": 0.25})
    assert changed.decoder.embed_positions.options.exponent == 0.25
    with pytest.raises(UserInputError, match="exponent is 'much', which is no float"):
        load_checkpoint(checkpoint, data_bin, overrides={"exponent": "much"})
    with pytest.raises(UserInputError, match=r"--exponent 0\.75 and this command has --exponent 1"):
        in_process("train", data_bin, *SHORT, *flags, "--exponent", "1", "--max-update", 5)
    state = torch.load(checkpoint, weights_only=False)
    state["cfg"]["model"]["strength"] = 0.1  # an option that was renamed since
    torch.save(state, tmp_path / "renamed.pt")
    with pytest.raises(UserInputError, match=r"trained with strength = 0\.1, an option that the"):
        load_checkpoint(tmp_path / "renamed.pt", data_bin)
    del METHODS["power"]  # a command without the plugin
    with pytest.raises(UserInputError, match="with the position method of a plugin"):
        export_checkpoint(checkpoint, data_bin, tmp_path / "exported", [])
    assert not (tmp_path / "exported").exists()


@pytest.mark.ci
def test_help_of_train_has_the_options_of_a_plugin(tmp_path):
    (tmp_path / "my_plugin").mkdir()
    source = "\n".join(
        [
            "from dataclasses import dataclass",
            "from alibi_fairseq.positions import PositionMethod, option, register_position_method",
            "@dataclass",
            "class Options:",
            "    exponent: float = option('power of the distance', 0.5)",
            "class Power(PositionMethod):",
            "    Options = Options",
            "register_position_method('power', Power)",
        ]
    )
    (tmp_path / "my_plugin" / "__init__.py").write_text(source)
    done = as_process(
        "-m", "alibi_fairseq", "train", "--help", "--user-dir", tmp_path / "my_plugin"
    )
    assert "power: power of the distance" in done.stdout
