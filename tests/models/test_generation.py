"""fairseq's generator with our cache against a naive search that recomputes everything."""

from __future__ import annotations

import pytest
import torch
from conftest import dictionary_of, random_tokens, small_model
from fairseq.sequence_generator import SequenceGenerator

from alibi_fairseq.positions import METHODS

NEW_TOKENS, EOS, PAD = 10, 2, 1


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


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("method", sorted(METHODS))
@torch.no_grad()
def test_generator_equals_naive_beam_search(method, beam):
    model = small_model(method)
    # Scores of a random model are nearly equal; spread them, so that beams part and reorder.
    model.decoder.embed_tokens.weight.mul_(4)
    prefix = random_tokens(1, 5)[0]
    total = len(prefix) + NEW_TOKENS
    generator = SequenceGenerator(
        [model], dictionary_of(60), beam_size=beam, max_len_a=0, max_len_b=total, min_len=total
    )
    sample = {"net_input": {"src_tokens": prefix[None], "src_lengths": torch.tensor([len(prefix)])}}
    found = generator.generate([model], sample, prefix_tokens=prefix[None])[0]
    expected = beam_search(model, prefix, beam)
    best = [hypothesis["tokens"][:total].tolist() for hypothesis in found]
    assert best[0] == expected[0][0][1:]
    assert {tuple(tokens) for tokens in best} == {tuple(tokens[1:]) for tokens, _ in expected}


@pytest.mark.parametrize("method", sorted(METHODS))
@torch.no_grad()
def test_prefixes_of_different_lengths_do_not_disturb_each_other(method):
    model = small_model(method)
    model.decoder.embed_tokens.weight.mul_(4)
    prefixes = [random_tokens(1, length)[0] for length in (2, 7, 4)]
    total = max(map(len, prefixes)) + NEW_TOKENS
    generator = SequenceGenerator(
        [model], dictionary_of(60), beam_size=2, max_len_a=0, max_len_b=total, min_len=total
    )

    def generate(rows: list[torch.Tensor]) -> list[list[dict]]:
        tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
        lengths = torch.tensor([len(row) for row in rows])
        sample = {"net_input": {"src_tokens": tokens, "src_lengths": lengths}}
        return generator.generate([model], sample, prefix_tokens=tokens)

    for prefix, together in zip(prefixes, generate(prefixes)):
        (alone,) = generate([prefix])
        for ours, theirs in zip(together, alone):
            assert ours["tokens"].tolist() == theirs["tokens"].tolist()
            assert ours["tokens"][: len(prefix)].tolist() == prefix.tolist()
            torch.testing.assert_close(ours["score"], theirs["score"], rtol=0, atol=1e-5)
