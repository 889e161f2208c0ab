"""Generation with cached keys: ``python -m benchmarks.generate [--quick]``.

Measures tokens per second of greedy decoding after a prompt, in alternation: stock fairseq's
sinusoidal model, and ours with sinusoidal positions, with ALiBi, and with ALiBi in the modern
block, whose heads share keys and values. Weights are random. Ours read the prompt in one call.
fairseq's own generator, which ``fairseq-generate`` uses, does not do this: it feeds every model one
token at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from alibi_fairseq.models.decoder import AlibiDecoder

from . import common, models

BATCH = 4
VARIANTS = ("stock", "sinusoidal", "alibi", "alibi" + models.MODERN)
#: Number of prompt tokens and of new tokens.
PROMPTS = {
    "quick": ((64, 32), (512, 32)),
    "full": ((64, 128), (512, 128), (2048, 128)),
}


def main() -> None:
    common.run(__doc__, "generate", measure)


@torch.no_grad()
def decode(model, tokens: torch.Tensor, new_tokens: int) -> torch.Tensor:
    """Append the most probable next token to (B, T) tokens, ``new_tokens`` times."""
    state: dict = {}
    prompt = tokens.shape[1]
    # Stock fairseq's cache takes one new token per call. Ours takes the whole prompt in one call.
    first = prompt if isinstance(model.decoder, AlibiDecoder) else 1
    for end in range(first, prompt + new_tokens):
        scores, _ = model(tokens[:, :end], incremental_state=state)
        if end >= prompt:
            logits = model.get_normalized_probs((scores[:, -1:], None), log_probs=True, sample=None)
            tokens = torch.cat([tokens, logits[:, -1].argmax(-1, keepdim=True)], dim=1)
    return tokens


def measure(args) -> Iterator[dict]:
    """Yield one result record per prompt and variant."""
    device = common.device()
    shape = models.default_shape()
    prompts = PROMPTS["quick" if args.quick else "full"]
    longest = max(map(sum, prompts))
    dictionary = models.make_dictionary(shape.words)
    built = {name: models.build(name, shape, longest)[0].eval() for name in VARIANTS}
    for prompt, new_tokens in prompts:
        tokens = models.make_sample(dictionary, BATCH, prompt, device)["net_input"]["src_tokens"]
        functions = {}
        for name, model in built.items():
            functions[name] = partial(decode, model, tokens, new_tokens)
        yield from common.compare(
            functions,
            args.rounds,
            "generation",
            "stock",
            BATCH * new_tokens,
            model=shape.name,
            weights="random",
            prompt=prompt,
            new_tokens=new_tokens,
            batch=BATCH,
        )


if __name__ == "__main__":
    main()
