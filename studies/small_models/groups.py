"""Changes of perplexity that the page estimates without an outcome, in groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from alibi_fairseq.results.labels import METHOD_NAMES

from ..losses import EvaluationKey
from ..primary_tests import StudiedModels

#: Text of the articles.
CORPUS = "wikipedia"
#: Models of the six tests.
MODELS = StudiedModels(CORPUS, train_length=128)


@dataclass(frozen=True)
class Group:
    """Estimates that belong together, and why they are no test of the paper.

    Attributes:
        pairs: description, first and second evaluation.
    """

    title: str
    reason: str
    pairs: tuple[tuple[str, EvaluationKey, EvaluationKey], ...]


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


def _levels(method: str, other: str, lengths: Iterable[int]) -> list[tuple]:
    return [
        (
            f"{METHOD_NAMES[method]} against {METHOD_NAMES[other]}, L = {n}, at L",
            key(method, n, n),
            key(other, n, n),
        )
        for n in lengths
    ]


def _beyond(method: str, trained: int, multiples: Iterable[int]) -> list[tuple]:
    return [
        (
            f"{METHOD_NAMES[method]}, L = {trained}, at {multiple} L against L",
            key(method, trained, multiple * trained),
            key(method, trained, trained),
        )
        for multiple in multiples
    ]


GROUPS = (
    Group(
        "Beyond the training length",
        "The same models are compared with themselves, as in the tests above, "
        "after an eighth of the tokens.",
        (
            *_beyond("alibi", 128, (2, 4, 16)),
            *_beyond("alibi", 256, (2, 4)),
            *_beyond("alibi", 512, (2, 4)),
            *_beyond("sinusoidal", 128, (2, 4, 16)),
            *_beyond("rotary", 128, (2, 4, 16)),
            *_beyond("t5", 128, (2, 4, 16)),
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
        "How far methods are apart at L depends on how much they have learned: "
        "models that read 3.1M tokens do not test the paper's comparisons of levels.",
        (
            *_levels("alibi", "sinusoidal", (128, 256, 512)),
            *_levels("alibi", "rotary", (128, 512)),
            *_levels("alibi", "t5", (128, 512)),
            *_levels("sinusoidal", "none", (128, 256, 512)),
        ),
    ),
    Group(
        "Trained short against trained long",
        "The paper's statement needs a baseline that has learned its positions; "
        "at 3.1M tokens, sinusoidal embeddings at L = 512 have learned almost none.",
        tuple(
            (
                f"ALiBi, L = {short}, against sinusoidal, L = {long}, both at {long}",
                key("alibi", short, long),
                key("sinusoidal", long, long),
            )
            for short, long in ((128, 256), (128, 512), (256, 512))
        ),
    ),
    Group(
        "Longer training lengths",
        "At equal tokens a longer training length means fewer sequences per update, "
        "which hurts a model that is far from converged; the paper's models are not.",
        tuple(
            (
                f"{METHOD_NAMES[method]}, L = {long} against {short}, each at its L",
                key(method, long, long),
                key(method, short, short),
            )
            for method in ("alibi", "sinusoidal")
            for short, long in ((128, 256), (256, 512))
        ),
    ),
    Group(
        "Sliding windows",
        "With S small, every token has nearly full context. "
        "The change is then that of more context alone.",
        (
            (
                "ALiBi, L = 128, S = 16, at 256 against 128",
                key("alibi", 128, 256, 16),
                key("alibi", 128, 128, 16),
            ),
            (
                "ALiBi, L = 128, S = 16, at 512 against 128",
                key("alibi", 128, 512, 16),
                key("alibi", 128, 128, 16),
            ),
            (
                "ALiBi, L = 512, S = 32, at 1024 against 512",
                key("alibi", 512, 1024, 32),
                key("alibi", 512, 512, 32),
            ),
        ),
    ),
    Group(
        "Attention limited to the training length",
        "Whether a larger model uses context beyond L cannot be concluded from these.",
        tuple(
            (
                f"ALiBi, L = {trained}, at {length}: limited against unlimited",
                key("alibi", trained, length, variant="limited"),
                key("alibi", trained, length),
            )
            for trained, length in ((128, 256), (128, 512), (256, 512), (512, 1024))
        ),
    ),
    Group(
        "Interpolated slopes",
        "A later proposal; the paper makes no statement about it.",
        (
            (
                "ALiBi, L = 128, at 256: interpolated against not",
                key("alibi", 128, 256, variant="interpolated"),
                key("alibi", 128, 256),
            ),
            (
                "ALiBi, L = 128, at 256: four shallowest slopes interpolated against not",
                key("alibi", 128, 256, variant="interpolated_shallow"),
                key("alibi", 128, 256),
            ),
        ),
    ),
    Group(
        "Later methods",
        "Each of these papers used other models and texts; "
        "these are levels at 4 L, not a replication.",
        tuple(
            (
                f"{METHOD_NAMES[method]} against ALiBi, L = 128, at 512",
                key(method, 128, 512),
                key("alibi", 128, 512),
            )
            for method in ("kerple", "fox", "xpos", "fire", "sandwich", "cope", "bam")
        ),
    ),
    Group(
        "Another text",
        "Books instead of articles. "
        "The paper's comparison of levels on books is not tested, for the reason above.",
        (
            *(
                (
                    f"ALiBi, L = 128, on books, at {multiple} L against L",
                    key("alibi", 128, multiple * 128, corpus="books"),
                    key("alibi", 128, 128, corpus="books"),
                )
                for multiple in (2, 4, 16)
            ),
            (
                "ALiBi against sinusoidal, L = 128, on books, at L",
                key("alibi", 128, 128, corpus="books"),
                key("sinusoidal", 128, 128, corpus="books"),
            ),
        ),
    ),
)
