"""Tests of the warning about models that have barely trained."""

import math

import pytest
import torch
from fairseq_runs import write_corpus
from fakes import TINY, in_this_process
from figure_texts import figure_texts
from results_documents import (
    document,
    evaluation_record,
    figures_as_svg,
    results_of,
)

from alibi_fairseq.cli import main
from alibi_fairseq.evaluation.split import load_dictionary, load_split
from alibi_fairseq.evaluation.text_evaluator import unigram_entropy
from alibi_fairseq.experiment import child_process
from alibi_fairseq.huggingface.model_card import perplexity_section
from alibi_fairseq.reporting.evaluation_output import evaluation_notes, evaluation_table
from alibi_fairseq.reporting.notes import undertrained_warning
from alibi_fairseq.reporting.rows import build_rows
from alibi_fairseq.results.data_folder import DataFolder
from alibi_fairseq.results.file import load, save


def warning_of(*records) -> str:
    return undertrained_warning(build_rows(results_of(*records)))


def test_recorded_entropy_matches_torch(data_bin, tmp_path):
    tokens = load_split(DataFolder.open(data_bin), "valid", load_dictionary(data_bin)).tokens
    counts = torch.bincount(torch.from_numpy(tokens)).double()
    expected = torch.distributions.Categorical(probs=counts).entropy() / math.log(2)
    assert unigram_entropy(tokens) == pytest.approx(float(expected), abs=1e-6)


def test_warning_names_undertrained_models():
    """The entropy is 10 bits, so a trained model has a loss of at most 9 bits per token."""
    records = [
        evaluation_record(2**9.2, length=64, unigram_bits=10.0),
        evaluation_record(2**8.9, length=128, unigram_bits=10.0),
        evaluation_record(2**9.2, method="rotary", length=64, unigram_bits=10.0),
        evaluation_record(2**10.9, method="rotary", length=128, unigram_bits=10.0),
        evaluation_record(2**10.1, method="none", unigram_bits=10.0),
    ]
    assert warning_of(*records) == (
        "Warning: token frequencies alone have a perplexity of 1,024.0 on this split. "
        "These models are worse: No positions, L=64. "
        "The loss of these models is less than 10% lower: Rotary, L=64. "
        "Do not compare their position methods. Train them longer"
    )
    assert warning_of(*records[:2]) == ""


def test_models_worse_than_token_frequencies_are_not_called_better():
    """The perplexities of an evaluation whose warning said that the loss is "lower"."""
    entropy = {"unigram_bits": math.log2(292.0)}
    first = evaluation_record(338.0, **entropy)
    second = evaluation_record(352.0, method="sinusoidal", **entropy)
    warning = warning_of(first, second)
    assert "perplexity of 292.0 on" in warning
    assert "These models are worse: ALiBi, L=64; Sinusoidal, L=64." in warning
    assert "lower" not in warning


def test_warning_counts_each_seed():
    good = evaluation_record(2**8.5, seed=1, unigram_bits=10.0)
    bad = evaluation_record(2**9.5, seed=2, unigram_bits=10.0)
    assert "lower: ALiBi, L=64." in warning_of(good, bad)


def test_overrides_do_not_make_a_model_undertrained():
    """One trained model is evaluated as trained, and with a window that hides the context."""
    limited = {"label": "limited", "overrides": {"attention_window": 1}}
    for entropy, is_warned in ((10.0, False), (9.0, True)):
        warning = warning_of(
            evaluation_record(2**8.5, unigram_bits=entropy),
            evaluation_record(2**9.5, **limited, unigram_bits=entropy),
        )
        assert ("lower: ALiBi, L=64." in warning) == is_warned


def test_results_without_entropy_have_no_warning():
    assert warning_of(evaluation_record(2**9.5)) == ""


@pytest.fixture
def undertrained(tmp_path):
    """Return a results file of a model that is worse than token frequencies."""
    records = []
    for length in (64, 128):
        records.append(evaluation_record(338.0, length=length, score_to=4000, unigram_bits=8.0))
    path = tmp_path / "results.json"
    save(document(*records), path)
    return path


def test_report_states_warning_and_scored_range_in_all_outputs(undertrained, tmp_path):
    out = tmp_path / "out"
    with figures_as_svg():
        assert main(["report", str(undertrained), "--out", str(out), "--latex"]) == 0
    outputs = {
        "page": (out / "report.md").read_text(),
        "table": (out / "tables/demo-lengths.md").read_text(),
        "LaTeX": (out / "tables/demo-lengths.tex").read_text(),
        "figure": " ".join(figure_texts(out / "figures/demo-lengths.svg")),
    }
    for name, text in outputs.items():
        assert "These models are worse: ALiBi, L=64" in text, name
        assert "tokens 0 to 4,000" in text, name


def test_model_card_states_warning_and_scored_range(undertrained):
    section = perplexity_section(load(undertrained).results)
    assert "These models are worse: ALiBi, L=64." in section
    assert "Perplexity on valid, non-overlapping, tokens 0 to 4,000:" in section


def test_evaluation_prints_warning_and_scored_range(undertrained):
    results = load(undertrained).results
    assert "| tokens 0 to 4,000 |" in evaluation_table(results)
    assert "These models are worse: ALiBi, L=64." in evaluation_notes(results)


@pytest.mark.ci
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
    sentence = "Do not compare their position methods."
    assert (sentence in (out / "table.md").read_text(encoding="utf-8")) == is_warned
    assert (sentence in capsys.readouterr().out) == is_warned
