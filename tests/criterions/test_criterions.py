"""Losses, gradients, and logs of our criterions, compared with fairseq's."""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace

import pytest
import torch
from conftest import build_model, dictionary_of
from fairseq import utils
from fairseq.criterions import CRITERION_REGISTRY
from fairseq_runs import WORDS as WORDS_OF_RUN
from fairseq_runs import run_eval_lm, run_train, write_corpus

from alibi_fairseq.criterions import linear_cross_entropy as kernel
from alibi_fairseq.errors import UserInputError

WORDS = 200
PAD = 1
SHAPE = (
    *("--decoder-layers", "1", "--decoder-embed-dim", "32", "--decoder-ffn-embed-dim", "32"),
    *("--dropout", "0.1"),
)
CUTOFFS = ["--adaptive-softmax-cutoff", "30,90", "--adaptive-softmax-dropout", "0.2"]
INPUT = ["--adaptive-input", "--adaptive-input-cutoff", "30,90"]
FACTOR = ["--adaptive-input-factor", "2", "--adaptive-softmax-factor", "2"]
UNTIED = "--no-share-decoder-input-output-embed"
OURS = ["--arch", "alibi_lm", *SHAPE]
STOCK = ["--arch", "transformer_lm", *SHAPE]
ADAPTIVE = {
    "plain": [*OURS, UNTIED, *CUTOFFS],
    "factor 2": [*OURS, UNTIED, *CUTOFFS, "--adaptive-softmax-factor", "2"],
    "tied": [*OURS, UNTIED, *CUTOFFS, *INPUT, "--tie-adaptive-weights"],
    "projections tied": [
        *(*OURS, UNTIED, *CUTOFFS, *INPUT, *FACTOR),
        *("--tie-adaptive-weights", "--tie-adaptive-proj"),
    ],
    "stock": [*STOCK, *CUTOFFS],
}
DENSE = {
    "tied": OURS,
    "untied": [*OURS, UNTIED],
    "narrow output": [*OURS, UNTIED, "--decoder-output-dim", "16"],
    "stock": [*STOCK, "--share-decoder-input-output-embed"],
}
CASES = [("adaptive_loss", name, flags) for name, flags in ADAPTIVE.items()]
CASES += [("cross_entropy", name, flags) for name, flags in DENSE.items()]
IDS = [f"{criterion}, {name}" for criterion, name, _ in CASES]


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    monkeypatch.setitem(kernel.CHUNK, "cpu", 7 * WORDS)


def batch():
    """Three sequences of which two are padded, with words of every cluster."""
    tokens = torch.randint(4, WORDS, (3, 18))
    targets = torch.randint(4, WORDS, (3, 18))
    for row, length in ((1, 11), (2, 15)):
        tokens[row, length:] = targets[row, length:] = PAD
    lengths = torch.tensor([18, 11, 15])
    return {
        "net_input": {"src_tokens": tokens, "src_lengths": lengths},
        "target": targets,
        "ntokens": int(lengths.sum()),
    }


def criterion_of(name: str, sentence_avg: bool = False):
    task = SimpleNamespace(target_dictionary=dictionary_of(WORDS - 4))
    return CRITERION_REGISTRY[name](task, sentence_avg)


def outcome(criterion, model, sample):
    """Loss, sample size, logs, and the gradients by name."""
    torch.manual_seed(7)  # the same dropout
    model.zero_grad()
    loss, size, logs = criterion(model, sample)
    loss.sum().backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    return loss.detach().sum(), size, logs, gradients


