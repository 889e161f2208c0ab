"""Model cards of exported folders."""

from __future__ import annotations

import pytest
from huggingface_hub import ModelCard
from results_documents import validation_result
from transformers import AutoModelForCausalLM

from alibi_fairseq.cli import main
from alibi_fairseq.huggingface.model_card import trained_tokens
from alibi_fairseq.results.file import Results, load, save


@pytest.fixture(scope="module")
def results(trained, tmp_path_factory):
    """Return a results file of a checkpoint at two lengths."""
    path = tmp_path_factory.mktemp("results") / "alibi.json"
    arguments = [str(trained.data), "--path", str(trained("alibi")), "--lengths", "32,64"]
    assert main(["eval", *arguments, "--out", str(path)]) == 0
    return path


@pytest.fixture
def export(trained, tmp_path, monkeypatch):
    """Return a function that exports a checkpoint and returns the exit code."""
    # The shared data has numbers as words, which look like token IDs.
    monkeypatch.setattr(
        "alibi_fairseq.huggingface.export.find_tokenizer_files", lambda *arguments: {}
    )

    def run(*options: str, model: str = "alibi") -> int:
        arguments = ["--data", str(trained.data), "--path", str(trained(model))]
        return main(["export", *arguments, "--out", str(tmp_path / "model"), *options])

    return run


def test_card_has_license_and_results(export, results, tmp_path):
    assert export("--license", "apache-2.0", "--results", str(results)) == 0
    card = ModelCard.load(tmp_path / "model" / "README.md")
    assert card.data.license == "apache-2.0"
    assert card.data.library_name == "transformers"
    assert card.data.pipeline_tag == "text-generation"
    for record in load(results).results:
        assert f"{record.values.perplexity:.2f}" in card.text
    assert "| trained ↓ evaluated at → |" in card.text
    assert "- License: apache-2.0" in card.text
    assert "tokens: not recorded" in card.text  # this training did not validate


def test_trained_tokens_are_those_of_update_count(tmp_path):
    results = []
    for updates in (100, 200):
        results.append(validation_result(updates=updates, trained_tokens=512 * updates))
    save(Results(results), tmp_path / "training.json")
    checkpoint = tmp_path / "checkpoint_best.pt"
    assert trained_tokens(checkpoint, 100) == 51200
    assert trained_tokens(checkpoint, 150) is None
    assert trained_tokens(tmp_path / "other" / "checkpoint_best.pt", 100) is None


def test_card_invents_no_license(export, tmp_path):
    assert export() == 0
    card = ModelCard.load(tmp_path / "model" / "README.md")
    assert card.data.license is None
    assert "- License: not stated" in card.text
    assert "Perplexity" not in card.text


def test_card_counts_parameters_of_exported_model(export, tmp_path):
    assert export(model="alibi-adaptive") == 0  # has --tie-adaptive-proj
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", trust_remote_code=True)
    card = ModelCard.load(tmp_path / "model" / "README.md")
    assert f"- Parameters: {model.num_parameters():,}\n" in card.text
