"""Attention within documents (``--block-diagonal``) and within a window."""

from __future__ import annotations

import pytest
import torch
from conftest import random_tokens, small_model

from alibi_fairseq.attention import start_of_each_document
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.positions import METHODS

EOS = 2


@pytest.mark.parametrize("separator", ["eos", "empty_line"])
def test_document_starts(separator):
    tokens = torch.randint(EOS, EOS + 3, (4, 60))
    expected = []
    for row in tokens.tolist():
        start = 0
        starts = []
        for position, token in enumerate(row):
            follows_eos = position > 0 and row[position - 1] == EOS
            if token == EOS and (separator == "eos" or follows_eos):
                start = position
            starts.append(start)
        expected.append(starts)
    assert start_of_each_document(tokens, EOS, separator).tolist() == expected
    assert start_of_each_document(tokens, EOS, "none") is None


METHODS_AND_SEPARATORS = [(method, "eos") for method in METHODS]
METHODS_AND_SEPARATORS.append(("learned", "empty_line"))


@pytest.mark.parametrize(("method", "separator"), METHODS_AND_SEPARATORS)
@torch.no_grad()
def test_packed_documents_match_separate_documents(method, separator):
    model = small_model(method, "--block-diagonal", separator)
    documents = [torch.cat([torch.full((1, 1), EOS), random_tokens(1, n)], 1) for n in (9, 1, 14)]
    if separator == "empty_line":  # the first two are lines of one document
        documents = [torch.cat([*documents[:2], torch.tensor([[EOS]])], 1), documents[2]]
    separate = torch.cat([model(document)[0] for document in documents], 1)
    torch.testing.assert_close(model(torch.cat(documents, 1))[0], separate, rtol=0, atol=1e-5)
    plain = small_model(method)
    plain.load_state_dict(model.state_dict())
    assert (plain(torch.cat(documents, 1))[0] - separate).abs().max() > 1e-3


@pytest.mark.parametrize("method", METHODS)
@torch.no_grad()
def test_layer_attends_to_window_only(method):
    model = small_model(method, "--decoder-layers", "1", "--attention-window", "5")
    tokens = random_tokens(1, 20)
    changed = tokens.clone()
    changed[:, 9] = tokens[:, 9] % 10 + 5  # another word
    assert changed[0, 9] != tokens[0, 9]
    # FoX's running sums differ by rounding wherever one of them does.
    moved = (model(tokens)[0] - model(changed)[0]).abs().amax(-1)[0] > 1e-5
    assert moved.nonzero().flatten().tolist() == [9, 10, 11, 12, 13]


@pytest.mark.parametrize(
    ("method", "flags"),
    [
        ("alibi", ["--block-diagonal", "lines"]),
        ("transformer_xl", ["--block-diagonal", "eos", "--mem-len", "8"]),
        ("alibi", ["--attention-window", "-1"]),
        ("alibi", ["--score-scaling", "log"]),
    ],
)
def test_invalid_options_are_rejected(method, flags):
    with pytest.raises(UserInputError, match=flags[0]):
        small_model(method, *flags, sequential="--mem-len" in flags)
