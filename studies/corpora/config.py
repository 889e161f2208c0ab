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
        "which part of the text to use (default: all of it). `train`, `valid`: tokens in these "
        "splits. `documents`: number of test documents. `tokens`: tokens taken from each test "
        "document; shorter documents are skipped. With an excerpt, 20% of the text is held out for "
        "validation and another 20% for testing",
        None,
    )
    documents: Literal["files", "titles"] = yaml_key(
        "files: each file is a document; titles: a title begins a document, as in WikiText's "
        "`*.tokens` files, and repeated documents are kept once",
        "files",
    )
    sample: PositiveInt | None = yaml_key(
        "upper limit on the text to prepare, in bytes; documents are drawn by hash, and duplicates "
        "are dropped (default: all of the text)",
        None,
    )

    def __post_init__(self):
        for name in ("text", "tokenizer", "vocabulary", "held_out", "probe"):
            if getattr(self, name) != getattr(Corpus, name):
                raise ValueError(
                    f"a study's corpus has no '{name}'; remove it, and give the text with --corpus"
                )