@pytest.mark.parametrize("sentence_avg", [False, True])
@pytest.mark.parametrize(("name", "case", "flags"), CASES, ids=IDS)
def test_criterion_equals_fairseq(name, case, flags, sentence_avg, monkeypatch):
    # fairseq's own takes its logarithms in fp32, whatever the model's precision.
    monkeypatch.setattr(utils, "log_softmax", lambda x, dim, onnx_trace: x.log_softmax(dim))
    model = build_model(*flags, words=WORDS - 4).double().train()
    sample = batch()
    theirs = outcome(criterion_of(name, sentence_avg), copy.deepcopy(model), sample)
    ours = outcome(criterion_of(f"chunked_{name}", sentence_avg), model, sample)
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-10, atol=1e-10)
    assert ours[1] == theirs[1]
    assert ours[2].keys() == theirs[2].keys()
    assert float(ours[2].pop("loss")) == pytest.approx(float(theirs[2].pop("loss")), rel=1e-10)
    assert ours[2] == theirs[2]
    assert ours[3].keys() == theirs[3].keys()
    assert len(ours[3]) > 10
    for parameter, gradient in theirs[3].items():
        torch.testing.assert_close(
            ours[3][parameter], gradient, rtol=1e-10, atol=1e-10, msg=f"{case}: {parameter}"
        )
    model.eval()
    with torch.no_grad():
        (expected, *_), (total, *_) = (
            criterion_of(n)(model, sample) for n in (name, f"chunked_{name}")
        )
        single, _, _ = criterion_of(f"chunked_{name}")(model, sample, reduce=False)
    torch.testing.assert_close(total, expected.sum(), rtol=1e-10, atol=1e-10)
    assert single.shape == (3 * 18,)
    torch.testing.assert_close(single.sum(), total, rtol=1e-10, atol=1e-10)


def test_empty_cluster_has_no_gradient():
    model = build_model(*ADAPTIVE["plain"], words=WORDS - 4).train()
    sample = batch()
    sample["target"] = sample["target"] % 30
    for name in ("adaptive_loss", "chunked_adaptive_loss"):
        gradients = outcome(criterion_of(name), model, sample)[3]
        unused = {parameter for parameter, gradient in gradients.items() if gradient is None}
        assert unused == {f"decoder.adaptive_softmax.tail.{i}.{j}.weight"
                          for i in (0, 1) for j in (0, 2)}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "flags", "advice"),
    [
        ("chunked_adaptive_loss", DENSE["tied"], "chunked_cross_entropy"),
        ("chunked_cross_entropy", ADAPTIVE["tied"], "chunked_adaptive_loss"),
    ],
)
def test_criterion_rejects_unsuitable_models(name, flags, advice):
    model = build_model(*flags, words=WORDS - 4)
    with pytest.raises(UserInputError, match=f"Use --criterion {advice}"):
        criterion_of(name)(model, batch())


RUN = (
    "--task language_modeling --tokens-per-sample 16 --sample-break-mode complete --max-tokens 128 "
    "--max-update 24 --lr 0.01 --log-format simple --log-interval 1 --ddp-backend legacy_ddp "
    "--adaptive-softmax-cutoff 6,14 --no-share-decoder-input-output-embed --update-freq 2"
)


@pytest.mark.parametrize(
    ("precision", "tolerance"),
    [
        ("--seed 5", 1e-5),
        pytest.param("--bf16", 0.01, marks=pytest.mark.slow),
        pytest.param("--memory-efficient-fp16", 0.01, marks=pytest.mark.slow),
    ],
)
def test_training_equals_fairseq_criterion(tmp_path, precision, tolerance):
    """24 updates of two batches each: the validation loss falls, and to the same number, which
    fairseq's evaluator finds on both models."""
    data = write_corpus(tmp_path, train=2000, valid=300)
    validated = []
    evaluated = []
    for name in ("adaptive_loss", "chunked_adaptive_loss"):
        flags = [*RUN.split(), *precision.split(), "--criterion", name]
        run = run_train(data, tmp_path / name, *flags)
        validated.append(run["extra_state"]["best"])
        assert run["cfg"]["criterion"]["_name"] == name
        flags = ["--gen-subset", "valid", "--tokens-per-sample", "16"]
        found = run_eval_lm(data, tmp_path / name / "checkpoint_last.pt", *flags)
        evaluated.append(float(found["loss"]))
    assert validated[0] < math.log2(WORDS_OF_RUN) - 1
    assert validated[1] == pytest.approx(
        validated[0], rel=tolerance / 10 if tolerance < 1e-4 else tolerance
    )
    assert evaluated[1] == pytest.approx(evaluated[0], rel=tolerance)
