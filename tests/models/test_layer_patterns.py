"""Position methods and attention windows that differ between layers."""

from __future__ import annotations

import logging

import pytest
import torch
from commands import SHORT, in_process
from conftest import random_tokens, small_model
from omegaconf import OmegaConf
from torch.nn.functional import cross_entropy

from alibi_fairseq.attention import BACKENDS
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.huggingface.conversion import convert_decoder
from alibi_fairseq.positions import METHODS, MethodSpec

#: Methods, windows, and number of layers. The first pattern is RNoPE-SWA.
PATTERNS = [
    ("rotary,rotary,none", "5,5,0", 4),
    ("none,rotary", "0", 3),
    ("rotary", "3,0", 2),
    ("rotary,none", "2,7,0", 4),
]


def pattern_model(methods: str, windows: str, layers: int, *flags: str, **kwargs):
    pattern = ["--attention-window", windows, "--decoder-layers", str(layers)]
    model = small_model(methods, *pattern, *flags, **kwargs)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def gpt_neox(model, methods: str, windows: str, layers: int, heads: int):
    """Return transformers' GPT-NeoX with the weights of a model.

    Hooks remove rotations and add attention windows. A rotation with cos = 1 and sin = 0 changes
    nothing.
    """
    rotary = small_model("rotary", "--decoder-layers", str(layers), heads=heads)
    rotary.load_state_dict(model.state_dict())
    reference = convert_decoder(rotary.decoder, "rotary", 32).model
    reference.set_attn_implementation("eager")
    layer_methods = methods.split(",")
    layer_windows = windows.split(",")

    def make_hook(method: str, window: int):
        def change_inputs(module, args, kwargs):
            cos, sin = kwargs["position_embeddings"]
            if method == "none":
                kwargs["position_embeddings"] = (torch.ones_like(cos), torch.zeros_like(sin))
            if window:
                positions = torch.arange(cos.shape[1])
                distance = positions[:, None] - positions
                hidden = (distance < 0) | (distance >= window)
                mask = torch.zeros(distance.shape).masked_fill(hidden, -1e30)
                kwargs["attention_mask"] = mask[None, None]
            return args, kwargs

        return change_inputs

    for index, layer in enumerate(reference.gpt_neox.layers):
        method = layer_methods[index % len(layer_methods)]
        window = int(layer_windows[index % len(layer_windows)])
        layer.register_forward_pre_hook(make_hook(method, window), with_kwargs=True)
    return reference


