"""Changes of perplexity of the secondary models that the page estimates, in groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from alibi_fairseq.positions.display_names import method_name

from ..losses import EvaluationKey
from ..primary_tests import StudiedModels

#: Text of the articles.
CORPUS = "wikipedia"
#: Models of the six tests.
MODELS = StudiedModels(CORPUS, train_length=128, baseline="share")


@dataclass(frozen=True)
class Group:
    """Related estimates, with the reason why they do not test the paper.

    Attributes:
        pairs: description, first and second evaluation.
        paper: True for groups with changes that the paper's Table 5 has as well.
    """

    title: str
    reason: str
    pairs: tuple[tuple[str, EvaluationKey, EvaluationKey], ...]
    paper: bool = False


def key(
    method: str,
    trained: int,
    length: int,
    stride: int = 0,
    variant: str = "",
    corpus: str = CORPUS,
    tested_on: str = "",
) -> EvaluationKey:
    """Return the key of an evaluation, without overlap unless a stride is given."""
    return EvaluationKey(
        corpus, method, trained, length, stride or length, variant, tested_on or corpus
    )


def _at_train_length(method: str, other: str, lengths: Iterable[int]) -> list[tuple]:
    return [
        (
            f"{method_name(method)} vs. {method_name(other)}, L = {n}, at L",
            key(method, n, n),
            key(other, n, n),
        )
        for n in lengths
    ]


def _beyond(method: str, trained: int, multiples: Iterable[int]) -> list[tuple]:
    return [
        (
            f"{method_name(method)}, L = {trained}, at {multiple} L vs. L",
            key(method, trained, multiple * trained),
            key(method, trained, trained),
        )
        for multiple in multiples
    ]


GROUPS = (
    Group(
        "Beyond the training length",
        "Each model is compared with itself, as in E1 and E2. Beyond L, learned embeddings reuse "
        "their last position. Transformer-XL also attends to its memory, which holds the L tokens "
        "before the window.",
        (
            *_beyond("alibi", 128, (2, 4, 16)),
            *_beyond("alibi", 256, (2, 4)),
            *_beyond("alibi", 512, (2, 4)),
            *_beyond("sinusoidal", 128, (2, 4, 16)),
            *_beyond("learned", 128, (2, 4, 16)),
            *_beyond("rotary", 128, (2, 4, 16)),
            *_beyond("t5", 128, (2, 4, 16)),
            *_beyond("transformer_xl", 128, (2, 4, 16)),
            *_beyond("none", 128, (2, 4, 16)),
            *_beyond("kerple", 128, (2, 4, 16)),
            *_beyond("fox", 128, (2, 4, 16)),
            *_beyond("xpos", 128, (2, 4, 16)),
            *_beyond("fire", 128, (2, 4, 16)),
            *_beyond("sandwich", 128, (2, 4, 16)),
            *_beyond("cope", 128, (2, 4, 16)),
            *_beyond("bam", 128, (2, 4, 16)),
        ),
    ),
    Group(
        "At the training length",
        "Differences between methods at L depend on how much the models have learned. After 3.1M "
        "tokens, they do not test the paper's comparisons.",
        (
            *_at_train_length("alibi", "sinusoidal", (128, 256, 512)),
            *_at_train_length("alibi", "rotary", (128, 512)),
            *_at_train_length("alibi", "t5", (128, 512)),
            *_at_train_length("sinusoidal", "none", (128, 256, 512)),
        ),
        paper=True,
    ),
    Group(
        "Longer training lengths",
        "All updates have 4,096 tokens, so a longer training length means fewer sequences per "
        "update. Fewer sequences can hurt models that are far from converged. This table does not "
        "test the paper's models, which were trained on many more tokens.",
        tuple(
            (
                f"{method_name(method)}, L = {long} vs. {short}, each at its training length",
                key(method, long, long),
                key(method, short, short),
            )
            for method in ("alibi", "sinusoidal")
            for short, long in ((128, 256), (256, 512))
        ),
        paper=True,
    ),
    Group(
        "Sliding windows",
        "In a window of n tokens, every scored token has at least n - S tokens of context. The "
        "change is therefore the effect of longer context alone. E4 makes this comparison with the "
        "primary models. How much a model gains from longer context depends on how much it has "
        "learned.",
        (
            (
                "ALiBi, L = 128, S = 16, at 256 vs. 128",
                key("alibi", 128, 256, 16),
                key("alibi", 128, 128, 16),
            ),
            (
                "ALiBi, L = 128, S = 16, at 512 vs. 128",
                key("alibi", 128, 512, 16),
                key("alibi", 128, 128, 16),
            ),
            (
                "ALiBi, L = 512, S = 32, at 1024 vs. 512",
                key("alibi", 512, 1024, 32),
                key("alibi", 512, 512, 32),
            ),
        ),
    ),
    Group(
        "Attention limited to the training length",
        "E5 makes this comparison with the primary models. Neither E5 nor this table shows whether "
        "a larger model uses context beyond L.",
        tuple(
            (
                f"ALiBi, L = {trained}, at {length}: limited vs. unlimited",
                key("alibi", trained, length, variant="limited"),
                key("alibi", trained, length),
            )
            for trained, length in ((128, 256), (128, 512), (256, 512), (512, 1024))
        ),
    ),
    Group(
        "Interpolated slopes",
        "Interpolating the slopes for longer windows is a later proposal, which the paper does not "
        "cover.",
        (
            (
                "ALiBi, L = 128, at 256: interpolated vs. unchanged",
                key("alibi", 128, 256, variant="interpolated"),
                key("alibi", 128, 256),
            ),
            (
                "ALiBi, L = 128, at 256: four shallowest slopes interpolated vs. unchanged",
                key("alibi", 128, 256, variant="interpolated_shallow"),
                key("alibi", 128, 256),
            ),
        ),
    ),
    Group(
        "Later methods",
        "These methods already differ at L, so their differences at 4 L do not measure "
        "extrapolation alone. Their papers used other models and texts, which this table does not "
        "replicate.",
        tuple(
            (
                f"{method_name(method)} vs. ALiBi, L = 128, at 512",
                key(method, 128, 512),
                key("alibi", 128, 512),
            )
            for method in ("kerple", "fox", "xpos", "fire", "sandwich", "cope", "bam")
        ),
    ),
    Group(
        "Another text",
        "These models were trained and tested on books. The difference between methods at L "
        "depends on how much the models have learned, so it does not test the paper's comparison "
        "on books.",
        (
            *(
                (
                    f"ALiBi, L = 128, on books, at {multiple} L vs. L",
                    key("alibi", 128, multiple * 128, corpus="books"),
                    key("alibi", 128, 128, corpus="books"),
                )
                for multiple in (2, 4, 16)
            ),
            (
                "ALiBi vs. sinusoidal, L = 128, on books, at L",
                key("alibi", 128, 128, corpus="books"),
                key("sinusoidal", 128, 128, corpus="books"),
            ),
        ),
    ),
)
