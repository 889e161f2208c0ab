"""``alibi-fairseq eval`` on folders of Hugging Face models."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import shutil
import socket

import pytest
import torch
from conftest import without_times
from folders import LENGTH, TEXT, make_folder, unigram_tokenizer
from safetensors.torch import load_file, save_file
from trained import TRAIN_LENGTH
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    BertConfig,
    BertLMHeadModel,
    MambaConfig,
)

from alibi_fairseq.cli import main
from alibi_fairseq.evaluation.windows import Span
from alibi_fairseq.huggingface import evaluation
from alibi_fairseq.huggingface.model_folder import ModelFolder
from alibi_fairseq.huggingface.text_file import read_text_file, split_documents, text_size
from alibi_fairseq.results.results_file import load_results_file


@pytest.fixture
def text(tmp_path):
    """A text file."""
    path = tmp_path / "sample.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def evaluate(text, tmp_path):
    """Run ``eval`` on the text file, and return the result records."""

    def run(*folders, out="results", texts=(text,), **options) -> list[dict]:
        options = {"lengths": "8,48", "strides": "full,5", **options}
        command = ["eval", *texts, "--path", *folders, "--out", tmp_path / f"{out}.json"]
        for name, value in options.items():
            command.append("--" + name.replace("_", "-"))
            if value is not True:
                command.append(value)
        assert main([str(word) for word in command]) == 0
        return load_results_file(tmp_path / f"{out}.json")["cells"]

    return run


def tokens_of(folder, documents: list[str]) -> list[list[int]]:
    """Return the token IDs of each document."""
    tokenizer = ModelFolder.open(folder).tokenizer
    return [tokenizer.encode(part, add_special_tokens=False) for part in documents]


@torch.no_grad()
def naive_losses(
    folder, documents: list[list[int]], length: int, stride: int, first_input: int = 0, score_from=0
) -> list[float]:
    """Return the loss of each document in bits, with a pass in float64 for each token.

    A pass sees the whole window of the token, because the scores of some models depend on the
    number of inputs. With dynamic scaling they also depend on earlier passes, so the rotation is
    fresh.
    """
    is_dynamic = "dynamic" in (folder / "config.json").read_text()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).double().eval()
    rotation = copy.deepcopy(model.model.rotary_emb) if is_dynamic else None
    sums = []
    for tokens in documents:
        inputs = [first_input, *tokens[:-1]]
        total = 0.0
        for position in range(score_from, len(tokens)):
            scored = score_from + (position - score_from) // stride * stride
            begin = max(0, scored + stride - length)
            window = inputs[begin : min(scored + stride, len(tokens))]
            if is_dynamic:
                model.model.rotary_emb = copy.deepcopy(rotation)
            logits = model(torch.tensor([window])).logits[0, position - begin]
            total -= logits.log_softmax(-1)[tokens[position]].item() / math.log(2)
        sums.append(total)
    return sums


@pytest.mark.parametrize(
    "name",
    ["llama", "llama-dynamic", "gpt-neox", "bloom", "mpt", "falcon", "qwen2", "qwen3", "gemma2"],
)
def test_losses_equal_naive_float64(name, evaluate, tmp_path):
    folder = make_folder(tmp_path / name, name)
    documents = tokens_of(folder, [TEXT])
    records = evaluate(folder)
    assert [(record["length"], record["stride"]) for record in records] == [
        *((8, 8), (8, 5), (48, 48), (48, 5)),
    ]
    for record in records:
        (expected,) = naive_losses(folder, documents, record["length"], record["stride"])
        assert record["tokens"] == len(documents[0]) > 48
        assert record["loss_bits"] == pytest.approx(expected / record["tokens"], abs=1e-5)
        assert record["bytes"] == len(TEXT.encode())
        assert record["words"] == len(TEXT.split()) + TEXT.count("\n")
        assert record["train_length"] == (4 * LENGTH if name == "mpt" else LENGTH)


def test_documents_equal_naive_float64(evaluate, tmp_path):
    folder = make_folder(tmp_path / "model")
    parts = split_documents(TEXT, "empty-lines")
    assert "".join(parts) == TEXT
    assert len(parts) == 3
    documents = tokens_of(folder, parts)
    for score_from in (0, 7):
        options = {"lengths": "8", "per_document": True, "score_from": str(score_from)}
        for record in evaluate(folder, out=f"from-{score_from}", **options):
            expected = naive_losses(folder, documents, 8, record["stride"], score_from=score_from)
            assert record["document_tokens"] == [len(part) - score_from for part in documents]
            assert record["document_bits"] == pytest.approx(expected, abs=1e-3)
            assert (record["bytes"] == len(TEXT.encode())) is (score_from == 0)
    # One stream, in which documents are only summed separately.
    (stream,) = naive_losses(folder, [sum(documents, [])], 8, 8)
    (record,) = evaluate(folder, out="stream", lengths="8", strides="full", per_document=True)
    assert sum(record["document_bits"]) == pytest.approx(stream, abs=1e-3)


def test_scored_bytes_are_those_of_the_tokens(text, tmp_path):
    folder = ModelFolder.open(make_folder(tmp_path / "model"))
    file = read_text_file(text, folder, "empty-lines")
    last = len(file.tokens)
    for spans in ([Span(0, 0, 9)], [Span(0, 5, 30)], [Span(0, 2, 4), Span(9, 20, last)]):
        parts = [folder.tokenizer.decode(file.tokens[first:end]) for _, first, end in spans]
        assert "\N{REPLACEMENT CHARACTER}" not in parts
        words = sum(text_size(part).words for part in parts)
        size = sum(text_size(part).bytes for part in parts)
        assert file.text_of(spans) == (words, size)


@pytest.mark.parametrize("name", ["alibi", "alibi-adaptive", "rotary", "learned", "sinusoidal"])
def test_exported_model_equals_its_checkpoint(
    name, trained, sweep, evaluate, tmp_path, monkeypatch
):
    monkeypatch.setattr("alibi_fairseq.huggingface.export.find_files", lambda *arguments: {})
    folder = tmp_path / "exported"
    arguments = ["--data", str(trained.data), "--path", str(trained(name)), "--out", str(folder)]
    assert main(["export", *arguments]) == 0
    lengths = (16, TRAIN_LENGTH) if name == "learned" else (16, 4 * TRAIN_LENGTH)
    expected = sweep(name, out="ours", lengths=lengths, strides=(None, 5))
    text = shutil.copy(trained.folder / "valid", tmp_path / "valid.txt")
    records = evaluate(folder, texts=(text,), lengths=",".join(map(str, lengths)))
    for record, ours in zip(records, expected, strict=True):
        assert record["loss_bits"] == pytest.approx(ours["loss_bits"], abs=1e-5)
        same = ("tokens", "length", "stride", "train_length", "position_method", "mean_context")
        assert [record[key] for key in same] == [ours[key] for key in same]


def test_records_identify_model_and_text(evaluate, text, tmp_path):
    folder = make_folder(tmp_path / "my-model")
    (record,) = evaluate(folder, lengths="16", strides="full")
    document = load_results_file(tmp_path / "results.json")
    provenance = document["provenance"]

    def sha256(*files):
        return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()

    assert provenance["data_sha256"] == record["text_sha256"] == sha256(text)
    assert record["config_sha256"] == sha256(folder / "config.json")
    assert record["weights_sha256"] == sha256(folder / "model.safetensors")
    assert record["tokenizer_sha256"] == sha256(
        folder / "tokenizer.json", folder / "tokenizer_config.json"
    )
    assert (record["model"], record["label"]) == ("LlamaForCausalLM", "my-model")
    assert (record["subset"], document["corpus"]) == ("sample", tmp_path.name.split(".")[0])
    assert {"transformers", "tokenizers", "safetensors", "torch"} <= provenance["versions"].keys()
    bits = record["loss_bits"] * record["tokens"]
    assert record["bits_per_byte"] == pytest.approx(bits / record["bytes"])


def test_interrupted_evaluation_resumes(evaluate, tmp_path, monkeypatch, refuse, text):
    folder = make_folder(tmp_path / "model")
    whole = evaluate(folder, out="whole")
    measure = evaluation.TextFileCases.measure
    cases = []

    def interrupt(*arguments):
        cases.append(arguments)
        if len(cases) == 3:
            raise KeyboardInterrupt
        return measure(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(evaluation.TextFileCases, "measure", interrupt)
        with pytest.raises(AssertionError):
            evaluate(folder)
    assert len(load_results_file(tmp_path / "results.json")["cells"]) == 2
    resumed = evaluate(folder)
    assert list(map(without_times, resumed)) == list(map(without_times, whole))
    monkeypatch.setattr(evaluation.TextFileCases, "measure", pytest.fail)
    assert evaluate(folder) == resumed
    command = ["eval", text, "--path", folder, "--lengths", "8", "--out", tmp_path / "results.json"]
    assert "precision" in refuse(*command, "--precision", "bf16")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-3}))
    assert "another checkpoint" in refuse(*command)


def test_report_compares_tokenizers_in_bits_per_byte(evaluate, tmp_path):
    byte_level = make_folder(tmp_path / "byte-level")
    unigram = make_folder(tmp_path / "unigram", "gpt-neox", unigram_tokenizer())
    one = evaluate(byte_level, out="results/one", strides="full")
    two = evaluate(unigram, out="results/two", strides="full")
    assert one[0]["tokens"] != two[0]["tokens"]
    report = tmp_path / "report"
    assert main(["report", str(tmp_path / "results"), "--out", str(report)]) == 0
    tables = (report / "report.md").read_text().split("\n\n")
    titles = [part for part in tables if part.startswith(("Perplexity on", "Bits per byte on"))]
    assert titles == [
        f"Perplexity on sample, non-overlapping, {one[0]['tokens']} tokens:",
        f"Perplexity on sample, non-overlapping, {two[0]['tokens']} tokens:",
        "Bits per byte on sample, non-overlapping:",
    ]
    shared = tables[tables.index(titles[2]) + 1]
    for record in (*one, *two):
        assert f"{record['bits_per_byte']:.4f}" in shared
    assert list((report / "figures").glob("*.png"))


def test_report_separates_texts(evaluate, text, tmp_path):
    folder = make_folder(tmp_path / "model")
    other = tmp_path / "other" / "sample.txt"
    other.parent.mkdir()
    other.write_text(TEXT[:-20])
    evaluate(folder, out="results/one", lengths="8", strides="full")
    evaluate(folder, out="results/two", lengths="8", strides="full", texts=(other,))
    report = tmp_path / "report"
    assert main(["report", str(tmp_path / "results"), "--out", str(report)]) == 0
    assert (report / "report.md").read_text().count("Bits per byte on sample") == 2


def test_bos_per_window_begins_every_window(evaluate, tmp_path):
    folder = make_folder(tmp_path / "model", "gpt-neox", unigram_tokenizer())
    (tokens,) = tokens_of(folder, [TEXT])
    windows = [tokens[begin : begin + 8] for begin in range(0, len(tokens), 8)]
    expected = sum(naive_losses(folder, windows, 8, 8))
    (record,) = evaluate(folder, lengths="8", strides="full", bos_per_window=True)
    assert record["loss_bits"] == pytest.approx(expected / len(tokens), abs=1e-5)
    assert json.loads(record["model_overrides"]) == {"bos_per_window": True}
    (plain,) = evaluate(folder, out="plain", lengths="8", strides="full")
    assert abs(plain["loss_bits"] - record["loss_bits"]) > 1e-3


def test_overrides_change_the_configuration(evaluate, tmp_path, refuse, text):
    folder = make_folder(tmp_path / "model", "mpt")
    command = ["eval", text, "--path", folder, "--out", tmp_path / "refused.json"]
    assert "at most 128 tokens" in refuse(*command, "--lengths", "8,129")
    overrides = '{"max_seq_len": 256}'
    (record,) = evaluate(folder, lengths="200", strides="full", model_overrides=overrides)
    assert record["train_length"] == 256
    assert "'other'" in refuse(*command, "--lengths", "8", "--model-overrides", '{"other": 1}')


#: Overrides of a rotation, and the complete parameters that transformers is given instead.
ROTATIONS = {
    "linear": ({"rope_type": "linear", "factor": 4.0}, {"rope_theta": 500.0}),
    "yarn": (
        {"rope_type": "yarn", "factor": 4.0},
        {"rope_theta": 500.0, "original_max_position_embeddings": LENGTH},
    ),
    "base": ({"rope_theta": 20.0}, {"rope_type": "default"}),
}


@torch.no_grad()
@pytest.mark.parametrize("name", ROTATIONS)
def test_overridden_rotation_equals_transformers(name, evaluate, tmp_path):
    overrides, rest = ROTATIONS[name]
    folder = make_folder(
        tmp_path / "model", rope_parameters={"rope_type": "default", "rope_theta": 500.0}
    )
    config = AutoConfig.from_pretrained(folder, rope_parameters={**overrides, **rest})
    model = AutoModelForCausalLM.from_pretrained(folder, config=config).eval()
    (tokens,) = tokens_of(folder, [TEXT])
    window = torch.tensor([0, *tokens[:-1]])[None]
    scores = model(window).logits[0].double().log_softmax(-1)
    expected = -scores[range(len(tokens)), tokens].mean().item() / math.log(2)
    options = {"lengths": str(len(tokens)), "strides": "full"}
    (plain,) = evaluate(folder, out="plain", **options)
    given = json.dumps({"rope_parameters": overrides})
    (record,) = evaluate(folder, model_overrides=given, **options)
    assert abs(plain["loss_bits"] - expected) > 1e-3
    assert record["loss_bits"] == pytest.approx(expected, abs=1e-5)
    assert json.loads(record["model_overrides"]) == {"rope_parameters": overrides}


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
    assert "another shape. Correct --model-overrides" in sentence({"hidden_size": 64})
    parameters = {"sliding_attention": {"rope_theta": 10.0}, "full_attention": {"rope_theta": 9.0}}
    folder = make_folder(tmp_path / "layers", "gemma3", rope_parameters=parameters)
    said = sentence({"rope_parameters": {"rope_theta": 500.0}})
    assert "separate values for full_attention, sliding_attention" in said


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_is_close(precision, evaluate, tmp_path):
    folder = make_folder(tmp_path / "model", "gemma2")
    options = {"lengths": "16", "strides": "full"}
    (full,) = evaluate(folder, **options)
    (half,) = evaluate(folder, out="half", precision=precision, **options)
    assert 0 < abs(half["loss_bits"] - full["loss_bits"]) < 0.02


def test_evaluation_connects_to_nothing(evaluate, tmp_path, monkeypatch):
    def connect(*arguments):
        pytest.fail("a connection")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)
    evaluate(make_folder(tmp_path / "model"), lengths="8", strides="full")


def test_unknown_tokens_have_no_size(evaluate, text, tmp_path):
    folder = make_folder(tmp_path / "model", "gpt-neox", unigram_tokenizer())
    (known,) = evaluate(folder, lengths="8", strides="full")
    text.write_text(TEXT + "\N{SNOWMAN}\n", encoding="utf-8")
    (unknown,) = evaluate(folder, out="unknown", lengths="8", strides="full")
    assert "bits_per_byte" in known
    assert "bits_per_byte" not in unknown
    assert "word_perplexity" not in unknown


def test_code_in_a_folder_runs_only_if_trusted(evaluate, refuse, text, tmp_path):
    folder = make_folder(tmp_path / "model")
    witness = tmp_path / "witness"
    (folder / "modeling_mine.py").write_text(
        f"open({str(witness)!r}, 'w').close()\n"
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "class MyConfig(LlamaConfig):\n    model_type = 'mine'\n"
        "class MyModel(LlamaForCausalLM):\n    config_class = MyConfig\n"
    )
    config = json.loads((folder / "config.json").read_text())
    config["model_type"] = "mine"
    config["auto_map"] = {
        "AutoConfig": "modeling_mine.MyConfig",
        "AutoModelForCausalLM": "modeling_mine.MyModel",
    }
    (folder / "config.json").write_text(json.dumps(config))
    command = ["eval", text, "--path", folder, "--lengths", "8", "--out", tmp_path / "x.json"]
    assert "--trust-remote-code" in refuse(*command)
    assert not witness.exists()
    (record,) = evaluate(folder, lengths="8", strides="full", trust_remote_code=True)
    assert record["model"] == "MyModel"
    assert witness.exists()


def test_models_that_cannot_be_evaluated(refuse, text, tmp_path):
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


def test_weights_that_transformers_ignores_are_accepted(evaluate, tmp_path):
    folder = make_folder(tmp_path / "model", "gpt-neox")
    (before,) = evaluate(folder, out="before", lengths="8", strides="full")
    weights = load_file(folder / "model.safetensors")
    weights["gpt_neox.layers.0.attention.masked_bias"] = torch.ones(())
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (record,) = evaluate(folder, lengths="8", strides="full")
    assert record["loss_bits"] == before["loss_bits"]


def test_arguments_that_do_not_belong_together(refuse, text, trained, tmp_path):
    folder = make_folder(tmp_path / "model")
    checkpoint = trained("alibi")
    rest = ["--lengths", "8", "--out", tmp_path / "out.json"]
    assert "data folder" in refuse("eval", text, "--path", checkpoint, *rest)
    assert "nor a Hugging Face model (config.json)" in refuse(
        "eval", text, "--path", tmp_path, *rest
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
