"""Losses, gradients, and logs of our criterions, compared with fairseq's."""

from __future__ import annotations

import copy
import json
import logging
import math
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from conftest import build_model, small_dictionary
from fairseq import utils
from fairseq.criterions import CRITERION_REGISTRY
from fairseq_runs import WORDS as WORDS_OF_RUN
from fairseq_runs import run_eval_lm, run_train, write_corpus

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.models.decoder import AlibiDecoder
from alibi_fairseq.plugin import linear_cross_entropy as kernel

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


def make_batch():
    """Return three sequences, two of them padded, with words of every cluster."""
    tokens = torch.randint(4, WORDS, (3, 18))
    targets = torch.randint(4, WORDS, (3, 18))
    for row, length in ((1, 11), (2, 15)):
        tokens[row, length:] = PAD
        targets[row, length:] = PAD
    lengths = torch.tensor([18, 11, 15])
    return {
        "net_input": {"src_tokens": tokens, "src_lengths": lengths},
        "target": targets,
        "ntokens": int(lengths.sum()),
    }


def build_criterion(name: str, sentence_avg: bool = False):
    task = SimpleNamespace(target_dictionary=small_dictionary(WORDS - 4))
    return CRITERION_REGISTRY[name](task, sentence_avg)


class Outcome(NamedTuple):
    """Results of a forward and a backward pass."""

    loss: torch.Tensor
    sample_size: int
    logs: dict
    gradients: dict[str, torch.Tensor | None]


def run_criterion(criterion, model, sample) -> Outcome:
    torch.manual_seed(7)  # the same dropout
    model.zero_grad()
    loss, sample_size, logs = criterion(model, sample)
    loss.sum().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return Outcome(loss.detach().sum(), sample_size, logs, gradients)


@pytest.mark.parametrize("sentence_avg", [False, True])
@pytest.mark.parametrize(("name", "case", "flags"), CASES, ids=IDS)
def test_criterion_matches_fairseq(name, case, flags, sentence_avg, monkeypatch):
    # fairseq computes logarithms in fp32, whatever the precision of the model.
    monkeypatch.setattr(utils, "log_softmax", lambda x, dim, onnx_trace: x.log_softmax(dim))
    model = build_model(*flags, words=WORDS - 4).double().train()
    sample = make_batch()
    fairseq_criterion = build_criterion(name, sentence_avg)
    expected = run_criterion(fairseq_criterion, copy.deepcopy(model), sample)
    chunked_criterion = build_criterion(f"chunked_{name}", sentence_avg)
    outcome = run_criterion(chunked_criterion, model, sample)
    torch.testing.assert_close(outcome.loss, expected.loss, rtol=1e-10, atol=1e-10)
    assert outcome.sample_size == expected.sample_size
    assert outcome.logs.keys() == expected.logs.keys()
    logged_loss = float(outcome.logs.pop("loss"))
    assert logged_loss == pytest.approx(float(expected.logs.pop("loss")), rel=1e-10)
    assert outcome.logs == expected.logs
    assert outcome.gradients.keys() == expected.gradients.keys()
    assert len(outcome.gradients) > 10
    for parameter, gradient in expected.gradients.items():
        torch.testing.assert_close(
            outcome.gradients[parameter],
            gradient,
            rtol=1e-10,
            atol=1e-10,
            msg=f"{case}: {parameter}",
        )
    model.eval()
    with torch.no_grad():
        expected_loss, _, _ = build_criterion(name)(model, sample)
        loss, _, _ = build_criterion(f"chunked_{name}")(model, sample)
        token_losses, _, _ = build_criterion(f"chunked_{name}")(model, sample, reduce=False)
    torch.testing.assert_close(loss, expected_loss.sum(), rtol=1e-10, atol=1e-10)
    assert token_losses.shape == (3 * 18,)
    torch.testing.assert_close(token_losses.sum(), loss, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["adaptive_loss", "chunked_adaptive_loss"])
