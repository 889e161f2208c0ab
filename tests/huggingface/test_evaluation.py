"""Records, resuming, and reports of ``alibi-fairseq eval`` on Hugging Face models."""

from __future__ import annotations

import hashlib
import json
import socket
import sys

import pytest
from conftest import without_times
from folders import TEXT, make_folder, make_own_format, unigram_tokenizer
from transformers import AutoModelForCausalLM, Gemma3Config

from alibi_fairseq.cli import main
from alibi_fairseq.huggingface import evaluation
from alibi_fairseq.huggingface.transformers_model import find_max_length, find_position_method
from alibi_fairseq.results.file import load

pytest_plugins = ["evaluate_text"]


def test_records_identify_model_and_text(evaluate, text, tmp_path):
    folder = make_folder(tmp_path / "my-model")
    (record,) = evaluate(folder, lengths="16", strides="full")
    document = load(tmp_path / "results.json")
    provenance = document.provenance

    def sha256(*files):
        return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()

    assert provenance.data_sha256 == record.case.text == sha256(text)
    assert record.series.settings["weights"] == sha256(folder / "model.safetensors")
    parts = [
        sha256(folder / "config.json"),
        sha256(folder / "model.safetensors"),
        sha256(folder / "tokenizer.json", folder / "tokenizer_config.json"),
        sha256(),  # of no code
    ]
    assert record.checkpoint_sha256 == hashlib.sha256(" ".join(parts).encode()).hexdigest()
    assert record.seed is None
    assert (record.series.facts.architecture, record.reading.variant) == (
        "LlamaForCausalLM",
        "my-model",
    )
    assert (record.case.split, record.case.corpus) == ("sample", tmp_path.name.split(".")[0])
    assert {"transformers", "tokenizers", "safetensors", "torch"} <= provenance.versions.keys()
    bits = record.values.loss_bits * record.values.tokens
    assert record.values.bits_per_byte == pytest.approx(bits / record.values.bytes)


def test_interrupted_evaluation_resumes(evaluate, tmp_path, monkeypatch):
    folder = make_folder(tmp_path / "model")
    whole = evaluate(folder, out="whole")
    measure = evaluation.TextEvaluator.measure
    cases = []

    def interrupt(*arguments):
        cases.append(arguments)
        if len(cases) == 3:
            raise KeyboardInterrupt
        return measure(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(evaluation.TextEvaluator, "measure", interrupt)
        with pytest.raises(AssertionError):
            evaluate(folder)
    assert len(load(tmp_path / "results.json").results) == 2
    resumed = evaluate(folder)
    assert list(map(without_times, resumed)) == list(map(without_times, whole))
    with monkeypatch.context() as patch:
        patch.setattr(evaluation.TextEvaluator, "measure", pytest.fail)
        assert evaluate(folder) == resumed
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-3}))
    changed = evaluate(folder)
    assert [record.values.loss_bits for record in changed] != [
        record.values.loss_bits for record in resumed
    ]
    assert load(tmp_path / "results.json").results == changed


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_folder_changed_before_its_turn_is_refused(refuse, text, tmp_path, monkeypatch, name):
    folder = make_folder(tmp_path / "model")
    evaluate_folder = evaluation._evaluate

    def change_and_evaluate(*arguments):
        (folder / name).write_text((folder / name).read_text() + "\n")
        return evaluate_folder(*arguments)

    monkeypatch.setattr(evaluation, "_evaluate", change_and_evaluate)
    out = tmp_path / "results.json"
    problem = refuse("eval", text, "--path", folder, "--lengths", "8", "--out", out)
    assert "was replaced during the evaluation" in problem
    assert not out.exists()


def test_report_compares_tokenizers_in_bits_per_byte(evaluate, tmp_path):
    byte_level = make_folder(tmp_path / "byte-level")
    unigram = make_folder(tmp_path / "unigram", "gpt-neox", unigram_tokenizer())
    byte_level_records = evaluate(byte_level, out="results/one", strides="full")
    unigram_records = evaluate(unigram, out="results/two", strides="full")
    byte_level_tokens = byte_level_records[0].values.tokens
    unigram_tokens = unigram_records[0].values.tokens
    assert byte_level_tokens != unigram_tokens
    report = tmp_path / "report"
    assert main(["report", str(tmp_path / "results"), "--out", str(report)]) == 0
    tables = (report / "report.md").read_text().split("\n\n")
    titles = [part for part in tables if part.startswith(("Perplexity on", "Bits per byte on"))]
    assert titles == [
        f"Perplexity on sample, non-overlapping, {byte_level_tokens} tokens:",
        f"Perplexity on sample, non-overlapping, {unigram_tokens} tokens:",
        "Bits per byte on sample, non-overlapping:",
    ]
    shared = tables[tables.index(titles[2]) + 1]
    for record in byte_level_records + unigram_records:
        assert f"{record.values.bits_per_byte:.4f}" in shared
    assert list((report / "figures").glob("*.png"))


