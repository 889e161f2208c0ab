"""Training steps beside other libraries' ALiBi: ``python -m benchmarks.peers [--quick]``.

The same shape with Hugging Face's BLOOM and with x-transformers, with and without its flash option
(``pip install .[peers]``): layers, width, heads, vocabulary, tied embeddings, no dropout; each
library's own layer otherwise, so that biases and activations differ. Forward, loss, backward,
clipping and the same Adam, in turns in one process. In pieces, each with our model as its baseline:

    python -m benchmarks.peers --add --lengths 3072 --variants bloom

On the CPU: 4 layers, d=512, 8 heads, FFN 2048, 8 thousand words, 3,072 tokens per step, fp32. On a
GPU: 16 layers, d=1024, FFN 4096, 50,257 words, 9,216 tokens per step, bf16.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata

import torch
from fairseq.optim.adam import Adam
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from . import common, models
from .output_layer import DENSE_16

OURS = "alibi_fairseq"
#: Name and distribution of each peer.
PEERS = {
    "bloom": "transformers",
    "x-transformers": "x-transformers",
    "x-transformers, flash": "x-transformers",
}


def main() -> None:
    parser = common.parser(__doc__, "peers")
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 3072])
    parser.add_argument("--variants", nargs="+", choices=list(PEERS), default=list(PEERS))
    args = parser.parse_args()
    common.prepare(args)
    began = time.time()
    cells = [cell for length in args.lengths for cell in measure(args, length)]
    common.save(args, "peers", cells, began)


def shape() -> models.Shape:
    chosen = DENSE_16 if common.device().type == "cuda" else models.SMALL
    return replace(chosen, flags=(*chosen.flags, "--dropout", "0"))


class Peer(nn.Module):
    """A library's model as a function from (B, T) tokens to (B, T, V) scores."""

    def __init__(self, model: nn.Module, scores: Callable[[nn.Module, Tensor], Tensor]):
        super().__init__()
        self.model = model
        self.scores = scores

    def forward(self, tokens: Tensor) -> Tensor:
        return self.scores(self.model, tokens)


def sizes() -> dict[str, int]:
    """Layers, width, feed-forward width and heads of the shape."""
    flags = shape().flags
    names = ("layers", "embed-dim", "ffn-embed-dim", "attention-heads")
    return {name: int(flags[flags.index(f"--decoder-{name}") + 1]) for name in names}


def build(variant: str, length: int) -> tuple[nn.Module, object]:
    """A model with random weights, and fairseq's dictionary of its words."""
    ours, dictionary = models.build("alibi", shape(), length)
    size = sizes()
    width, words = size["embed-dim"], len(dictionary)
    assert size["ffn-embed-dim"] == 4 * width, (
        "the peers' feed-forward layers are four times as wide"
    )
    if variant == OURS:
        return Peer(ours, lambda model, tokens: model(tokens)[0]), dictionary
    if variant == "bloom":
        from transformers import BloomConfig, BloomForCausalLM

        config = BloomConfig(
            vocab_size=words,
            hidden_size=width,
            n_layer=size["layers"],
            n_head=size["attention-heads"],
            hidden_dropout=0.0,
            attention_dropout=0.0,
            use_cache=False,
        )
        return Peer(
            BloomForCausalLM(config), lambda model, tokens: model(input_ids=tokens).logits
        ), dictionary
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(
        dim=width,
        depth=size["layers"],
        heads=size["attention-heads"],
        attn_dim_head=width // size["attention-heads"],
        alibi_pos_bias=True,
        attn_flash=variant.endswith("flash"),
    )
    wrapped = TransformerWrapper(
        num_tokens=words,
        max_seq_len=length,
        attn_layers=layers,
        tie_embedding=True,
        use_abs_pos_emb=False,
    )
    return Peer(wrapped, lambda model, tokens: model(tokens)), dictionary


def stepper(variant: str, length: int) -> tuple[nn.Module, Callable[[], None]]:
    """The model and a function that takes one training step."""
    where = common.device()
    model, dictionary = build(variant, length)
    model.to(where, common.precision(where)).train()
    optimiser = Adam(model.parameters(), lr=1e-4)
    batch = models.sample(dictionary, shape().batch(length), length, where)
    tokens, targets = batch["net_input"]["src_tokens"], batch["target"].flatten()

    def step() -> None:
        optimiser.zero_grad()
        scores = model(tokens).flatten(0, 1)
        cross_entropy(scores.float(), targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimiser.step()

    return model, step


def measure(args, length: int) -> list[dict]:
    """One cell per variant."""
    built = {name: stepper(name, length) for name in (OURS, *args.variants)}
    steps = {name: step for name, (_, step) in built.items()}
    times = common.seconds_in_turns(steps, args.rounds, f"peers, {length} tokens")
    batch = shape().batch(length)
    case = {"model": shape().name, "weights": "random", "length": length, "batch": batch}
    cells = common.cells_of(times, "training step", OURS, batch * length, **case)
    for cell in cells:
        name = cell["variant"]
        cell["parameters"] = sum(p.numel() for p in built[name][0].parameters())
        cell["ours_is_faster"] = round(common.ratio(times, OURS, name), 3)
        if name in PEERS:
            cell["version"] = f"{PEERS[name]} {metadata.version(PEERS[name])}"
    return cells


if __name__ == "__main__":
    main()
