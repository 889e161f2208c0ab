"""fairseq's generator with our cache compared with a naive search without a cache."""

from __future__ import annotations

import pytest
import torch
from conftest import random_tokens, small_dictionary, small_model
from fairseq.sequence_generator import SequenceGenerator

NEW_TOKENS = 10
EOS = 2
PAD = 1


def beam_search(model, prefix: torch.Tensor, beam: int) -> list[tuple[list[int], float]]:
    """Return hypotheses and scores of a search over full passes. No hypothesis ends early."""
    beams = [([EOS, *prefix.tolist()], 0.0)]
    for _ in range(NEW_TOKENS):
        candidates = []
        for tokens, score in beams:
            logits, _ = model(torch.tensor([tokens]))
            log_probs = logits[0, -1].log_softmax(-1)
            log_probs[[PAD, EOS]] = -torch.inf
            for log_prob, token in zip(*log_probs.topk(beam)):
                candidates.append(([*tokens, token.item()], score + log_prob.item()))
        beams = sorted(candidates, key=lambda candidate: -candidate[1])[:beam]
    return beams


#: One method for each part of the model where methods act. test_decoding.py covers all methods.
METHODS = ("alibi", "learned", "rotary", "fox")


def generate(model, beam: int, length: int, prefixes: list[torch.Tensor]) -> list[list[dict]]:
    """Return the hypotheses of fairseq's generator for each prefix, ``length`` tokens each."""
    generator = SequenceGenerator(
        [model], small_dictionary(60), beam_size=beam, max_len_a=0, max_len_b=length, min_len=length
    )
    tokens = torch.nn.utils.rnn.pad_sequence(prefixes, batch_first=True, padding_value=PAD)
    lengths = torch.tensor([len(prefix) for prefix in prefixes])
    sample = {"net_input": {"src_tokens": tokens, "src_lengths": lengths}}
    return generator.generate([model], sample, prefix_tokens=tokens)


@pytest.fixture(params=METHODS)
def model(request):
    model = small_model(request.param)
    # Scores of a random model are nearly equal. Spread them, so that beams diverge and reorder.
    model.decoder.embed_tokens.weight.data.mul_(4)
    return model


@pytest.mark.parametrize("beam", [1, 3])
@torch.no_grad()
def test_generator_matches_naive_beam_search(model, beam):
    prefix = random_tokens(1, 5)[0]
    length = len(prefix) + NEW_TOKENS
    (hypotheses,) = generate(model, beam, length, [prefix])
    generated = [tuple(hypothesis["tokens"][:length].tolist()) for hypothesis in hypotheses]
    expected = [tuple(tokens[1:]) for tokens, _ in beam_search(model, prefix, beam)]
    assert generated[0] == expected[0]
    assert set(generated) == set(expected)


@torch.no_grad()
def test_prefixes_of_different_lengths_are_independent(model):
    prefixes = [random_tokens(1, length)[0] for length in (2, 7, 4)]
    for prefix, batched in zip(prefixes, generate(model, 2, 17, prefixes), strict=True):
        (separate,) = generate(model, 2, 17, [prefix])
        for hypothesis, expected in zip(batched, separate, strict=True):
            assert hypothesis["tokens"].tolist() == expected["tokens"].tolist()
            assert hypothesis["tokens"][: len(prefix)].tolist() == prefix.tolist()
            torch.testing.assert_close(hypothesis["score"], expected["score"], rtol=0, atol=1e-5)
