"""Properties of every position method, also in training with ``fairseq-train``."""

from __future__ import annotations

import copy
import gc
import math
import pickle

import pytest
import torch
from conftest import random_tokens, small_model
from fairseq_runs import run_eval_lm, run_train, write_corpus
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from alibi_fairseq.positions import METHODS

LENGTH = 24
EVERY_METHOD = sorted(METHODS)


def loss_of(model, tokens):
    scores = model(tokens[:, :-1])[0]
    return torch.nn.functional.cross_entropy(scores.flatten(0, 1).float(), tokens[:, 1:].flatten())


#: Shapes of the parameters that a method adds to a model with 8 heads, width 64, and a training
#: length of 24. Every layer has the parameters with ``N``, the number of the layer.
METHOD_PARAMETERS = {
    "learned": {"weight": (26, 64)},
    "t5": {"relative_attention_bias.weight": (32, 8)},
    "kerple": {"log_p": (8,), "log_a": (8,)},
    "transformer_xl": {"u": (8, 8), "v": (8, 8), "layers.N.weight": (64, 64)},
    "fox": {"layers.N.weight": (8, 64), "layers.N.bias": (8,)},
    "fire": {
        "layers.N.c": (1,),
        "layers.N.log_threshold": (1,),
        "layers.N.hidden.weight": (32, 1),
        "layers.N.hidden.bias": (32,),
        "layers.N.out.weight": (8, 32),
        "layers.N.out.bias": (8,),
    },
    "cope": {"layers.N.vectors": (8, 64)},
    "bam": {"layers.N.alpha": (8,), "layers.N.beta": (8,)},
    "grape_a_qk": {
        "layers.N.strength": (8,),
        "layers.N.query_vectors": (8, 8),
        "layers.N.key_vectors": (8, 8),
    },
    "inkling": {"layers.N.mixing.weight": (128, 64), "layers.N.profiles": (16, 1024)},
}


@pytest.mark.parametrize(
    ("method", "length"),
    [(method, LENGTH) for method in EVERY_METHOD]
    + [(method, 200) for method in EVERY_METHOD if method != "learned"],
)
def test_state_dict_adds_only_method_parameters(method, length):
    """Their shapes depend on the training length only for ``learned``."""
    expected = {}
    for name, shape in METHOD_PARAMETERS.get(method, {}).items():
        for layer in ("0", "1"):
            expected[f"decoder.embed_positions.{name.replace('N', layer)}"] = shape
    shared_names = small_model("none").state_dict().keys()
    model = small_model(method, tokens_per_sample=length)
    model(random_tokens(1, LENGTH))
    state = model.state_dict()
    shapes = {name: tuple(state[name].shape) for name in state.keys() - shared_names}
    assert shapes == expected


#: Standard deviation of the parameters in bf16, 1 by default. The bias of ``inkling`` is a product
#: of two of them and the input, and bf16 would round scores of size 30 by 0.1.
PARAMETER_SIZE = {"inkling": 0.2}


@pytest.mark.parametrize("method", EVERY_METHOD)
@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_bf16_is_close_to_fp32(method, backend):
    model = small_model(method, "--attention-backend", backend, tokens_per_sample=LENGTH)
    for parameter in model.decoder.embed_positions.parameters():
        # Positions then change the loss.
        torch.nn.init.normal_(parameter, std=PARAMETER_SIZE.get(method, 1.0))
    half = copy.deepcopy(model).bfloat16()
    tokens = random_tokens(2, LENGTH + 1)
    loss = loss_of(model, tokens)
    half_loss = loss_of(half, tokens)
    assert half_loss.item() == pytest.approx(loss.item(), rel=0.02)
    loss.backward()
    half_loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    total_norm = torch.cat([gradient.flatten() for gradient in gradients.values()]).norm()
    for name, parameter in half.named_parameters():
        assert parameter.grad.dtype == torch.bfloat16
        error = (parameter.grad.float() - gradients[name]).norm()
        assert error <= 0.15 * gradients[name].norm() + 1e-3 * total_norm, name


@pytest.fixture
def process_group(tmp_path):
    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1
    )
    yield
    # A reducer must not outlive its group (alibi_fairseq/plugin/patches/distributed.py).
    gc.collect()
    distributed.destroy_process_group()


