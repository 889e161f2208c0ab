"""Validation of the prompts that a language model continues."""

from __future__ import annotations

from fairseq.sequence_generator import SequenceGenerator

from ..errors import UserInputError
from . import patch_method


@patch_method(SequenceGenerator, "generate")
def reject_cut_prompts(generate, generator, models, sample, prefix_tokens=None, **options):
    """Reject prompts that fairseq would return cut, without a continuation.

    fairseq ends at the first ``</s>``, even inside a prompt, and ``--max-len-b`` also limits the
    prompt. It is 200 by default (facebookresearch/fairseq#2134).
    """
    # A prefix of a translation may be a whole sentence, whose end is </s>.
    if prefix_tokens is not None and not generator.model.has_encoder():
        check_prompts(generator, sample, prefix_tokens)
    return generate(generator, models, sample, prefix_tokens=prefix_tokens, **options)


def check_prompts(generator, sample, prompts) -> None:
    """Raise UserInputError if generation would end inside a prompt or at its end.

    Args:
        prompts: (B, T) token IDs, padded on the right.
    """
    if prompts.eq(generator.eos).any():
        raise UserInputError(
            "A prompt contains a newline (</s>), at which generation ends. Pass a single line."
        )
    if generator.match_source_len:
        return
    source_length = sample["net_input"]["src_tokens"].size(1)
    limit = int(generator.max_len_a * source_length + generator.max_len_b)
    longest = int(prompts.ne(generator.pad).sum(dim=1).max())
    if longest >= limit:
        raise UserInputError(
            f"A prompt has {longest} tokens, but the limit is {limit} tokens for a prompt with its "
            f"continuation. Pass max_len_b (--max-len-b) above {longest}."
        )
