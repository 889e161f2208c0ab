"""fairseq's generator with our cache against a naive search that recomputes everything."""

from __future__ import annotations

import pytest
import torch
from conftest import dictionary_of, random_tokens, small_model
from fairseq.sequence_generator import SequenceGenerator

NEW_TOKENS = 10
EOS = 2
PAD = 1


def beam_search(model, prefix: torch.Tensor, beam: int) -> list[tuple[list[int], float]]:
    """Beam search over full forward passes for one prefix; no hypothesis may end early."""
    beams = [([EOS, *prefix.tolist()], 0.0)]
    for _ in range(NEW_TOKENS):
        candidates = []
        for tokens, score in beams:
            scores = model(torch.tensor([tokens]))[0][0, -1].log_softmax(-1)
            scores[[PAD, EOS]] = -torch.inf
            for value, token in zip(*scores.topk(beam)):
                candidates.append(([*tokens, token.item()], score + value.item()))
        beams = sorted(candidates, key=lambda candidate: -candidate[1])[:beam]
    return beams


#: A method for each place where one can act; the cache of all is in test_decoding.py.
ACTING = ("alibi", "learned", "rotary", "fox")


def generate(model, beam: int, total: int, rows: list[torch.Tensor]) -> list[list[dict]]:
    """The hypotheses of fairseq's generator for each prefix, ``total`` tokens long."""
    generator = SequenceGenerator(
        [model], dictionary_of(60), beam_size=beam, max_len_a=0, max_len_b=total, min_len=total
    )
    tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    lengths = torch.tensor([len(row) for row in rows])
    sample = {"net_input": {"src_tokens": tokens, "src_lengths": lengths}}
    return generator.generate([model], sample, prefix_tokens=tokens)


@pytest.fixture(params=ACTING)
def model(request):
    model = small_model(request.param)
    # Scores of a random model are nearly equal; spread them, so that beams part and reorder.
    model.decoder.embed_tokens.weight.data.mul_(4)
    return model


@pytest.mark.parametrize("beam", [1, 3])
@torch.no_grad()
def test_generator_equals_naive_beam_search(model, beam):
    prefix = random_tokens(1, 5)[0]
    total = len(prefix) + NEW_TOKENS
    (found,) = generate(model, beam, total, [prefix])
    expected = beam_search(model, prefix, beam)
    best = [hypothesis["tokens"][:total].tolist() for hypothesis in found]
    assert best[0] == expected[0][0][1:]
    assert {tuple(tokens) for tokens in best} == {tuple(tokens[1:]) for tokens, _ in expected}


@torch.no_grad()
def test_prefixes_of_different_lengths_are_independent(model):
    prefixes = [random_tokens(1, length)[0] for length in (2, 7, 4)]
    for prefix, together in zip(prefixes, generate(model, 2, 17, prefixes), strict=True):
        (alone,) = generate(model, 2, 17, [prefix])
        for ours, theirs in zip(together, alone, strict=True):
            assert ours["tokens"].tolist() == theirs["tokens"].tolist()
            assert ours["tokens"][: len(prefix)].tolist() == prefix.tolist()
            torch.testing.assert_close(ours["score"], theirs["score"], rtol=0, atol=1e-5)
