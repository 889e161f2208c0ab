"""Generation with cached keys: ``python -m benchmarks.generate [--quick]``.

Tokens per second of greedy decoding after a prompt, stock fairseq's sinusoidal model beside ours
with sinusoidal positions and with ALiBi, in turns. Weights are as initialised.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from alibi_fairseq.models.decoder import AlibiDecoder

from . import common, models

VARIANTS = ("stock", "sinusoidal", "alibi")
#: Tokens of the prompt, and new ones.
PROMPTS = {
    "quick": ((64, 32), (512, 32)),
    "full": ((64, 128), (512, 128), (2048, 128)),
}


def main() -> None:
    common.run(__doc__, "generate", measure)


@torch.no_grad()
def decode(model, tokens: torch.Tensor, new: int) -> torch.Tensor:
    """Append the most probable next token, ``new`` times."""
    state: dict = {}
    # Stock fairseq's cache takes one new token per call; ours takes the prompt in one.
    first = tokens.shape[1] if isinstance(model.decoder, AlibiDecoder) else 1
    prompt = tokens.shape[1]
    for end in range(first, prompt + new):
        scores, _ = model(tokens[:, :end], incremental_state=state)
        if end >= prompt:
            logits = model.get_normalized_probs((scores[:, -1:], None), log_probs=True, sample=None)
            tokens = torch.cat([tokens, logits[:, -1].argmax(-1, keepdim=True)], dim=1)
    return tokens


def measure(args) -> Iterator[dict]:
    """One cell per prompt and variant."""
    where, shape = common.device(), models.shape()
    for prompt, new in PROMPTS["quick" if args.quick else "full"]:
        functions = {}
        for name in VARIANTS:
            model, dictionary = models.build(name, shape, prompt + new)
            model.to(where, common.precision(where)).eval()
            tokens = models.sample(dictionary, 4, prompt, where)["net_input"]["src_tokens"]
            functions[name] = partial(decode, model, tokens, new)
        case = {"model": shape.name, "weights": "random", "prompt": prompt, "new_tokens": new}
        yield from common.compare(
            functions, args.rounds, "generation", "stock", 4 * new, **case, batch=4
        )


if __name__ == "__main__":
    main()
