"""What has to hold for every position method, trained by the real fairseq-train."""

from __future__ import annotations

import copy
import gc
import math
import pickle

import pytest
import torch
from conftest import build_model, random_tokens, small_model
from fairseq_runs import run_eval_lm, run_train, write_corpus
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from alibi_fairseq.positions import METHODS, PositionConfig, build_position_method

LENGTH = 24
EVERY_METHOD = sorted(METHODS)


def loss_of(model, tokens):
    scores = model(tokens[:, :-1])[0]
    return torch.nn.functional.cross_entropy(scores.flatten(0, 1).float(), tokens[:, 1:].flatten())


@pytest.mark.parametrize("method", EVERY_METHOD)
def test_the_state_dict_holds_the_methods_parameters_and_nothing_else(method):
    prefix, plain = "decoder.embed_positions.", set(small_model("none").state_dict())
    for length in (LENGTH, 200):
        model = small_model(method, tokens_per_sample=length)
        model(random_tokens(1, LENGTH))
        added = {
            name.removeprefix(prefix): tuple(value.shape)
            for name, value in model.state_dict().items()
            if name not in plain
        }
        config = PositionConfig(64, 8, num_layers=2, train_length=length)
        parameters = build_position_method(method, config).named_parameters()
        assert added == {name: tuple(value.shape) for name, value in parameters}


@pytest.mark.parametrize("method", EVERY_METHOD)
@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_bf16_forward_and_backward_stay_near_fp32(method, backend):
    model = small_model(method, "--attention-backend", backend, tokens_per_sample=LENGTH)
    half, tokens = copy.deepcopy(model).bfloat16(), random_tokens(2, LENGTH + 1)
    losses = [loss_of(each, tokens) for each in (model, half)]
    assert losses[1].item() == pytest.approx(losses[0].item(), rel=0.02)
    for loss in losses:
        loss.backward()
    precise = {name: parameter.grad for name, parameter in model.named_parameters()}
    whole = torch.cat([gradient.flatten() for gradient in precise.values()]).norm()
    for name, parameter in half.named_parameters():
        assert parameter.grad.dtype == torch.bfloat16
        error = (parameter.grad.float() - precise[name]).norm()
        assert error <= 0.15 * precise[name].norm() + 1e-3 * whole, name


@pytest.fixture
def process_group(tmp_path):
    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1
    )
    yield
    gc.collect()  # a reducer must not outlive its group (alibi_fairseq/fairseq_fixes/stopping.py)
    distributed.destroy_process_group()


@pytest.mark.parametrize("method", EVERY_METHOD)
def test_every_parameter_is_used_in_every_step(method, process_group):
    # torch's DDP fails in the second step if some parameter had no gradient in the first.
    model = small_model(method, tokens_per_sample=LENGTH)
    parallel = DistributedDataParallel(model)
    for _ in range(2):
        model.zero_grad()
        loss_of(parallel, random_tokens(2, LENGTH + 1)).backward()
    for name, parameter in model.decoder.embed_positions.named_parameters():
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("method", EVERY_METHOD)
def test_activation_checkpointing_gives_the_same_gradients(method):
    plain = build_model("--arch", "alibi_lm_tiny", "--position-method", method).train()
    frugal = build_model(
        "--arch", "alibi_lm_tiny", "--position-method", method, "--checkpoint-activations"
    ).train()
    frugal.load_state_dict(plain.state_dict())
    tokens = random_tokens(2, LENGTH)
    for model in (plain, frugal):
        torch.manual_seed(3)
        loss_of(model, tokens).backward()
    expected = dict(plain.named_parameters())
    for name, parameter in frugal.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name].grad)


@pytest.mark.parametrize("method", EVERY_METHOD)
@torch.no_grad()
def test_copies_are_whole_and_independent(method):
    model, tokens = small_model(method, tokens_per_sample=LENGTH), random_tokens(1, LENGTH)
    before = model(tokens)[0]
    twins = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter))
    for twin in twins:
        assert torch.equal(twin(tokens)[0], before)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    torch.manual_seed(1)
    return write_corpus(tmp_path_factory.mktemp("data"), train=2500, valid=300)


def task_flags(method: str, length: int) -> list[str]:
    """The task a method is trained and evaluated with."""
    task = "segment_language_modeling" if method == "transformer_xl" else "language_modeling"
    return ["--task", task, "--tokens-per-sample", str(length)]


def train(method: str, corpus, folder, *flags: str, device: str = "--cpu") -> dict:
    """40 updates; every parameter stays finite, and something is learned."""
    memory = ["--mem-len", "16"] if method == "transformer_xl" else []
    schedule = ["--max-tokens", "256", "--lr", "0.02", "--max-update", "40"]
    options = [*task_flags(method, 16), *schedule, "--position-method", method, *memory, *flags]
    state = run_train(corpus, folder, *options, device=device)
    assert all(value.isfinite().all() for value in state["model"].values())
    assert state["extra_state"]["val_loss"] < 0.8 * math.log2(24)  # bits of a guess at random
    return state


@pytest.mark.parametrize("method", EVERY_METHOD)
def test_real_training_learns_and_evaluates(method, corpus, tmp_path):
    train(method, corpus, tmp_path)
    clamped = ["--model-overrides", "{'clamp_learned_positions': True}"]
    for length in (16, 64):
        flags = [*task_flags(method, length), "--gen-subset", "valid"]
        flags += clamped if method == "learned" else []
        found = run_eval_lm(corpus, tmp_path / "checkpoint_last.pt", *flags)
        assert math.isfinite(found["loss"])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["--fp16", "--bf16", "--memory-efficient-bf16"])
@pytest.mark.parametrize("method", EVERY_METHOD)
def test_real_training_on_a_gpu_in_half_precision(method, precision, corpus, tmp_path):
    train(method, corpus, tmp_path, precision, device="")
