"""Perplexity as the documentation of transformers computes it, and its difference to ``eval``."""

from __future__ import annotations

import math

import pytest
import torch
from folders import TEXT, make_folder
from transformers import AutoModelForCausalLM

from alibi_fairseq.evaluation.config import SweepConfig
from alibi_fairseq.huggingface.evaluation import evaluate_folders
from alibi_fairseq.huggingface.model_folder import ModelFolder

LENGTH = 16
STRIDE = 4


def windows_of(num_tokens: int) -> list[tuple[int, int, int]]:
    """Return the first token, the first target, and the end of each window of the recipe.

    Source: https://huggingface.co/docs/transformers/perplexity
    """
    windows = []
    first_target = 0
    for begin in range(0, num_tokens, STRIDE):
        end = min(begin + LENGTH, num_tokens)
        windows.append((begin, first_target, end))
        first_target = end
        if end == num_tokens:
            break
    return windows


@torch.no_grad()
def test_transformers_recipe_weights_windows_unequally(tmp_path):
    folder = make_folder(tmp_path / "model")
    text = tmp_path / "text.txt"
    text.write_text(TEXT, encoding="utf-8")
    tokens = ModelFolder.open(folder).tokenizer(TEXT, return_tensors="pt").input_ids
    num_tokens = tokens.shape[1]
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    windows = windows_of(num_tokens)
    means = []
    weights = []
    counts = []
    for begin, first_target, end in windows:
        labels = tokens[:, begin:end].clone()
        labels[:, : first_target - begin] = -100
        means.append(model(tokens[:, begin:end], labels=labels).loss.item())
        # The recipe subtracts one target in every window because labels are shifted, but only the
        # first window loses one: in the others the target before the first is context.
        weights.append(end - first_target - 1)
        counts.append(end - max(first_target, 1))
    assert counts[0] == weights[0] == LENGTH - 1
    assert counts[1:] == [weight + 1 for weight in weights[1:]]

    # Each window mean covers `counts` tokens. The sweep scores those after the first window.
    config = SweepConfig(lengths=(LENGTH - 1,), strides=(STRIDE,), score_from=LENGTH, device="cpu")
    (record,) = evaluate_folders([text], [folder], config, tmp_path / "results.json")
    assert record.values.tokens == sum(counts[1:])
    later = sum(mean * count for mean, count in zip(means[1:], counts[1:]))
    assert record.values.loss_bits == pytest.approx(later / sum(counts[1:]) / math.log(2), abs=1e-5)
    recipe = sum(mean * weight for mean, weight in zip(means, weights)) / sum(weights)
    per_token = sum(mean * count for mean, count in zip(means, counts)) / sum(counts)
    assert abs(recipe - per_token) > 1e-3


@torch.no_grad()
def test_transformers_recipe_skips_tokens_without_overlap(tmp_path):
    """With stride = length, the shift of the labels leaves out the first token of each window."""
    folder = make_folder(tmp_path / "model")
    tokens = ModelFolder.open(folder).tokenizer(TEXT, return_tensors="pt").input_ids[:, :LENGTH]
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    mean = model(tokens, labels=tokens).loss.item()
    scores = model(tokens).logits[0, :-1].double().log_softmax(-1)
    losses = -scores.gather(-1, tokens[0, 1:, None])
    assert len(losses) == LENGTH - 1
    assert mean == pytest.approx(losses.mean().item(), abs=1e-5)
