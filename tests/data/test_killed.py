"""Preparations that are killed repeatedly, compared with uninterrupted ones."""

import pytest
from preparations import books, documents_file, tarred, wikitext_zip
from process_control import files_of, killed_at

from alibi_fairseq.data.bookcorpus import BookCorpus
from alibi_fairseq.data.cc100_roberta import Cc100Roberta
from alibi_fairseq.data.custom_text import CustomTextBuilder
from alibi_fairseq.data.pipeline import prepare_corpus
from alibi_fairseq.data.wikitext103 import WikiText103

pytestmark = pytest.mark.ci


def corpora(folder):
    """Return two builders of the same data for each corpus, mostly from different sources."""
    archive = wikitext_zip(folder / "wikitext-103-v1.zip", folder / "text")
    lines = documents_file(folder / "text.txt")
    unpacked = books(folder / "books")
    packed = tarred(unpacked, folder / "books.tar.xz")
    wikitext_options = {"allow_other_text": True}
    book_options = {"held_out": 10, "vocab_size": 400}
    web_options = {"vocab_size": 350, "valid_tokens": 300, "shards": 3}
    text_options = {"held_out": 10, "tokenizer": "words"}
    return {
        "wikitext": (
            WikiText103(archive, **wikitext_options),
            WikiText103(from_folder=folder / "text", **wikitext_options),
        ),
        "books": (BookCorpus([unpacked], **book_options), BookCorpus([packed], **book_options)),
        "web": (Cc100Roberta([lines], **web_options), Cc100Roberta([lines], **web_options)),
        "own": (
            CustomTextBuilder([packed], **text_options),
            CustomTextBuilder([unpacked], **text_options),
        ),
    }


@pytest.mark.parametrize("name", ["wikitext", "books", "web", "own"])
def test_killed_preparation_gives_the_same_bytes(tmp_path, name):
    """Each run is killed at a later file than the run before."""
    builder, same_data = corpora(tmp_path)[name]
    prepare_corpus(same_data, tmp_path / "whole", workers=2)
    kills = 0
    while killed_at(kills + 1, kills % 2 == 0, prepare_corpus, builder, tmp_path / "killed"):
        kills += 1
    assert kills >= 5
    assert [path.name for path in (tmp_path / "killed").iterdir()] == ["data-bin"]
    assert files_of(tmp_path / "killed") == files_of(tmp_path / "whole")
