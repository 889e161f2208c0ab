"""Training steps compared with other libraries' ALiBi: ``python -m benchmarks.peers [--quick]``.

Compares Hugging Face's BLOOM and x-transformers, with and without its flash option, with our model
(``pip install .[peers]``). All have the same layers, width, heads, vocabulary, tied embeddings, and
no dropout. Each library's own layer is used otherwise, so that biases and activations differ. A
step is forward, loss, backward, clipping, and the same Adam, in alternation in one process.

On the CPU: 4 layers, d=512, 8 heads, FFN 2048, 8,192 words, 3,072 tokens per step, fp32. On a GPU:
16 layers, d=1024, FFN 4096, 50,257 words, 9,216 tokens per step, bf16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import metadata

import torch
from fairseq.data import Dictionary
from fairseq.optim.adam import Adam
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from . import common, models

OURS = "alibi_fairseq"
#: Distribution of each peer, by name.
PEERS = {
    "bloom": "transformers",
    "x-transformers": "x-transformers",
    "x-transformers, flash": "x-transformers",
}


def main() -> None:
    lengths = {
        "type": int,
        "nargs": "+",
        "default": [512, 1024, 3072],
        "help": "training lengths in tokens (default: 512 1024 3072)",
    }
    common.run(__doc__, "peers", measure, lengths=lengths)


def default_shape() -> models.Shape:
    """Return the size to measure on this machine."""
    shape = models.DENSE_16 if common.on_gpu() else models.SMALL
    return replace(shape, flags=(*shape.flags, "--dropout", "0"))


def build(variant: str, length: int) -> tuple[nn.Module, Callable[[Tensor], Tensor], Dictionary]:
    """Build a model with random weights.

    Returns:
        The model, a function from (B, T) tokens to (B, T, V) logits, and the dictionary.
    """
    shape = default_shape()
    if variant == OURS:
        ours, dictionary = models.build("alibi", shape, length)
        return ours, lambda tokens: ours(tokens)[0], dictionary
    dictionary = models.make_dictionary(shape.words)

    def option(name: str) -> int:
        return int(shape.flags[shape.flags.index(name) + 1])

    layers = option("--decoder-layers")
    width = option("--decoder-embed-dim")
    heads = option("--decoder-attention-heads")
    assert option("--decoder-ffn-embed-dim") == 4 * width, "the peers' FFN has four times the width"
    if variant == "bloom":
        from transformers import BloomConfig, BloomForCausalLM

        config = BloomConfig(
            vocab_size=len(dictionary),
            hidden_size=width,
            n_layer=layers,
            n_head=heads,
            hidden_dropout=0.0,
            attention_dropout=0.0,
            use_cache=False,
        )
        bloom = BloomForCausalLM(config)
        return bloom, lambda tokens: bloom(input_ids=tokens).logits, dictionary
    from x_transformers import Decoder, TransformerWrapper

    decoder = Decoder(
        dim=width,
        depth=layers,
        heads=heads,
        attn_dim_head=width // heads,
        alibi_pos_bias=True,
        attn_flash=variant.endswith("flash"),
    )
    wrapper = TransformerWrapper(
        num_tokens=len(dictionary),
        max_seq_len=length,
        attn_layers=decoder,
        tie_embedding=True,
        use_abs_pos_emb=False,
    )
    return wrapper, wrapper, dictionary


def build_training_step(variant: str, length: int) -> tuple[nn.Module, Callable[[], None]]:
    """Return a model and the function of its training step."""
    device = common.device()
    with device:
        model, logits_of, dictionary = build(variant, length)
    model.to(device, common.precision(device)).train()
    optimizer = Adam(model.parameters(), lr=1e-4)
    batch = models.make_sample(dictionary, default_shape().batch(length), length, device)
    tokens = batch["net_input"]["src_tokens"]
    targets = batch["target"].flatten()

    def step() -> None:
        optimizer.zero_grad()
        logits = logits_of(tokens).flatten(0, 1)  # (B·T, V)
        cross_entropy(logits.float(), targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()

    return model, step


def measure(args) -> Iterator[dict]:
    """Yield one result record per length and variant."""
    shape = default_shape()
    for length in args.lengths:
        parameters = {}
        steps = {}
        for name in (OURS, *PEERS):
            model, steps[name] = build_training_step(name, length)
            parameters[name] = sum(p.numel() for p in model.parameters())
        batch = shape.batch(length)
        records = common.compare(
            steps,
            args.rounds,
            "training step",
            OURS,
            batch * length,
            model=shape.name,
            weights="random",
            length=length,
            batch=batch,
        )
        for record in records:
            name = record["variant"]
            record["parameters"] = parameters[name]
            record["ours_is_faster"] = round(1 / record["ratio"], 3)
            if name in PEERS:
                record["version"] = f"{PEERS[name]} {metadata.version(PEERS[name])}"
            yield record


if __name__ == "__main__":
    main()
