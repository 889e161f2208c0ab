"""Bad input of ``eval`` for Hugging Face models, ``import-hf``, and ``export``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from huggingface.folders import TEXT, make_folder, make_own_format
from huggingface.imported import save_random_model
from results_documents import document, evaluation_record
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertLMHeadModel,
    MambaConfig,
    PreTrainedConfig,
)

from alibi_fairseq.huggingface import evaluation
from alibi_fairseq.results.file import save


@pytest.fixture
def text(tmp_path) -> Path:
    """Return a text file."""
    path = tmp_path / "sample.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def change_config(folder: Path, **changes) -> None:
    """Replace values of ``config.json``."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


SLIDING = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0}
LINEAR = {"rope_type": "linear", "factor": 4.0}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0, "partial_rotary_factor": 1}
YARN = {**DYNAMIC, "rope_type": "yarn", "original_max_position_embeddings": 48}
BY_LAYER_TYPE = {
    "sliding_attention": {"rope_theta": 10.0},
    "full_attention": {"rope_theta": 9.0},
}


@pytest.mark.parametrize(
    ("name", "overrides", "named"),
    [
        ("llama", {"other": 1}, "has no 'other'"),
        ("llama", {"rope_parameters": {"type": "linear"}}, "'type' of 'rope_parameters'"),
        ("gemma3", {"rope_parameters": {"rope_theta": 5.0}}, "Override full_attention or sliding"),
        ("llama", {"rope_parameters": {"factor": 4.0}}, "'factor' of rope_parameters would"),
        ("llama", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "'partial_rotary_factor'"),
        ("llama", {"rope_parameters": {**LINEAR, "beta_fast": 8.0}}, "'beta_fast'"),
        ("llama", {"rope_parameters": {**YARN, "beta_fst": 8.0}}, "'beta_fst'"),
        ("gemma3", {"rope_parameters": {"full_attention": {"factor": 2.0}}}, "'factor'"),
        ("llama", {"intermediate_size": 64}, "has another shape"),
        ("llama", {"hidden_size": 64}, "lists 'head_dim'"),
        ("qwen2", {"sliding_window": 4}, "'sliding_window' would have no effect"),
        ("qwen2", SLIDING, "lists 'layer_types'"),
    ],
)
def test_model_overrides(refuse, text, tmp_path, name, overrides, named):
    changes = {"rope_parameters": BY_LAYER_TYPE} if name == "gemma3" else {}
    folder = make_folder(tmp_path / "model", name, **changes)
    command = ["eval", text, "--path", folder, "--lengths", "8", "--out", tmp_path / "out.json"]
    assert named in refuse(*command, "--model-overrides", json.dumps(overrides))
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(
    ("method", "overrides", "named"),
    [
        ("rotary", {"alibi_scale": 3.0}, "'alibi_scale' would have no effect"),
        ("rotary", {"alibi_bias_max": 4.0}, "'alibi_bias_max' would have no effect"),
        ("alibi", {"rotary_parameters": LINEAR}, "'rotary_parameters' would have no effect"),
        ("alibi", {"clamp_learned_positions": True}, "'clamp_learned_positions' would have no"),
        ("transformer_xl", {"memory_length": 8}, "'memory_length' would have no effect"),
        ("rotary", {"rotary_parameters": {**LINEAR, "rope_type": "yarn"}}, "not 'yarn'"),
        ("xpos", {"rotary_parameters": {"factor": 4.0}}, "'factor' has no effect"),
    ],
)
def test_overrides_of_positions_in_our_format(refuse, text, tmp_path, method, overrides, named):
    folder = make_own_format(tmp_path / "model", position_method=method)
    command = ["eval", text, "--path", folder, "--lengths", "8", "--out", tmp_path / "out.json"]
    assert named in refuse(*command, "--model-overrides", json.dumps(overrides))
    assert not (tmp_path / "out.json").exists()


def replace_model(folder: Path, model_class, config: PreTrainedConfig) -> None:
    """Write a random model of another class to a folder."""
    torch.manual_seed(1)
    model = model_class(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)


def bidirectional(folder: Path) -> None:
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    replace_model(folder, BertLMHeadModel, BertConfig(vocab_size=300, **size))


