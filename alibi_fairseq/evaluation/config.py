"""Settings of an evaluation, as values and as options of ``alibi-fairseq eval``."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from itertools import product
from typing import TYPE_CHECKING

from ..options import option, option_flag
from .option_types import (
    format_items,
    format_strides,
    parse_count,
    parse_device,
    parse_gigabytes,
    parse_lengths,
    parse_overrides,
    parse_splits,
    parse_strides,
)

if TYPE_CHECKING:
    import torch

#: Names of the types of weights and activations.
PRECISIONS = ("fp32", "bf16", "fp16")
#: Document boundaries by name.
DOCUMENT_BOUNDARIES = {
    "empty-lines": (
        "an empty line ends a document, as `prepare text` and `cc100-roberta` write them"
    ),
    "titles": "a line of the form ' = Title = ' begins a document, as in WikiText",
}
#: Headings of the options in the help.
MODELS_AND_DATA = "models and data"
MEASUREMENT = "measurement"
CHECKPOINTS = "only for fairseq checkpoints"
COMPUTATION = "computation"
_BOUNDARIES_HELP = "; ".join(f"{name}: {rule}" for name, rule in DOCUMENT_BOUNDARIES.items())


def find_dtype(precision: str) -> torch.dtype:
    """Return the type of weights and activations with a name of :data:`PRECISIONS`."""
    import torch

    return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """Settings of an evaluation: what to measure, and how.

    Each field is an option of ``alibi-fairseq eval``, which its help describes. A sweep measures
    every combination of split, length, and stride.

    Attributes:
        strides: tokens scored per window. None stands for the whole window.
        per_document: key of :data:`DOCUMENT_BOUNDARIES`, or None to treat a split as one document.
        device: ``auto``, or the name of a device in torch.
        memory_gb: memory budget in 10^9 bytes, or None for the default of the device.
    """

    lengths: tuple[int, ...] = option(
        "evaluation lengths L: inputs of a window in tokens, for example 512,1024,3072",
        required=True,
        type=parse_lengths,
        write=format_items,
        metavar="L,…",
        group=MEASUREMENT,
    )
    strides: tuple[int | None, ...] = option(
        "strides S: tokens scored per window, for example full,64; full: all L, in windows that do "
        "not overlap; a scored token has a context of L - S + 1 to L tokens, and less at the start "
        "of the split (default: full)",
        (None,),
        type=parse_strides,
        write=format_strides,
        metavar="S,…",
        group=MEASUREMENT,
    )
    splits: tuple[str, ...] = option(
        "splits to evaluate, for example valid,test (default: valid)",
        ("valid",),
        flag="--subset",
        type=parse_splits,
        write=format_items,
        metavar="SPLIT,…",
        group=CHECKPOINTS,
    )
    overrides: dict | None = option(
        "values that replace options of the model, or of config.json in a Hugging Face folder, for "
        "example "
        '\'{"attention_backend": "eager"}\'',
        None,
        flag="--model-overrides",
        type=parse_overrides,
        write=json.dumps,
        metavar="JSON",
        group=MODELS_AND_DATA,
    )
    per_document: str | None = option(
        "also record the loss of each document, and count --score-from and --score-to within "
        f"documents; {_BOUNDARIES_HELP} (without a value: empty-lines; a documents.json next to "
        "the data takes precedence)",
        None,
        nargs="?",
        const="empty-lines",
        choices=list(DOCUMENT_BOUNDARIES),
        group=MEASUREMENT,
    )
    score_from: int | None = option(
        "number of tokens at the start of the split, or of each document, that are not scored, so "
        "that the same tokens are scored at every length and stride; no window reaches into the "
        "previous document",
        None,
        type=parse_count,
        metavar="N",
        group=MEASUREMENT,
    )
    score_to: int | None = option(
        "number of tokens at the start of the split, or of each document, after which none is "
        "scored",
        None,
        type=parse_count,
        metavar="M",
        group=MEASUREMENT,
    )
    precision: str = option(
        "precision of weights and activations",
        "fp32",
        choices=list(PRECISIONS),
        group=COMPUTATION,
    )
    device: str = option(
        "device: cpu, cuda, cuda:1, …; auto: a GPU if there is one",
        "auto",
        type=parse_device,
        metavar="DEVICE",
        group=COMPUTATION,
    )
    memory_gb: float | None = option(
        "memory budget of a forward pass in GB, which determines the batch size (default: 2 on a "
        "CPU, half the memory of a GPU)",
        None,
        type=parse_gigabytes,
        metavar="GB",
        group=COMPUTATION,
    )

    @property
    def memory_budget(self) -> int | None:
        """Bytes that a forward pass may take, or None for the default of the device."""
        if self.memory_gb is None:
            return None
        return int(self.memory_gb * 1e9)

    @property
    def has_scored_range(self) -> bool:
        """True if only a range of positions is scored. Windows then restart in each document."""
        return self.score_from is not None or self.score_to is not None

    def windows(self) -> list[tuple[int, int]]:
        """Return length and stride, in tokens, of the windows on a text, each pair once."""
        pairs: dict[tuple[int, int], None] = {}
        for length, stride in product(self.lengths, self.strides):
            pairs[length, length if stride is None else stride] = None
        return list(pairs)

    def flags(self) -> list[str]:
        """Return the options of ``alibi-fairseq eval`` that stand for these settings.

        Lengths, strides, and splits are always among them, to be read in logs.
        """
        flags: list[str] = []
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, tuple) or value not in (field.default, {}):
                write = field.metadata.get("write", str)
                flags += [str(option_flag(field)), write(value)]
        return flags