@pytest.mark.parametrize("heads", [3, 8])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_values_and_gradients_match_gpt_neox(pattern, heads):
    model = pattern_model(*pattern, heads=heads)
    tokens = random_tokens(2, 20)
    reference = gpt_neox(model, *pattern, heads)
    logits = model(tokens)[0]
    expected = reference(tokens).logits
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)
    for scores in (logits, expected):
        cross_entropy(scores[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
    layers = zip(model.decoder.layers, reference.gpt_neox.layers, strict=True)
    for layer, reference_layer in layers:
        fc1_gradient = layer.fc1.weight.grad
        expected_fc1_gradient = reference_layer.mlp.dense_h_to_4h.weight.grad
        torch.testing.assert_close(fc1_gradient, expected_fc1_gradient, rtol=1e-4, atol=1e-6)
        out_gradient = layer.self_attn.out_proj.weight.grad
        expected_out_gradient = reference_layer.attention.dense.weight.grad
        torch.testing.assert_close(out_gradient, expected_out_gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("pattern", [("rotary,none", "7,0", 3), ("alibi,none", "0,5", 3)])
@torch.no_grad()
def test_backends_agree(pattern, backend):
    """A backend that does not support the mask of a layer is replaced in this layer."""
    tokens = random_tokens(2, 150)
    model = pattern_model(*pattern, "--attention-backend", "eager")
    expected = model(tokens)[0]
    for layer in model.decoder.layers:
        layer.self_attn.backend = backend
    torch.testing.assert_close(model(tokens)[0], expected, rtol=0, atol=2e-5)


def test_bf16_is_close_to_fp32():
    model = pattern_model("rotary,none,alibi", "7,0", 3)
    tokens = random_tokens(2, 30)
    expected = model(tokens)[0].log_softmax(-1)
    log_probs = model.bfloat16()(tokens)[0].float().log_softmax(-1)
    assert (log_probs - expected).abs().mean() < 0.05 * expected.std()


def test_methods_have_parameters_for_their_layers():
    model = small_model("none,fire,bam", "--decoder-layers", "5")
    layers = set()
    for name, _ in model.decoder.embed_positions.named_parameters():
        layers.add(".".join(name.split(".")[:4]))
    assert layers == {
        "methods.fire.layers.0",
        "methods.fire.layers.1",
        "methods.bam.layers.0",
    }
    tokens = random_tokens(2, 16)
    cross_entropy(model(tokens)[0].flatten(0, 1), tokens.flatten()).backward()
    for name, parameter in model.decoder.embed_positions.named_parameters():
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("name", ["kerple_0.5", "type", "training"])
def test_names_of_methods_need_not_be_attribute_names(monkeypatch, name):
    monkeypatch.setitem(METHODS, name, METHODS["kerple"])
    model = small_model(f"{name},none")
    assert model.decoder.embed_positions.layer_method(0)[0].log_p.requires_grad
    assert small_model(f"{name},none").load_state_dict(model.state_dict())


@pytest.mark.parametrize("methods", ["kerple", "kerple,kerple"])
def test_repeated_method_keeps_state_dict_keys(methods):
    keys = set(small_model(methods).state_dict())
    assert {"decoder.embed_positions.log_p", "decoder.embed_positions.log_a"} < keys


@torch.no_grad()
def test_layers_share_masks_of_equal_bias_and_window():
    """The rows of a batch without padding share them, too."""
    model = small_model("alibi", "--decoder-layers", "6", "--attention-window", "4,4,0")
    real = torch.ones(5, 10, dtype=torch.bool)
    contexts = model.decoder._contexts(model.decoder.embed_positions, real, 0, 10, None)
    assert [context.mask.window for context in contexts] == [4, 4, 0, 4, 4, 0]
    assert len({id(context.mask) for context in contexts}) == 2
    q = torch.zeros(5, 8, 10, 8)  # (B, H, T, D)
    assert contexts[0].mask.block(q, q, 0, torch.float32).shape == (1, 8, 10, 10)


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        (
            {"position_method": "rotary,rotary,rotary,none", "decoder_layers": 8},
            "3 × Rotary + No positions",
        ),
        ({"position_method": "rotary,none", "decoder_layers": 3}, "Rotary + No positions"),
        ({"position_method": "rotary,rotary", "attention_window": 64}, "Rotary"),
        ({"attention_window": "64,64", "position_method": "alibi"}, "ALiBi"),
        ({"attention_window": "64,0", "position_method": "alibi"}, "ALiBi (window 64) + ALiBi"),
        (
            {"attention_window": "64,0", "position_method": "rotary,none"},
            "Rotary (window 64) + No positions",
        ),
        ({"position_method": "rotary", "rotary_percent": 0.25}, "Rotary, percent 0.25"),
        ({"position_method": "rotary", "rotary_base": 5e5, "p_rope": 1.0}, "Rotary, base 500000"),
        ({"position_method": "none,rotary", "p_rope": 0.5}, "No positions + Rotary, p-RoPE 0.5"),
        (
            {"position_method": "alibi,none", "alibi_slopes": "random"},
            "ALiBi, random slopes + No positions",
        ),
        (
            {"position_method": "rotary,none", "score_scaling": "logn"},
            "Rotary + No positions, logn",
        ),
    ],
)
def test_layer_patterns_are_named_in_results(flags, name):
    options = OmegaConf.create({"decoder_layers": 6, **flags})
    assert MethodSpec.from_options(options).label == name


@pytest.mark.parametrize(
    ("methods", "flags", "message"),
    [
        ("rotary,rotary,none", [], "--position-method rotary,rotary,none lists 3 layers"),
        ("alibi", ["--attention-window", "4,4,0"], "--attention-window 4,4,0 lists 3 layers"),
        ("alibi", ["--attention-window", "4,-1"], "--attention-window"),
        ("alibi", ["--attention-window", "4,"], "--attention-window"),
        ("alibi", ["--attention-window", "x"], "--attention-window"),
        ("rotary,nope", [], "nope"),
        ("alibi,sinusoidal", [], "'sinusoidal' acts on all layers"),
        ("none,learned", [], "'learned' acts on all layers"),
        ("transformer_xl,none", ["--mem-len", "4"], "'transformer_xl' acts on all layers"),
        ("alibi,none", ["--rotary-base", "500"], "--rotary-base applies only to"),
    ],
)
def test_invalid_layer_patterns_are_rejected(methods, flags, message):
    with pytest.raises(UserInputError, match=message):
        small_model(methods, *flags, sequential=True)


@pytest.mark.parametrize("flags", [["--attention-window", "8,0"], []])
def test_export_rejects_layer_patterns(flags):
    methods = "rotary" if flags else "rotary,none"
    model = small_model(methods, *flags)
    with pytest.raises(UserInputError, match="Cannot export"):
        convert_decoder(model.decoder, methods, 32)


@pytest.mark.ci
def test_layer_patterns_train_resume_and_evaluate(data_bin, tmp_path, sweep, caplog):
    pattern = ("--position-method", "rotary,none", "--attention-window", "8,0")
    flags = [*SHORT, *pattern, "--decoder-layers", "3", "--save-dir", tmp_path]
    with caplog.at_level(logging.INFO):
        in_process("train", data_bin, *flags)
    assert "--position-method by layer: rotary, none, rotary" in caplog.text
    assert "--attention-window by layer: 8, 0, 8" in caplog.text
    for flag, value in (("--position-method", "none,rotary"), ("--attention-window", "0")):
        with pytest.raises(UserInputError, match=flag):
            in_process("train", data_bin, *flags, flag, value, "--max-update", 5)
    in_process("train", data_bin, *flags, "--max-update", 5)
    checkpoint = tmp_path / "checkpoint_last.pt"
    (record,) = sweep(checkpoint, data=data_bin, lengths=[32])
    assert record.series.method.notation == "rotary+none/attention_window=8+0"
    assert record.updates == 5
    (unlimited,) = sweep(
        checkpoint, out="full", data=data_bin, lengths=[32], overrides={"attention_window": 0}
    )
    assert unlimited.reading.overrides == {"attention_window": 0}
    assert unlimited.values.perplexity != record.values.perplexity
