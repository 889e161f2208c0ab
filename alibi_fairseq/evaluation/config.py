"""Settings of an evaluation, as values and as options of ``alibi-fairseq eval``."""

from __future__ import annotations

import json
from dataclasses import fields
from itertools import product

from pydantic.dataclasses import dataclass

from ..options import names, option, option_flag
from .option_types import (
    STRICT,
    Device,
    DocumentBoundaries,
    Gigabytes,
    Length,
    NonEmptyListOrItem,
    Overrides,
    Precision,
    Stride,
    TokenCount,
)

#: What finds the documents of a text, by name.
DOCUMENT_BOUNDARIES: dict[DocumentBoundaries, str] = {
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


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SweepConfig:
    """Settings of an evaluation: what to measure, and how.

    Each field is an option of ``alibi-fairseq eval``, which its help describes. Options that
    ``compare`` has as well are declared only here. A sweep measures every combination of split,
    length, and stride.

    Attributes:
        strides: tokens scored per window; :meth:`windows` says how many ``full`` are.
        per_document: key of :data:`DOCUMENT_BOUNDARIES`, or None to treat a split as one document.
        device: ``auto``, or the name of a device in torch.
        memory_gb: memory budget in 10^9 bytes, or None for the default of the device.
    """

    lengths: NonEmptyListOrItem[Length] = option(
        "evaluation lengths L: inputs of a window in tokens, for example 512,1024,3072",
        required=True,
        type=names,
        metavar="L,…",
        group=MEASUREMENT,
    )
    strides: NonEmptyListOrItem[Stride] = option(
        "strides S: tokens scored per window, for example full,64; full: the evaluation length L, "
        "in windows that do not overlap; a scored token sees a context of L - S + 1 to L tokens, "
        "and less at the start of the split",
        ("full",),
        type=names,
        metavar="S,…",
        group=MEASUREMENT,
    )
    splits: NonEmptyListOrItem[str] = option(
        "splits to evaluate, for example valid,test",
        ("valid",),
        flag="--subset",
        type=names,
        metavar="SPLIT,…",
        group=CHECKPOINTS,
    )
    overrides: Overrides | None = option(
        "values that replace options of the model, or of config.json in a Hugging Face folder, for "
        'example \'{"attention_backend": "eager"}\'',
        None,
        flag="--model-overrides",
        metavar="JSON",
        group=MODELS_AND_DATA,
    )
    per_document: DocumentBoundaries | None = option(
        "also record the loss of each document, and count --score-from and --score-to within "
        f"documents; {_BOUNDARIES_HELP}; a documents.json next to the data takes precedence",
        None,
        group=MEASUREMENT,
    )
    score_from: TokenCount | None = option(
        "number of tokens at the start of the split that are not scored, so that the same tokens "
        "are scored at every length and stride; with --per-document, this applies to each "
        "document, and windows do not cross document boundaries",
        None,
        metavar="N",
        group=MEASUREMENT,
    )
    score_to: TokenCount | None = option(
        "number of tokens at the start of the split after which none is scored; with "
        "--per-document, this applies to each document, and windows do not cross document "
        "boundaries",
        None,
        metavar="M",
        group=MEASUREMENT,
    )
    precision: Precision = option("precision of weights and activations", "fp32", group=COMPUTATION)
    device: Device = option(
        "device: cpu, cuda, cuda:1, …; auto: a GPU if there is one",
        "auto",
        metavar="DEVICE",
        group=COMPUTATION,
    )
    memory_gb: Gigabytes | None = option(
        "memory budget of a forward pass in GB, which determines the batch size (default: 2 on a "
        "CPU, half the memory of a GPU)",
        None,
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
        """Return length and stride, in tokens, of the windows on a text, each pair once.

        The stride ``full`` is the length: such windows do not overlap.
        """
        pairs: dict[tuple[int, int], None] = {}
        for length, stride in product(self.lengths, self.strides):
            pairs[length, length if stride == "full" else stride] = None
        return list(pairs)

    def flags(self) -> list[str]:
        """Return the options of ``alibi-fairseq eval`` that stand for these settings.

        Lengths, strides, and splits are always among them, to be read in logs.
        """
        flags: list[str] = []
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, tuple):
                text = ",".join(map(str, value))
            elif value in (field.default, {}):
                continue
            elif isinstance(value, dict):
                text = json.dumps(value)
            else:
                text = str(value)
            flags += [str(option_flag(field)), text]
        return flags
