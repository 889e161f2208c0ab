"""Sums by document and position, with a model whose losses are known."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from fairseq_runs import write_corpus

from alibi_fairseq.evaluation.checkpoint import LoadedModel
from alibi_fairseq.experiments.study.evaluate import Evaluation

TOKENS, STARTS = 400, [0, 130, 300]


@dataclass(frozen=True)
class Model(LoadedModel):
    """The loss of a token is the number of inputs that its prediction sees, in bits."""

    def scorer(self):
        def score(inputs, targets):
            seen = torch.arange(1, inputs.shape[1] + 1).float()[-targets.shape[1] :]
            return (seen * math.log(2)).expand(targets.shape)

        return score


@pytest.fixture
def evaluation(tmp_path):
    data = write_corpus(tmp_path, test=TOKENS)
    facts = {"position_method": "alibi", "train_length": 16, "seed": 1}
    model = Model(None, facts, 400, memory_length=0, shares_start=True, bytes_per_input=100)
    (data / "documents.json").write_text(json.dumps({"test": STARTS}))
    return Evaluation(model, data, torch.device("cpu"), {"precision": "fp32"})


@pytest.mark.parametrize("length", [16, 21, 400])
def test_windows_that_do_not_overlap(evaluation, length):
    cell, positions = evaluation.whole(length)
    seen = np.arange(TOKENS) % length + 1
    parts = np.split(seen, STARTS[1:])
    assert cell["document_bits"] == pytest.approx([part.sum() for part in parts])
    assert cell["document_tokens"] == [len(part) for part in parts]
    assert cell["loss_bits"] == pytest.approx(seen.mean())
    assert sum(p["tokens"] for p in positions) == TOKENS
    for place in positions:
        inside = seen[(seen > place["position_from"]) & (seen <= place["position_to"])]
        assert place["tokens"] == len(inside)
        assert place["loss_bits"] == pytest.approx(inside.mean())


def test_sliding_windows_score_the_same_tokens_with_all_their_context(evaluation):
    cells = evaluation.sliding([16, 120], per_document=25)
    for cell, length in zip(cells, (16, 120), strict=True):
        assert cell["stride"] == 1 and cell["loss_bits"] == pytest.approx(length)
        # 10 tokens are left in the first document behind 120, 25 are taken of the second, and the
        # third has no 120 before its end.
        assert cell["document_tokens"] == [10, 25, 0]
        assert cell["document_bits"] == pytest.approx([10 * length, 25 * length, 0])
    assert cells[0]["tokens"] == 35
