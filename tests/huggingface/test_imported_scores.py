"""Scores of imported models, which exclude symbols that the original model lacks."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.sequence_generator import SequenceGenerator
from fairseq.sequence_scorer import SequenceScorer
from imported import (
    CONFIGS,
    LENGTH,
    assert_same_scores,
    import_model,
    import_with_negative_scores,
    save_random_model,
)
from transformers import AutoModelForCausalLM

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.evaluation.checkpoint import token_losses
from alibi_fairseq.huggingface.conversion import convert_decoder
from alibi_fairseq.huggingface.export import save_model
from alibi_fairseq.models.output_projection import OutputProjection
from alibi_fairseq.plugin.chunked_losses import ChunkedCrossEntropy

CRITERIA = (CrossEntropyCriterion, ChunkedCrossEntropy)


def losses_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the loss of each target in nats, computed in float64."""
    log_probabilities = logits.double().log_softmax(-1)
    return -log_probabilities.gather(-1, targets[..., None]).squeeze(-1)


def training_sample(tokens: torch.Tensor, lengths: list[int]) -> dict:
    """Return a batch of fairseq in which each token predicts the next one."""
    return {
        "net_input": {"src_tokens": tokens[:, :-1], "src_lengths": torch.tensor(lengths)},
        "target": tokens[:, 1:].contiguous(),
        "ntokens": sum(lengths),
    }


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_equal_the_original_model(name, tmp_path, capsys):
    folder = save_random_model(name, tmp_path / "model")
    imported = import_model(folder, tmp_path / "out")
    assert "--position-method" in capsys.readouterr().out
    assert_same_scores(imported)


@pytest.mark.parametrize("scaling", [None, {"type": "linear", "factor": 4.0}])
def test_rotation_in_the_format_of_transformers_4(scaling, tmp_path):
    folder = save_random_model("gpt-neox", tmp_path / "model")
    path = folder / "config.json"
    config = json.loads(path.read_text())
    del config["rope_parameters"]
    config |= {"rotary_pct": 1.0, "rotary_emb_base": 500, "rope_scaling": scaling}
    path.write_text(json.dumps(config))
    imported = import_model(folder, tmp_path / "out")
    assert imported.original.config.rope_parameters["rope_theta"] == 500
    assert_same_scores(imported)


@pytest.mark.ci
@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_losses_equal_the_original_model(name, tmp_path):
    """Check every path that scores tokens, with the softmax over the original vocabulary."""
    imported = import_with_negative_scores(name, tmp_path)
    tokens = imported.random_words()
    original_tokens = imported.original_ids(tokens)
    logits = imported.original(original_tokens[:, :-1]).logits
    if name in ("bloom", "xglm"):
        assert logits.max() < -5
    expected = losses_of(logits, original_tokens[:, 1:]).float()
    sample = training_sample(tokens, lengths=[39, 39])
    targets = sample["target"]

    features, _ = imported.model.decoder.extract_features(tokens[:, :-1])
    losses = token_losses(imported.model.decoder, features, targets)
    torch.testing.assert_close(losses, expected, rtol=0, atol=2e-5)

    task = SimpleNamespace(target_dictionary=imported.dictionary)
    for criterion in CRITERIA:
        loss, _, _ = criterion(task, sentence_avg=False)(imported.model, sample)
        torch.testing.assert_close(loss, expected.sum(), rtol=0, atol=1e-3)

    scorer = SequenceScorer(imported.dictionary)
    for row, hypotheses in enumerate(scorer.generate([imported.model], sample)):
        scores = hypotheses[0]["positional_scores"]
        torch.testing.assert_close(-scores, expected[row], rtol=0, atol=2e-5)


@torch.no_grad()
def test_bits_per_token_equal_the_original_bloom(tmp_path):
    """Test scores that are all negative: a symbol of score 0 would take nearly all probability."""
    imported = import_with_negative_scores("bloom", tmp_path)
    tokens = imported.random_words()
    original_tokens = imported.original_ids(tokens)
    original_targets = original_tokens[:, 1:]
    logits = imported.original(original_tokens[:, :-1]).logits
    assert logits.max() < -5
    expected = losses_of(logits, original_targets).mean() / math.log(2)
    logits_with_zero = torch.nn.functional.pad(logits, (0, 1))
    bits_with_zero = losses_of(logits_with_zero, original_targets).mean() / math.log(2)
    assert bits_with_zero > expected + 5

    decoder = imported.model.decoder
    features, _ = decoder.extract_features(tokens[:, :-1])
    losses = token_losses(decoder, features, tokens[:, 1:].contiguous())
    bits = losses.double().mean() / math.log(2)
    torch.testing.assert_close(bits, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["bloom", "xglm"])
