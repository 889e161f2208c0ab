"""Tests of the warning about models that have barely trained."""

import math

import pytest
import torch
from fairseq_runs import write_corpus
from fakes import TINY, in_this_process
from results_documents import document, evaluation_cell

from alibi_fairseq.cli import main
from alibi_fairseq.compare.undertrained import undertrained_warning, unigram_entropy
from alibi_fairseq.evaluation.split import load_dictionary, load_split
from alibi_fairseq.results.data_folder import DataFolder
from alibi_fairseq.results.measurements import measurements_of
from alibi_fairseq.runs import child_process


def test_unigram_entropy_matches_torch(data_bin):
    tokens = load_split(DataFolder.open(data_bin), "valid", load_dictionary(data_bin)).tokens
    counts = torch.bincount(torch.from_numpy(tokens)).double()
    expected = torch.distributions.Categorical(probs=counts).entropy() / math.log(2)
    assert unigram_entropy(data_bin, "valid") == pytest.approx(float(expected))


def test_warning_names_undertrained_models():
    """The entropy is 10 bits, so a trained model has a loss of at most 9 bits per token."""
    records = [
        evaluation_cell(2**9.2, position_method="alibi", length=64),
        evaluation_cell(2**8.9, position_method="alibi", length=128),
        evaluation_cell(2**9.2, position_method="rotary", length=64),
        evaluation_cell(2**10.9, position_method="rotary", length=128),
    ]
    warning = undertrained_warning(measurements_of(document(*records)), entropy=10.0)
    assert "Rotary, L=64" in warning
    assert "perplexity of 1,024.0" in warning
    assert "ALiBi" not in warning
    assert undertrained_warning(measurements_of(document(*records[:2])), entropy=10.0) is None


def test_warning_counts_each_seed():
    results = [
        document(evaluation_cell(2**8.5, seed=1), seed=1),
        document(evaluation_cell(2**9.5, seed=2), seed=2),
    ]
    assert "ALiBi" in undertrained_warning(measurements_of(*results), entropy=10.0)


def test_warning_distinguishes_models_of_one_name():
    """Both are called alibi in results. They differ in the training command only."""
    command = "alibi-fairseq train data --position-method alibi"
    window = "--attention-window 8"
    records = [
        evaluation_cell(2**8.5, train_command=command),
        evaluation_cell(2**9.5, train_command=f"{command} {window}"),
    ]
    warning = undertrained_warning(measurements_of(document(*records)), entropy=10.0)
    assert f"barely trained: ALiBi, L=64 ({window})." in warning


def test_overrides_do_not_make_a_model_undertrained():
    """One trained model is evaluated as trained, and with a window that hides the context."""
    records = [
        evaluation_cell(2**8.5),
        evaluation_cell(2**9.5, label="limited", model_overrides='{"attention_window": 1}'),
    ]
    measurements = measurements_of(document(*records))
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
