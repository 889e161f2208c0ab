"""Training steps beside other libraries' ALiBi: ``python -m benchmarks.peers [--quick]``.

The same shape with Hugging Face's BLOOM and with x-transformers, with and without its flash option
(``pip install .[peers]``): layers, width, heads, vocabulary, tied embeddings, no dropout; each
library's own layer otherwise, so that biases and activations differ. Forward, loss, backward,
clipping and the same Adam, in turns in one process.

On the CPU: 4 layers, d=512, 8 heads, FFN 2048, 8 thousand words, 3,072 tokens per step, fp32. On a
GPU: 16 layers, d=1024, FFN 4096, 50,257 words, 9,216 tokens per step, bf16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import metadata

import torch
from fairseq.optim.adam import Adam
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from . import common, models

OURS = "alibi_fairseq"
#: Name and distribution of each peer.
PEERS = {
    "bloom": "transformers",
    "x-transformers": "x-transformers",
    "x-transformers, flash": "x-transformers",
}


def main() -> None:
    lengths = {"type": int, "nargs": "+", "default": [512, 1024, 3072]}
    common.run(__doc__, "peers", measure, lengths=lengths)


def shape() -> models.Shape:
    chosen = models.DENSE_16 if common.device().type == "cuda" else models.SMALL
    return replace(chosen, flags=(*chosen.flags, "--dropout", "0"))


def build(variant: str, length: int) -> tuple[nn.Module, Callable[[Tensor], Tensor], object]:
    """A model with random weights, how (B, T) tokens give (B, T, V) scores, and the dictionary."""
    ours, dictionary = models.build("alibi", shape(), length)
    if variant == OURS:
        return ours, lambda tokens: ours(tokens)[0], dictionary
    flags, names = shape().flags, ("layers", "embed-dim", "ffn-embed-dim", "attention-heads")
    depth, width, inner, heads = (int(flags[flags.index(f"--decoder-{n}") + 1]) for n in names)
    assert inner == 4 * width, "the peers' feed-forward layers are four times as wide"
    if variant == "bloom":
        from transformers import BloomConfig, BloomForCausalLM

        config = BloomConfig(
            vocab_size=len(dictionary),
            hidden_size=width,
            n_layer=depth,
            n_head=heads,
            hidden_dropout=0.0,
            attention_dropout=0.0,
            use_cache=False,
        )
        bloom = BloomForCausalLM(config)
        return bloom, lambda tokens: bloom(input_ids=tokens).logits, dictionary
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(
        dim=width,
        depth=depth,
        heads=heads,
        attn_dim_head=width // heads,
        alibi_pos_bias=True,
        attn_flash=variant.endswith("flash"),
    )
    wrapped = TransformerWrapper(
        num_tokens=len(dictionary),
        max_seq_len=length,
        attn_layers=layers,
        tie_embedding=True,
        use_abs_pos_emb=False,
    )
    return wrapped, wrapped, dictionary


def stepper(variant: str, length: int) -> tuple[nn.Module, Callable[[], None]]:
    """The model and a function that takes one training step."""
    where = common.device()
    model, scores_of, dictionary = build(variant, length)
    model.to(where, common.precision(where)).train()
    optimiser = Adam(model.parameters(), lr=1e-4)
    batch = models.sample(dictionary, shape().batch(length), length, where)
    tokens, targets = batch["net_input"]["src_tokens"], batch["target"].flatten()

    def step() -> None:
        optimiser.zero_grad()
        scores = scores_of(tokens).flatten(0, 1)
        cross_entropy(scores.float(), targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimiser.step()

    return model, step


def measure(args) -> Iterator[dict]:
    """One cell per length and variant."""
    for length in args.lengths:
        built = {name: stepper(name, length) for name in (OURS, *PEERS)}
        steps = {name: step for name, (_, step) in built.items()}
        batch = shape().batch(length)
        case = {"model": shape().name, "weights": "random", "length": length, "batch": batch}
        for cell in common.compare(
            steps, args.rounds, "training step", OURS, batch * length, **case
        ):
            name = cell["variant"]
            cell["parameters"] = sum(p.numel() for p in built[name][0].parameters())
            cell["ours_is_faster"] = round(1 / cell["ratio"], 3)
            if name in PEERS:
                cell["version"] = f"{PEERS[name]} {metadata.version(PEERS[name])}"
            yield cell


if __name__ == "__main__":
    main()
