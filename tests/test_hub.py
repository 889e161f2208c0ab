"""fairseq's hub interface for checkpoints of this package."""

from __future__ import annotations

import math

import pytest
import torch

from alibi_fairseq import AlibiLanguageModel


@pytest.fixture(scope="module")
def model(checkpoint, data_bin):
    folder, name = str(checkpoint.parent), checkpoint.name
    return AlibiLanguageModel.from_pretrained(folder, name, data_name_or_path=str(data_bin)).eval()


def test_score_is_the_models_own(model):
    sentence = "w1 w2 w3"
    scored = model.score(sentence)
    tokens = model.encode(sentence)  # w1 w2 w3 </s>
    with torch.no_grad():
        start = tokens.new_tensor([[2, *tokens[:-1]]])
        scores = model.models[0](start)[0].log_softmax(dim=-1)[0]
    expected = [scores[i, token].item() for i, token in enumerate(tokens[:-1])]
    assert scored["positional_scores"][: len(expected)].tolist() == pytest.approx(
        expected, abs=1e-5
    )


def test_score_of_several_lengths_at_once(model):
    sentences = ["w1 w2 w3 w4 w5 w6", "w7", "w8 w9 w1"]
    together = [hypothesis["positional_scores"] for hypothesis in model.score(sentences)]
    for sentence, scores in zip(sentences, together):
        alone = model.score(sentence)["positional_scores"]
        torch.testing.assert_close(scores, alone, rtol=0, atol=1e-5)


def test_sample_goes_on_from_the_text_past_the_training_length(model):
    text = model.sample("w1 w2 w3", beam=2, max_len_b=40, min_len=40)
    words = text.split()
    assert words[:3] == ["w1", "w2", "w3"]
    assert len(words) > 2 * 16  # trained at 16
    assert math.isfinite(model.score(text)["score"])
