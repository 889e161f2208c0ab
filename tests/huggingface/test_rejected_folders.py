"""Folders and arguments that ``alibi-fairseq eval`` rejects for Hugging Face models."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from folders import add_own_code, make_folder
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertLMHeadModel,
    LlamaForCausalLM,
    MambaConfig,
)

from alibi_fairseq.huggingface.configuration_alibi_lm import AlibiLmConfig

pytest_plugins = ["evaluate_text"]


def test_invalid_overrides_are_rejected(refuse, text, tmp_path):
    folder = make_folder(tmp_path / "model")

    def sentence(overrides: dict) -> str:
        options = ["--lengths", "8", "--out", tmp_path / "out.json"]
        options += ["--model-overrides", json.dumps(overrides)]
        return refuse("eval", text, "--path", folder, *options)

    assert "'factor'" in sentence({"rope_parameters": {"rope_type": "linear"}})
    assert "'rope_type', not 'type'" in sentence({"rope_parameters": {"type": "linear"}})
    assert "--model-overrides cannot" in sentence({"rope_parameters": "linear"})
    assert "Correct --model-overrides" in sentence({"rope_parameters": {"rope_type": "none"}})
    assert "another shape. Correct --model-overrides" in sentence({"intermediate_size": 64})
    assert "lists 'head_dim'" in sentence({"hidden_size": 64})
    parameters = {"sliding_attention": {"rope_theta": 10.0}, "full_attention": {"rope_theta": 9.0}}
    folder = make_folder(tmp_path / "layers", "gemma3", rope_parameters=parameters)
    message = sentence({"rope_parameters": {"rope_theta": 500.0}})
    assert "separate values for full_attention, sliding_attention" in message


def test_overrides_without_effect_are_rejected(refuse, text, tmp_path):
    folder = make_folder(tmp_path / "model", "qwen2")
    command = ["eval", text, "--path", folder, "--lengths", "8", "--out", tmp_path / "out.json"]

    def sentence(overrides: dict) -> str:
        return refuse(*command, "--model-overrides", json.dumps(overrides))

    assert "'sliding_window' would have no effect" in sentence({"sliding_window": 4})
    window = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0}
    assert "lists 'layer_types'" in sentence(window)


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
    assert record.model.architecture == "MyModel"
    assert witness.exists()


def test_unsupported_models_are_rejected(refuse, text, tmp_path):
    out = tmp_path / "out.json"

    def sentence(folder, *options) -> str:
        return refuse("eval", text, "--path", folder, "--lengths", "8", "--out", out, *options)

    folder = make_folder(tmp_path / "gpt2", "gpt2")
    assert "at most 32 tokens, not 33" in sentence(folder, "--lengths", "33")
    bidirectional = shutil.copytree(folder, tmp_path / "bert")
    config = BertConfig(vocab_size=300, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
    model = BertLMHeadModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(bidirectional)
    assert "not a causal model" in sentence(bidirectional)
    small = make_folder(tmp_path / "small", vocab_size=100)
    assert "vocabulary" in sentence(small)
    no_length = make_folder(tmp_path / "no-length")
    AutoModelForCausalLM.from_config(
        MambaConfig(vocab_size=300, hidden_size=32, num_hidden_layers=1)
    ).save_pretrained(no_length)
    assert "max_position_embeddings" in sentence(no_length)
    truncated = make_folder(tmp_path / "truncated")
    config = json.loads((truncated / "config.json").read_text())
    (truncated / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    assert "is missing. Fetch the folder again" in sentence(truncated)
    (truncated / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}))
    assert "model.layers.1.input_layernorm.weight is not part of" in sentence(truncated)
    weights = truncated / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "cannot be read" in sentence(truncated)
    weights.rename(truncated / "pytorch_model.bin")
    assert "safetensors" in sentence(truncated)
    (truncated / "config.json").write_text("{")
    assert "config.json" in sentence(truncated)
    (folder / "adapter_config.json").write_text("{}")
    assert "adapter" in sentence(folder)
    assert not out.exists()


def test_ignored_weights_are_accepted(evaluate, tmp_path):
    folder = make_folder(tmp_path / "model", "gpt-neox")
    (before,) = evaluate(folder, out="before", lengths="8", strides="full")
    weights = load_file(folder / "model.safetensors")
    weights["gpt_neox.layers.0.attention.masked_bias"] = torch.ones(())
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (record,) = evaluate(folder, lengths="8", strides="full")
    assert record.loss_bits == before.loss_bits


def test_stored_masks_are_accepted(evaluate, refuse, text, tmp_path):
    folder = make_folder(tmp_path / "model", "gpt-neo")
    (before,) = evaluate(folder, out="before", lengths="8", strides="full")
    weights = load_file(folder / "model.safetensors")
    prefix = "transformer.h.0.attn.attention"
    weights[f"{prefix}.masked_bias"] = torch.tensor(-1e9)
    for dtype in (torch.uint8, torch.bool):
        weights[f"{prefix}.bias"] = torch.ones(1, 1, 32, 32).tril().to(dtype)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        (record,) = evaluate(folder, out=str(dtype), lengths="8", strides="full")
        assert record.loss_bits == before.loss_bits
    weights[f"{prefix}.bias"] = torch.ones(1, 1, 32, 32, dtype=torch.bool)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    command = ["eval", text, "--path", folder, "--lengths", "8", "--out", tmp_path / "out.json"]
    assert "attention.bias is not part of" in refuse(*command)


def test_short_positions_are_accepted(evaluate, tmp_path):
    folder = make_folder(tmp_path / "model", "gpt2", n_positions=8)
    (record,) = evaluate(folder, lengths="8", strides="full")
    assert record.model.train_length == 8


def test_errors_of_the_forward_pass_are_one_sentence(refuse, text, tmp_path, monkeypatch):
    folder = make_folder(tmp_path / "model")
    command = ["eval", text, "--path", folder, "--lengths", "20", "--out", tmp_path / "out.json"]
    overrides = ["--model-overrides", '{"max_position_embeddings": 64}']
    limit = 0

    def forward(self, input_ids, **kwargs):
        if input_ids.shape[1] > limit:
            raise TypeError("first line\nsecond line")
        return original(self, input_ids, **kwargs)

    original = LlamaForCausalLM.forward
    monkeypatch.setattr(LlamaForCausalLM, "forward", forward)
    assert "any text (first line). Correct its config.json." in refuse(*command)
    assert "any text (first line). Correct --model-overrides." in refuse(*command, *overrides)
    limit = 16
    assert "window of 20 tokens (first line)" in refuse(*command)
    assert "Correct --model-overrides, or reduce --lengths." in refuse(*command, *overrides)


@pytest.mark.parametrize("scale", ["dynamic", 0, -1.0])
def test_invalid_alibi_scale_is_rejected(scale):
    with pytest.raises(ValueError, match="alibi_scale must be a positive number"):
        AlibiLmConfig(alibi_scale=scale)


def test_conflicting_arguments_are_rejected(refuse, text, trained, tmp_path):
    folder = make_folder(tmp_path / "model")
    checkpoint = trained("alibi")
    rest = ["--lengths", "8", "--out", tmp_path / "out.json"]
    assert "data folder" in refuse("eval", text, "--path", checkpoint, *rest)
    assert "nor a Hugging Face model (config.json)" in refuse(
        "eval", text, "--path", tmp_path, *rest
    )
    name = "openai-community/gpt2"
    assert f"`hf download {name} --local-dir models/gpt2` once" in refuse(
        "eval", text, "--path", name, *rest
    )
    assert "none.pt" in refuse("eval", text, "--path", tmp_path / "none.pt", *rest)
    assert "text files" in refuse("eval", trained.data, "--path", folder, *rest)
    assert "separate command" in refuse("eval", text, "--path", folder, checkpoint, *rest)
    assert "--subset" in refuse("eval", text, "--path", folder, "--subset", "test", *rest)
    assert "--bos-per-window" in refuse(
        "eval", trained.data, "--path", checkpoint, "--bos-per-window", *rest
    )
    assert "none.txt" in refuse("eval", tmp_path / "none.txt", "--path", folder, *rest)
    assert "Two text files" in refuse("eval", text, text, "--path", folder, *rest)
    assert "one document" in refuse(
        "eval", text, "--path", folder, "--per-document", "titles", *rest
    )
    text.write_bytes(b"\xff\xfe")
    assert "UTF-8" in refuse("eval", text, "--path", folder, *rest)
    text.write_bytes(b"")
    assert "no token" in refuse("eval", text, "--path", folder, *rest)
    assert not (tmp_path / "out.json").exists()