def without_length(folder: Path) -> None:
    config = MambaConfig(vocab_size=300, hidden_size=32, num_hidden_layers=1)
    replace_model(folder, AutoModelForCausalLM.from_config, config)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (bidirectional, "not a causal model"),
        (without_length, '{"max_position_embeddings": 2048}'),
        (lambda folder: change_config(folder, num_hidden_layers=3), "is missing"),
        (lambda folder: change_config(folder, num_hidden_layers=1), "is not part of"),
        (lambda folder: (folder / "model.safetensors").rename(folder / "m.bin"), "safetensors"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json: not a JSON file"),
        (lambda folder: (folder / "adapter_config.json").write_text("{}"), "adapter"),
    ],
    ids=["causal", "length", "missing", "superfluous", "format", "JSON", "adapter"],
)
def test_evaluated_folder(refuse, text, tmp_path, change, named):
    folder = make_folder(tmp_path / "model")
    change(folder)
    out = tmp_path / "out.json"
    assert named in refuse("eval", text, "--path", folder, "--lengths", "8", "--out", out)
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("TEXT --path CHECKPOINT", "data folder"),
        ("TEXT --path EMPTY", "nor a Hugging Face model (config.json)"),
        (
            "TEXT --path openai-community/gpt2",
            "`hf download openai-community/gpt2 --local-dir models/gpt2` once",
        ),
        ("TEXT --path none.pt", "none.pt"),
        ("DATA --path MODEL", "cannot be used (Is a directory)"),
        ("TEXT --path MODEL CHECKPOINT", "config.json cannot be used"),
        ("DATA --path CHECKPOINT --bos-per-window", "--bos-per-window"),
        ("TEXT --path MODEL --subset test", "--subset has no effect on Hugging Face models"),
        ("none.txt --path MODEL", "none.txt"),
        ("TEXT TEXT --path MODEL", "Two text files"),
        ("TEXT --path MODEL --per-document titles", "one document"),
        ("LATIN --path MODEL", "UTF-8"),
        ("TEXT --path MODEL --lengths 33", "at most 32 tokens, not 33"),
    ],
)
def test_eval_arguments(refuse, text, trained, tmp_path, words, named):
    latin = tmp_path / "latin.txt"
    latin.write_bytes("thé\n".encode("latin-1"))
    (tmp_path / "empty").mkdir()
    paths = {"TEXT": text, "LATIN": latin, "EMPTY": tmp_path / "empty", "DATA": trained.data}
    paths["CHECKPOINT"] = trained("alibi")
    if "MODEL" in words:
        paths["MODEL"] = make_folder(tmp_path / "model", "gpt2")
    data_and_options = [paths.get(word, word) for word in words.split()]
    out = tmp_path / "out.json"
    assert named in refuse("eval", "--lengths", "8", "--out", out, *data_and_options)
    assert not out.exists()


def test_documents_of_all_texts_are_checked_before_any_is_tokenized(
    refuse, text, tmp_path, monkeypatch
):
    folder = make_folder(tmp_path / "model", "gpt2")
    titled = tmp_path / "titled.txt"
    titled.write_text(" = One = \n\n a\n = Two = \n\n b\n", encoding="utf-8")
    monkeypatch.setattr(evaluation, "tokenize_documents", None)
    command = ["eval", titled, text, "--path", folder, "--lengths", "8", "--per-document", "titles"]
    assert f"only one document in '{text}'" in refuse(*command, "--out", tmp_path / "out.json")


@pytest.mark.parametrize(
    ("name", "changes", "named"),
    [
        ("gpt-neox", {"model_type": "gpt2"}, "model of type gpt2"),
        ("gpt-neox", {"use_parallel_residual": True}, "use_parallel_residual = True"),
        ("gpt-neox", {"rope_parameters": DYNAMIC}, "rope_type = dynamic"),
        ("gpt-neox", {"rope_parameters": {**YARN, "mscale": 0.7}}, "mscale in rope_parameters"),
        ("gpt-neox", {"hidden_act": "silu"}, "hidden_act = silu"),
        ("gpt-neox", {"num_hidden_layers": 3}, "is missing"),
        ("gpt-neox", {"attention_bias": False}, "attention_bias = False"),
        ("opt", {"enable_bias": False}, "enable_bias = False"),
        ("opt", {"layer_norm_elementwise_affine": False}, "layer_norm_elementwise_affine = False"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act = gelu"),
        ("llama", {"attention_bias": True}, "attention_bias = True"),
        ("llama", {"mlp_bias": True}, "mlp_bias = True"),
        ("llama", {"head_dim": 16}, "head_dim = 16"),
        ("qwen3", {"use_sliding_window": True}, "use_sliding_window = True"),
    ],
)
def test_imported_folder(refuse, tmp_path, name, changes, named):
    folder = save_random_model(name, tmp_path / "model")
    change_config(folder, **changes)
    assert named in refuse("import-hf", folder, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--data EMPTY", "dict.txt"),
        ("--data SHORT", "dict.txt"),
        ("--path none.pt", "none.pt"),
        ("--results RESULTS", "has no perplexity of"),
        ("--out FULL", "--out"),
        ("--license mit", "--tokenizer-files"),  # the words of this corpus look like token IDs
    ],
)
def test_export_arguments(refuse, trained, tmp_path, monkeypatch, words, named):
    if "--license" not in words:
        monkeypatch.setattr("alibi_fairseq.huggingface.export.find_tokenizer_files", lambda *_: {})
    paths = {name: tmp_path / name.lower() for name in ("EMPTY", "FULL", "SHORT", "RESULTS")}
    paths["EMPTY"].mkdir()
    paths["FULL"].mkdir()
    (paths["FULL"] / "mine.txt").write_text("keep me")
    shutil.copytree(trained.data, paths["SHORT"])
    lines = (trained.data / "dict.txt").read_text().splitlines(keepends=True)
    (paths["SHORT"] / "dict.txt").write_text("".join(lines[:-3]))
    save(document(evaluation_record()), paths["RESULTS"])
    before = sorted(tmp_path.rglob("*"))
    command = ["export", "--path", trained("sinusoidal"), "--data", trained.data]
    command += ["--out", tmp_path / "model"]
    assert named in refuse(*command, *(paths.get(word, word) for word in words.split()))
    assert sorted(tmp_path.rglob("*")) == before