@pytest.mark.parametrize("method", EVERY_METHOD)
def test_every_parameter_is_used_in_every_step(method, process_group):
    # PyTorch's DDP fails in the second step if a parameter had no gradient in the first one.
    model = small_model(method, tokens_per_sample=LENGTH)
    parallel = DistributedDataParallel(model)
    for _ in range(2):
        model.zero_grad()
        loss_of(parallel, random_tokens(2, LENGTH + 1)).backward()
    for name, parameter in model.decoder.embed_positions.named_parameters():
        assert parameter.grad.abs().max() > 0, name


MODELS = [(method,) for method in EVERY_METHOD]
MODELS.append(("alibi", "--score-scaling", "ssmax"))


@pytest.mark.parametrize("checkpointing", ["--checkpoint-activations", "--offload-activations"])
@pytest.mark.parametrize("flags", MODELS, ids=" ".join)
def test_activation_checkpointing_keeps_gradients(flags, checkpointing):
    options = (*flags, "--dropout", "0.1")
    plain = small_model(*options, tokens_per_sample=LENGTH).train()
    checkpointed = small_model(*options, checkpointing, tokens_per_sample=LENGTH).train()
    checkpointed.load_state_dict(plain.state_dict())
    tokens = random_tokens(2, LENGTH)
    for model in (plain, checkpointed):
        torch.manual_seed(3)
        loss_of(model, tokens).backward()
    for parameter, expected in zip(checkpointed.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, expected.grad)


@pytest.mark.parametrize(
    "flags",
    [("t5",), ("kerple",), ("transformer_xl",), ("alibi", "--alibi-slopes", "trainable")],
    ids=" ".join,
)
def test_checkpointed_layers_share_parameters_under_ddp(flags, process_group):
    plain = small_model(*flags, tokens_per_sample=LENGTH)
    checkpointed = small_model(*flags, "--checkpoint-activations", tokens_per_sample=LENGTH)
    checkpointed.load_state_dict(plain.state_dict())
    parallel = DistributedDataParallel(checkpointed)
    tokens = random_tokens(2, LENGTH)
    for model in (plain, parallel):
        loss_of(model, tokens).backward()
    for parameter, expected in zip(checkpointed.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, expected.grad)


@pytest.mark.parametrize("method", EVERY_METHOD)
@torch.no_grad()
def test_copies_are_complete_and_independent(method):
    model = small_model(method, tokens_per_sample=LENGTH)
    tokens = random_tokens(1, LENGTH)
    scores = model(tokens)[0]
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter))
    for copied_model in copies:
        assert torch.equal(copied_model(tokens)[0], scores)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    torch.manual_seed(1)
    return write_corpus(tmp_path_factory.mktemp("data"), train=2500, valid=300)


def task_flags(method: str, length: int) -> list[str]:
    """Return the flags of the task that trains and evaluates a method."""
    task = "segment_language_modeling" if method == "transformer_xl" else "language_modeling"
    return ["--task", task, "--tokens-per-sample", str(length)]


def train(method: str, corpus, folder, *flags: str, device: str = "--cpu") -> dict:
    """Train for 40 updates, and check that weights are finite and that the model has learned."""
    memory = ["--mem-len", "16"] if method == "transformer_xl" else []
    schedule = ["--max-tokens", "256", "--lr", "0.02", "--max-update", "40"]
    options = [*task_flags(method, 16), *schedule, "--position-method", method, *memory, *flags]
    state = run_train(corpus, folder, *options, device=device)
    assert all(value.isfinite().all() for value in state["model"].values())
    assert state["extra_state"]["val_loss"] < 0.8 * math.log2(24)  # bits of a random guess
    return state


@pytest.mark.ci
@pytest.mark.parametrize("method", EVERY_METHOD)
def test_every_method_trains_and_evaluates(method, corpus, tmp_path):
    train(method, corpus, tmp_path)
    flags = [*task_flags(method, 64), "--gen-subset", "valid"]
    if method == "learned":
        flags += ["--model-overrides", "{'clamp_learned_positions': True}"]
    evaluation = run_eval_lm(corpus, tmp_path / "checkpoint_last.pt", *flags)
    assert math.isfinite(evaluation["loss"])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["--fp16", "--bf16", "--memory-efficient-bf16"])
@pytest.mark.parametrize("method", EVERY_METHOD)
def test_every_method_trains_on_gpu_in_half_precision(method, precision, corpus, tmp_path):
    train(method, corpus, tmp_path, precision, device="")
