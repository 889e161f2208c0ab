"""Checkpoints in the format of the authors' fork, and its model by the published formulas."""

from __future__ import annotations

import argparse
import copy
import math
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from conftest import build_model
from torch import Tensor

from alibi_fairseq.positions import alibi_slopes

WORDS = 60  # and fairseq's four special symbols
WIDTH = 64
HEADS = 8
LAYERS = 2
LENGTH = 32
CUTOFFS = (24, 40)

# Some of what argparse held in the fork (fairseq 1.0.0a0, April 2021) for the README's command.
ARGS = {
    "tensorboard_logdir": None,
    "seed": 1,
    "cpu": False,
    "fp16": True,
    "user_dir": None,
    "criterion": "adaptive_loss",
    "optimizer": "nag",
    "lr_scheduler": "cosine",
    "task": "language_modeling",
    "max_tokens": 9216,
    "batch_size": None,
    "distributed_world_size": 8,
    "distributed_init_method": "tcp://localhost:17343",
    "ddp_backend": "legacy_ddp",
    "max_update": 286000,
    "update_freq": [1],
    "lr": [1.0],
    "stop_min_lr": 1e-09,
    "save_dir": "/checkpoint/somebody/alibi",
    "restore_file": "checkpoint_last.pt",
    "data": "/private/home/somebody/data-bin/wikitext-103",
    "arch": "transformer_lm_wiki103",
    "sample_break_mode": "none",
    "tokens_per_sample": LENGTH,
    "max_target_positions": LENGTH,
    "momentum": 0.99,
    "warmup_updates": 16000,
    "warmup_init_lr": 1e-07,
    "min_lr": 0.0001,
    "t_mult": 2.0,
    "lr_period_updates": 270000.0,
    "lr_shrink": 0.75,
    "activation_fn": "relu",
    "dropout": 0.3,
    "attention_dropout": 0.1,
    "relu_dropout": 0.1,
    "decoder_embed_dim": WIDTH,
    "decoder_output_dim": WIDTH,
    "decoder_input_dim": WIDTH,
    "decoder_ffn_embed_dim": 96,
    "decoder_layers": LAYERS,
    "decoder_attention_heads": HEADS,
    "decoder_normalize_before": True,
    "no_decoder_final_norm": True,
    "no_token_positional_embeddings": False,
    "decoder_learned_pos": False,
    "share_decoder_input_output_embed": False,
    "adaptive_input": True,
    "adaptive_input_factor": 4.0,
    "adaptive_input_cutoff": "24,40",
    "adaptive_softmax_cutoff": "24,40",
    "adaptive_softmax_factor": 4.0,
    "adaptive_softmax_dropout": 0.2,
    "tie_adaptive_weights": True,
    "tie_adaptive_proj": True,
    "decoder_layerdrop": 0.0,
    "decoder_layers_to_keep": None,
    "quant_noise_pq": 0.0,
    "layernorm_embedding": False,
}


@cache
def _weights() -> dict[str, Tensor]:
    """Return random weights with the names and shapes of stock fairseq."""
    flags = ["--arch", "transformer_lm", "--no-token-positional-embeddings"]
    flags += ["--decoder-normalize-before", "--no-decoder-final-norm"]
    for option in ("embed_dim", "input_dim", "output_dim", "ffn_embed_dim", "layers"):
        flags += [f"--decoder-{option.replace('_', '-')}", str(ARGS[f"decoder_{option}"])]
    flags += ["--decoder-attention-heads", str(HEADS)]
    flags += ["--adaptive-input", "--adaptive-input-cutoff", "24,40"]
    flags += ["--adaptive-softmax-cutoff", "24,40"]
    flags += ["--tie-adaptive-weights", "--tie-adaptive-proj"]
    model = build_model(*flags, words=WORDS)
    for parameter in model.parameters():  # biases and layer norms too
        torch.nn.init.normal_(parameter, std=0.1)
    return {**model.state_dict(), "decoder.embed_positions._float_tensor": torch.FloatTensor(1)}