def test_empty_cluster_has_no_gradient(name):
    model = build_model(*ADAPTIVE["plain"], words=WORDS - 4).train()
    sample = make_batch()
    sample["target"] = sample["target"] % 30  # all in the first cluster
    tails = {
        "decoder.adaptive_softmax.tail.0.0.weight",
        "decoder.adaptive_softmax.tail.0.2.weight",
        "decoder.adaptive_softmax.tail.1.0.weight",
        "decoder.adaptive_softmax.tail.1.2.weight",
    }
    gradients = run_criterion(build_criterion(name), model, sample).gradients
    unused = {parameter for parameter, gradient in gradients.items() if gradient is None}
    assert unused == tails


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
        build_criterion(name)(model, make_batch())


@pytest.mark.parametrize("change", ["bias", "output_layer"])
def test_output_layer_of_a_plugin_is_rejected(monkeypatch, change):
    """Otherwise the loss would silently be that of the scores without the change."""
    model = build_model(*DENSE["tied"], words=WORDS - 4)
    if change == "bias":
        model.decoder.output_projection = torch.nn.Linear(32, WORDS)
    else:
        monkeypatch.setattr(AlibiDecoder, "output_layer", lambda self, features: 2 * features)
    with pytest.raises(UserInputError, match="Use --criterion cross_entropy"):
        build_criterion("chunked_cross_entropy")(model, make_batch())


RUN = (
    "--task language_modeling --tokens-per-sample 16 --sample-break-mode complete --max-tokens 128 "
    "--max-update 24 --lr 0.01 --log-format simple --log-interval 1 --ddp-backend legacy_ddp "
    "--adaptive-softmax-cutoff 6,14 --no-share-decoder-input-output-embed --update-freq 2"
)


@pytest.mark.parametrize(
    ("precision", "tolerance"),
    [
        pytest.param("--seed 5", 1e-5, marks=pytest.mark.ci),
        pytest.param("--bf16", 0.01, marks=pytest.mark.slow),
        pytest.param("--memory-efficient-fp16", 0.01, marks=pytest.mark.slow),
    ],
)
def test_training_matches_fairseq_criterion(tmp_path, precision, tolerance):
    """Train with both criterions, and compare validation losses and fairseq's evaluations."""
    data = write_corpus(tmp_path, train=2000, valid=300)
    validation_losses = []
    evaluation_losses = []
    for name in ("adaptive_loss", "chunked_adaptive_loss"):
        flags = [*RUN.split(), *precision.split(), "--criterion", name]
        run = run_train(data, tmp_path / name, *flags)
        validation_losses.append(run["extra_state"]["best"])
        assert run["cfg"]["criterion"]["_name"] == name
        flags = ["--gen-subset", "valid", "--tokens-per-sample", "16"]
        evaluation = run_eval_lm(data, tmp_path / name / "checkpoint_last.pt", *flags)
        evaluation_losses.append(float(evaluation["loss"]))
    fairseq_loss, loss = validation_losses
    assert fairseq_loss < math.log2(WORDS_OF_RUN) - 1
    validation_tolerance = tolerance / 10 if tolerance < 1e-4 else tolerance
    assert loss == pytest.approx(fairseq_loss, rel=validation_tolerance)
    fairseq_loss, loss = evaluation_losses
    assert loss == pytest.approx(fairseq_loss, rel=tolerance)


@pytest.mark.ci
def test_logged_loss_of_many_passes_is_finite_in_fp16(tmp_path, caplog):
    """Eight passes of 4,096 tokens have more nats than fp16 can hold."""
    data = write_corpus(tmp_path, train=32768, valid=64)
    flags = [*RUN.split(), "--criterion", "adaptive_loss", "--memory-efficient-fp16"]
    passes = ["--max-tokens", "4096", "--update-freq", "8", "--max-update", "1"]
    passes += ["--fp16-init-scale", "1"]
    with caplog.at_level(logging.INFO):
        run_train(data, tmp_path / "run", *flags, *passes, "--log-format", "json")
    (line,) = [record.message for record in caplog.records if record.name == "train_inner"]
    logged = json.loads(line)
    nats = float(logged["wpb"]) * float(logged["loss"]) * math.log(2)
    assert torch.finfo(torch.float16).max < nats < math.inf