@torch.no_grad()
def test_generation_never_yields_an_excluded_symbol(name, tmp_path):
    imported = import_with_negative_scores(name, tmp_path)
    dictionary = imported.dictionary
    generator = SequenceGenerator(
        [imported.model],
        dictionary,
        beam_size=2,
        max_len_a=0,
        max_len_b=20,
        min_len=20,
        normalize_scores=False,
    )
    prefix = imported.random_words()[:1, :5]
    sample = {"net_input": {"src_tokens": prefix, "src_lengths": torch.tensor([5])}}
    (hypotheses,) = generator.generate([imported.model], sample, prefix_tokens=prefix)
    generated = hypotheses[0]["tokens"].tolist()
    assert dictionary.unk() not in generated
    assert dictionary.bos() not in generated

    tokens = torch.tensor([[dictionary.eos(), *generated]])
    original_tokens = imported.original_ids(tokens)
    logits = imported.original(original_tokens[:, :-1]).logits
    expected = -losses_of(logits, original_tokens[:, 1:]).flatten().float()
    scores = hypotheses[0]["positional_scores"]
    torch.testing.assert_close(scores, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", ["bloom", "opt"])
def test_chunked_gradient_skips_excluded_symbols(name, tmp_path):
    imported = import_with_negative_scores(name, tmp_path)
    dictionary = imported.dictionary
    tokens = imported.random_words()
    tokens[1, 30:] = dictionary.pad()
    sample = training_sample(tokens, lengths=[39, 29])
    task = SimpleNamespace(target_dictionary=dictionary)
    gradients = []
    for criterion in CRITERIA:
        imported.model.zero_grad()
        loss, _, _ = criterion(task, sentence_avg=False)(imported.model, sample)
        loss.backward()
        weight = imported.model.decoder.output_projection.weight
        gradients.append(weight.grad.clone())
    expected, chunked = gradients
    torch.testing.assert_close(chunked, expected, rtol=1e-4, atol=1e-5)
    assert chunked.isfinite().all()
    assert chunked.abs().sum() > 0
    assert chunked[dictionary.unk()].abs().sum() == 0


@pytest.mark.parametrize("name", ["bloom", "xglm", "gpt-neox", "opt-350m", "qwen3"])
@torch.no_grad()
def test_exported_import_keeps_exclusions(name, tmp_path):
    imported = import_with_negative_scores(name, tmp_path)
    decoder = imported.model.decoder
    converted = convert_decoder(decoder, decoder.args.position_method, LENGTH)
    save_model(converted.model, tmp_path / "exported")
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "exported", trust_remote_code=True)
    tokens = imported.random_words()
    log_probabilities = exported(tokens).logits.log_softmax(-1)
    expected = imported.original(imported.original_ids(tokens)).logits.log_softmax(-1)
    torch.testing.assert_close(
        log_probabilities[..., 4:], expected[..., imported.word_ids], rtol=0, atol=2e-5
    )


def test_import_rejects_probability_of_missing_symbols(tmp_path, monkeypatch, refuse):
    """The built-in comparison detects a symbol that the original model lacks."""
    folder = save_random_model("bloom", tmp_path / "model")
    monkeypatch.setattr(OutputProjection, "forward", torch.nn.Linear.forward)
    assert "different scores" in refuse("import-hf", folder, "--out", tmp_path / "out")


def test_text_with_excluded_symbol_is_rejected(tmp_path):
    imported = import_with_negative_scores("bloom", tmp_path)
    tokens = imported.random_words()
    tokens[0, 7] = imported.dictionary.unk()
    features, _ = imported.model.decoder.extract_features(tokens)
    with pytest.raises(UserInputError, match="<unk>"):
        token_losses(imported.model.decoder, features, tokens)
