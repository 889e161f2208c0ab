"""Keys of a corpus in a study's YAML file."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic.dataclasses
from pydantic import Field

from alibi_fairseq.evaluation.option_types import PositiveInt
from alibi_fairseq.experiment.schema import STRICT, Corpus
from alibi_fairseq.options import yaml_key


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class ExcerptConfig:
    """Size of an excerpt of a prepared text.

    Attributes:
        train: tokens of the training split.
        documents: number of documents of the test split.
        tokens: tokens of each of these documents; shorter documents are left out.
        valid: tokens of the validation split.
    """

    train: PositiveInt
    documents: Annotated[int, Field(ge=2)]
    tokens: PositiveInt
    valid: PositiveInt = 32_768


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class StudyCorpus(Corpus):
    """Corpus of a study. The command line gives the path of its text."""

    excerpt: ExcerptConfig | None = yaml_key(
        "excerpt to train and test on: train and valid, tokens of these splits; documents, number "
        "of documents of the test split; tokens, tokens of each of them, and shorter ones are left "
        "out; 20% of the text is then held out for each of valid and test (default: whole text)",
        None,
    )
    documents: Literal["files", "titles"] = yaml_key(
        "files: each file is a document; titles: a title begins a document, as in WikiText's "
        "`*.tokens` files, and repeated documents are kept once",
        "files",
    )
    sample: PositiveInt | None = yaml_key(
        "bytes of text to prepare at most, in documents drawn by their hash, repeated ones once "
        "(default: all of the text)",
        None,
    )

    def __post_init__(self):
        for name in ("text", "tokenizer", "vocabulary", "held_out", "probe"):
            if getattr(self, name) != getattr(Corpus, name):
                raise ValueError(
                    f"a study's corpus has no '{name}'; remove it, and give the text with --corpus"
                )