def test_report_separates_texts(evaluate, text, tmp_path):
    folder = make_folder(tmp_path / "model")
    shorter_text = tmp_path / "other" / "sample.txt"
    shorter_text.parent.mkdir()
    shorter_text.write_text(TEXT[:-20])
    evaluate(folder, out="results/one", lengths="8", strides="full")
    evaluate(folder, out="results/two", lengths="8", strides="full", texts=(shorter_text,))
    report = tmp_path / "report"
    assert main(["report", str(tmp_path / "results"), "--out", str(report)]) == 0
    assert (report / "report.md").read_text().count("Bits per byte on sample") == 2


def test_overrides_change_the_configuration(evaluate, tmp_path):
    folder = make_folder(tmp_path / "model", "mpt")
    overrides = '{"max_seq_len": 256}'
    (record,) = evaluate(folder, lengths="200", strides="full", model_overrides=overrides)
    assert record.series.train_length == 128


def test_overrides_change_the_rotated_part(evaluate, tmp_path):
    folder = make_folder(tmp_path / "model", "gpt-neox")
    options = {"lengths": "32", "strides": "full"}
    (quarter,) = evaluate(folder, out="quarter", **options)
    overrides = '{"rope_parameters": {"partial_rotary_factor": 0.5}}'
    (half,) = evaluate(folder, model_overrides=overrides, **options)
    assert half.values.loss_bits != quarter.values.loss_bits


@pytest.mark.parametrize("overridden_first", [False, True])
@pytest.mark.parametrize("kind", ["falcon", "own"])
def test_overrides_do_not_change_recorded_method(evaluate, tmp_path, kind, overridden_first):
    folder = tmp_path / "model"
    if kind == "falcon":
        make_folder(folder, "falcon")
        override = {"model_overrides": '{"alibi": false}'}
    else:
        make_own_format(folder)
        override = {"model_overrides": '{"position_method": "none"}'}
    options = {"lengths": "32", "strides": "full"}
    for changes in (override, {}) if overridden_first else ({}, override):
        evaluate(folder, **options, **changes)
    results = load(tmp_path / "results.json").results
    assert [result.series.method.names for result in results] == [("alibi",), ("alibi",)]
    assert results[0].values.loss_bits != results[1].values.loss_bits


def test_overrides_change_derived_values(evaluate, tmp_path):
    folder = make_folder(tmp_path / "model", "qwen2")
    window = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0}
    options = {"lengths": "32", "strides": "full"}
    (full,) = evaluate(folder, out="full", **options)
    overrides = json.dumps({**window, "layer_types": None})
    (listed,) = evaluate(folder, out="listed", model_overrides=overrides, **options)
    config = json.loads((folder / "config.json").read_text())
    del config["layer_types"]
    (folder / "config.json").write_text(json.dumps(config))
    (overridden,) = evaluate(folder, model_overrides=json.dumps(window), **options)
    (folder / "config.json").write_text(json.dumps({**config, **window}))
    (edited,) = evaluate(folder, out="edited", **options)
    losses = [result.values.loss_bits for result in (listed, overridden, edited)]
    assert len(set(losses)) == 1
    assert losses[0] != full.values.loss_bits


def test_vision_tower_does_not_limit_windows():
    size = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4)
    text = dict(vocab_size=300, head_dim=8, num_key_value_heads=2, **size)
    config = Gemma3Config(text_config=text, vision_config=dict(image_size=16, patch_size=4, **size))
    model = AutoModelForCausalLM.from_config(config)
    text_config = config.get_text_config()
    assert find_position_method(text_config, model) == "rotary"
    assert find_max_length(text_config, model) == sys.maxsize


def test_evaluation_connects_to_nothing(evaluate, tmp_path, monkeypatch):
    def connect(*arguments):
        pytest.fail("a connection")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)
    evaluate(make_folder(tmp_path / "model"), lengths="8", strides="full")