def released_state(half: bool = False) -> dict:
    """Return a checkpoint of the fork with random weights."""
    weights = copy.deepcopy(_weights())
    if half:
        weights = {name: w.half() if w.is_floating_point() else w for name, w in weights.items()}
    return {
        "args": argparse.Namespace(**ARGS),
        "model": weights,
        # One entry for each time that the optimizer was set up.
        "optimizer_history": [
            {
                "criterion_name": "CrossEntropyCriterion",
                "optimizer_name": "FairseqAdam",
                "lr_scheduler_state": {},
                "num_updates": 1000,
            },
            {
                "criterion_name": "AdaptiveLoss",
                "optimizer_name": "FP16Optimizer",
                "lr_scheduler_state": {"best": 4.2},
                "num_updates": 286000,
            },
        ],
        "extra_state": {
            "train_iterator": {"version": 2, "epoch": 205, "iterations_in_epoch": 100},
            "val_loss": 4.3,
        },
        "last_optimizer_state": {"state": {0: {"momentum_buffer": torch.zeros(3)}}},
    }


def write_dictionary(path: Path, words: int = WORDS) -> Path:
    path.write_text("".join(f"w{i} {1000 - i}\n" for i in range(words)))
    return path


def log_probabilities(weights: dict[str, Tensor], tokens: Tensor) -> Tensor:
    """Return log-probabilities, (B, T, V) in float64, by the published formulas.

    Args:
        weights: state dict of a released checkpoint.
        tokens: token IDs, (B, T).
    """
    w = {name.removeprefix("decoder."): tensor.double() for name, tensor in weights.items()}
    bounds = [0, *CUTOFFS, WORDS + 4]
    bands = [w[f"embed_tokens.embeddings.{i}.0.weight"] for i in range(3)]
    projections = [w[f"embed_tokens.embeddings.{i}.1.weight"] for i in range(3)]
    table = torch.cat([band @ proj.T for band, proj in zip(bands, projections)])  # (V, C)
    x = math.sqrt(WIDTH) * table[tokens]  # (B, T, C)
    length = tokens.shape[1]
    size = WIDTH // HEADS
    slopes = alibi_slopes(HEADS).double()
    bias = slopes[:, None, None] * torch.arange(length)  # (H, 1, T)
    mask = bias + torch.full((length, length), -torch.inf, dtype=torch.float64).triu(1)
    for i in range(LAYERS):
        part = {k.removeprefix(f"layers.{i}."): v for k, v in w.items() if f"layers.{i}." in k}

        def linear(name, x, part=part):
            return x @ part[f"{name}.weight"].T + part[f"{name}.bias"]

        def norm(name, x, part=part):
            return F.layer_norm(x, (WIDTH,), part[f"{name}.weight"], part[f"{name}.bias"])

        def heads(x):
            return x.view(*x.shape[:2], HEADS, size).transpose(1, 2)  # (B, H, T, D)

        y = norm("self_attn_layer_norm", x)
        q, k, v = (heads(linear(f"self_attn.{p}_proj", y)) for p in "qkv")
        attention = (q @ k.transpose(2, 3) / math.sqrt(size) + mask).softmax(-1)
        y = (attention @ v).transpose(1, 2).reshape(x.shape)
        x = x + linear("self_attn.out_proj", y)
        x = x + linear("fc2", linear("fc1", norm("final_layer_norm", x)).relu())
    clusters = x @ w["adaptive_softmax.head.class_proj.weight"].T
    # The first band is as wide as the model: on the way out it has no projection.
    head = torch.cat([x @ bands[0].T, clusters], dim=-1).log_softmax(-1)
    parts = [head[..., : bounds[1]]]
    for i in (1, 2):
        tail = (x @ projections[i] @ bands[i].T).log_softmax(-1)
        parts.append(tail + head[..., bounds[1] + i - 1, None])
    return torch.cat(parts, dim=-1)
