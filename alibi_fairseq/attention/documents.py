"""Where the documents of a window begin, from its tokens: ``--block-diagonal``.

fairseq's language models read ``</s>`` in front of the first token of a text and learn to predict it
behind the last one. In a window that holds several documents the ``</s>`` between two of them is both,
and as an input it belongs to the document that it begins.

Shapes: B batch, S tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

#: What ends a document: nothing, every ``</s>`` (a document per line), or an empty line, which is a
#: ``</s>`` behind another one (the rule of ``--sample-break-mode complete_doc``).
SEPARATORS = ("none", "eos", "empty_line")


def document_starts(tokens: Tensor, eos: int, separator: str) -> Tensor | None:
    """Position of the first token of the document that each token belongs to.

    Args:
        tokens: (B, S) input tokens. Those before the first separator are one document.
        eos: number of ``</s>``.
        separator: one of ``SEPARATORS``.

    Returns:
        (B, S) int64, never decreasing along S; None if nothing separates documents.
    """
    if separator == "none":
        return None
    begins = tokens.eq(eos)
    if separator == "empty_line":
        begins = begins & pad(begins, (1, -1))
    places = torch.arange(tokens.shape[1], device=tokens.device)
    return torch.where(begins, places, 0).cummax(dim=1).values
