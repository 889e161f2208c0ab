"""Tests of the warning about models that have barely trained."""

import math

import pytest
import torch
from fairseq_runs import write_corpus
from fakes import TINY, in_this_process
from results_documents import document, evaluation_record

from alibi_fairseq.cli import main
from alibi_fairseq.compare.undertrained import undertrained_warning, unigram_entropy
from alibi_fairseq.evaluation.split import load_dictionary, load_split
from alibi_fairseq.results.data_folder import DataFolder
from alibi_fairseq.runs import child_process


def test_unigram_entropy_matches_torch(data_bin):
    tokens = load_split(DataFolder.open(data_bin), "valid", load_dictionary(data_bin)).tokens
    counts = torch.bincount(torch.from_numpy(tokens)).double()
    expected = torch.distributions.Categorical(probs=counts).entropy() / math.log(2)
    assert unigram_entropy(data_bin, "valid") == pytest.approx(float(expected))


def test_warning_names_undertrained_models():
    """The entropy is 10 bits, so a trained model has a loss of at most 9 bits per token."""
    records = [
        evaluation_record(2**9.2, position_method="alibi", length=64),
        evaluation_record(2**8.9, position_method="alibi", length=128),
        evaluation_record(2**9.2, position_method="rotary", length=64),
        evaluation_record(2**10.9, position_method="rotary", length=128),
    ]
    warning = undertrained_warning(document(*records).records, entropy=10.0)
    assert "Rotary, L=64" in warning
    assert "perplexity of 1,024.0" in warning
    assert "ALiBi" not in warning
    assert undertrained_warning(document(*records[:2]).records, entropy=10.0) is None


def test_warning_counts_each_seed():
    results = [
        document(evaluation_record(2**8.5, seed=1), seed=1),
        document(evaluation_record(2**9.5, seed=2), seed=2),
    ]
    measurements = [record for file in results for record in file.records]
    assert "ALiBi" in undertrained_warning(measurements, entropy=10.0)


def test_warning_distinguishes_models_of_one_name():
    """Both are called alibi in results. They differ in an option of the training only."""
    records = [
        evaluation_record(2**8.5, options={}),
        evaluation_record(2**9.5, options={"attention_window": "8"}),
    ]
    warning = undertrained_warning(document(*records).records, entropy=10.0)
    assert "barely trained: ALiBi, L=64 (--attention-window 8)." in warning


def test_overrides_do_not_make_a_model_undertrained():
    """One trained model is evaluated as trained, and with a window that hides the context."""
    records = [
        evaluation_record(2**8.5),
        evaluation_record(2**9.5, label="limited", overrides={"attention_window": 1}),
    ]
    measurements = document(*records).records
    assert undertrained_warning(measurements, entropy=10.0) is None
    warning = undertrained_warning(measurements, entropy=9.0)
    assert "barely trained: ALiBi, L=64." in warning


@pytest.mark.parametrize(("updates", "is_warned"), [(2, True), (150, False)])
def test_report_warns_at_small_budget(tmp_path, monkeypatch, capsys, updates, is_warned):
    """The next token of this corpus is one of two, so a few updates are enough."""
    monkeypatch.setattr(child_process, "execute_command", in_this_process)
    data = tmp_path / "data"
    data.mkdir()
    torch.manual_seed(1)
    write_corpus(data, train=4000, valid=500)
    out = tmp_path / "out"
    words = ["compare", str(data), "--methods", "alibi", "--updates", str(updates), "--lr", "0.01"]
    words += ["--train-lengths", "16", "--lengths", "16", "--tokens-per-update", "256"]
    assert main([*words, "--train-flags", TINY, "--out", str(out), "--parallel", "1"]) == 0
    sentence = "Warning: these models have barely trained: ALiBi, L=16."
    assert (sentence in (out / "table.md").read_text(encoding="utf-8")) == is_warned
    assert (sentence in capsys.readouterr().out) == is_warned
