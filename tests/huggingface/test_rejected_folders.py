"""Weights and code in Hugging Face folders that ``alibi-fairseq eval`` accepts or rejects."""

from __future__ import annotations

import pytest
import torch
from folders import add_own_code, make_folder
from safetensors.torch import load_file, save_file

from alibi_fairseq.huggingface.configuration_alibi_lm import AlibiLmConfig
from alibi_fairseq.huggingface.positions_alibi_lm import POSITIONS

pytest_plugins = ["evaluate_text"]


def test_code_in_a_folder_runs_only_if_trusted(evaluate, refuse, text, tmp_path):
    folder = make_folder(tmp_path / "model")
    witness = tmp_path / "witness"
    code = (
        f"open({str(witness)!r}, 'w').close()\n"
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "class MyConfig(LlamaConfig):\n    model_type = 'mine'\n"
        "class MyModel(LlamaForCausalLM):\n    config_class = MyConfig\n"
    )
    add_own_code(folder, "modeling_mine", code, "MyConfig", "MyModel")
    command = ["eval", text, "--path", folder, "--lengths", "8", "--out", tmp_path / "x.json"]
    assert "--trust-remote-code" in refuse(*command)
    assert not witness.exists()
    (record,) = evaluate(folder, lengths="8", strides="full", trust_remote_code=True)
    assert record.series.facts.architecture == "MyModel"
    assert witness.exists()


def test_ignored_weights_are_accepted(evaluate, tmp_path):
    folder = make_folder(tmp_path / "model", "gpt-neox")
    (before,) = evaluate(folder, out="before", lengths="8", strides="full")
    weights = load_file(folder / "model.safetensors")
    weights["gpt_neox.layers.0.attention.masked_bias"] = torch.ones(())
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (record,) = evaluate(folder, lengths="8", strides="full")
    assert record.values.loss_bits == before.values.loss_bits


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool], ids=str)
def test_stored_masks_are_accepted(evaluate, refuse, text, tmp_path, dtype):
    folder = make_folder(tmp_path / "model", "gpt-neo")
    (before,) = evaluate(folder, out="before", lengths="8", strides="full")
    weights = load_file(folder / "model.safetensors")
    prefix = "transformer.h.0.attn.attention"
    weights[f"{prefix}.masked_bias"] = torch.tensor(-1e9)
    weights[f"{prefix}.bias"] = torch.ones(1, 1, 32, 32).tril().to(dtype)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (record,) = evaluate(folder, lengths="8", strides="full")
    assert record.values.loss_bits == before.values.loss_bits
    weights[f"{prefix}.bias"] = torch.ones(1, 1, 32, 32, dtype=torch.bool)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    command = ["eval", text, "--path", folder, "--lengths", "8", "--out", tmp_path / "out.json"]
    assert "attention.bias is not part of" in refuse(*command)


def test_short_positions_are_accepted(evaluate, tmp_path):
    folder = make_folder(tmp_path / "model", "gpt2", n_positions=8)
    (record,) = evaluate(folder, lengths="8", strides="full")
    assert record.series.train_length == 8


@pytest.mark.parametrize("scale", ["dynamic", 0, -1.0])
def test_invalid_alibi_scale_is_rejected(scale):
    with pytest.raises(ValueError, match="alibi_scale must be a positive number"):
        AlibiLmConfig(alibi_scale=scale)


@pytest.mark.parametrize("method", ["rotary", "xpos"])
@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"rope_type": "yarn", "factor": 4.0}, "not 'yarn'"),
        ({"rope_type": "lin", "factor": 4.0}, "not 'lin'"),
        ({"type": "dynamic", "factor": 4.0}, "'type' has no effect"),
        ({"rope_type": "linear", "factor": 4.0, "beta_fast": 8.0}, "'beta_fast' has no effect"),
        ({"factor": 4.0}, "'factor' has no effect"),
    ],
)
def test_unknown_rotation_is_rejected(method, parameters, problem):
    config = AlibiLmConfig(position_method=method, rotary_parameters=parameters)
    with pytest.raises(ValueError, match=problem):
        POSITIONS[method](config)
