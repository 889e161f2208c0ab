"""Excerpts of prepared text."""

from __future__ import annotations

import random
import shutil

import pytest

from alibi_fairseq.data.custom_text import CustomTextBuilder
from alibi_fairseq.data.pipeline import prepare_corpus
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.evaluation.split import load_dictionary, load_split
from alibi_fairseq.results.data_folder import DataFolder
from studies.corpora.config import StudyCorpus
from studies.corpora.excerpt import ExcerptConfig, cut_excerpt, is_excerpt
from studies.corpora.preparation import prepare_corpora


def write_texts(folder, letters):
    """Write 20 documents of random letters to a folder."""
    folder.mkdir(exist_ok=True)
    rng = random.Random(1)
    for number in range(20):
        lines = [" ".join(rng.choices(letters, k=12)) for _ in range(20)]
        (folder / f"{number}.txt").write_text("\n".join(lines))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Return the binary data of a text of 20 documents."""
    folder = tmp_path_factory.mktemp("text")
    texts = folder / "texts"
    write_texts(texts, "abcdefghij")
    prepare_corpus(CustomTextBuilder([texts], "words", held_out=20), folder / "whole", 1)
    return folder / "whole" / "data-bin"


def split_tokens(data, split):
    return len(load_split(DataFolder.open(data), split, load_dictionary(data)).tokens)


def test_excerpt_of_whole_training_split(prepared, tmp_path):
    tokens = split_tokens(prepared, "train")
    size = ExcerptConfig(train=tokens, documents=2, tokens=20, valid=50)
    cut_excerpt(prepared, tmp_path / "excerpt", size)
    assert is_excerpt(tmp_path / "excerpt", size)
    assert split_tokens(tmp_path / "excerpt", "train") == tokens
    assert 50 <= split_tokens(tmp_path / "excerpt", "valid") < split_tokens(prepared, "valid")


@pytest.mark.parametrize("batch_tokens", [500, 10_000])
def test_excerpt_of_text_without_spaces_has_bytes(tmp_path, monkeypatch, batch_tokens):
    """The splits are larger than the smaller number of tokens that is counted at a time."""
    monkeypatch.setattr("studies.corpora.excerpt.BATCH_TOKENS", batch_tokens)
    texts = tmp_path / "texts"
    texts.mkdir()
    rng = random.Random(1)
    letters = [chr(0x4E00 + number) for number in range(50)]
    for number in range(20):
        lines = ["".join(rng.choices(letters, k=300)) for _ in range(20)]
        (texts / f"{number}.txt").write_text("\n".join(lines), encoding="utf-8")
    corpus = CustomTextBuilder([texts], vocab_size=400, held_out=20)
    prepare_corpus(corpus, tmp_path / "whole", 1)
    size = ExcerptConfig(train=2000, documents=2, tokens=1000, valid=2000)
    cut_excerpt(tmp_path / "whole" / "data-bin", tmp_path / "excerpt", size)
    splits = DataFolder.open(tmp_path / "excerpt").manifest["splits"]
    assert splits["train"]["tokens"] == split_tokens(tmp_path / "excerpt", "train")
    assert splits["train"]["words"] == splits["train"]["lines"]
    assert splits["train"]["bytes"] == splits["train"]["lines"] * (300 * 3 + 1)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"train": 99_999}, "'train' has .* needs 99,999"),
        ({"valid": 99_999}, "'valid' has .* needs 99,999"),
        ({"documents": 99}, "test split have 20 tokens, not 99"),
        ({"tokens": 99_999}, "0 documents of the test split have 99,999 tokens"),
    ],
)
def test_excerpt_of_too_short_text_is_rejected(prepared, tmp_path, change, named):
    sizes = {"train": 50, "valid": 50, "documents": 2, "tokens": 20}
    size = ExcerptConfig(**(sizes | change))
    with pytest.raises(UserInputError, match=named):
        cut_excerpt(prepared, tmp_path / "excerpt", size)
    assert not list(tmp_path.iterdir())


def test_binary_data_must_be_the_excerpt(prepared, tmp_path):
    size = ExcerptConfig(train=50, documents=2, tokens=20, valid=50)
    other_size = ExcerptConfig(train=60, documents=2, tokens=20, valid=50)
    excerpt = tmp_path / "excerpt"
    cut_excerpt(prepared, excerpt, size)
    out = tmp_path / "out"
    # The other keys describe the text that the excerpt was made from.
    corpus = StudyCorpus("a", excerpt=size, documents="titles", sample=900)
    prepare_corpora([corpus], {"a": excerpt}, 300, out)
    for data, wanted in ((prepared, size), (excerpt, other_size)):
        corpus = StudyCorpus("a", excerpt=wanted)
        with pytest.raises(UserInputError, match="is not the excerpt of the corpus 'a'"):
            prepare_corpora([corpus], {"a": data}, 300, out)


def test_output_inside_text_folder_is_rejected(tmp_path):
    texts = tmp_path / "texts"
    write_texts(texts, "abcdefghij")
    # A sample of the documents is written to the output folder before the text is prepared.
    with pytest.raises(UserInputError, match="--out .* is inside"):
        prepare_corpora([StudyCorpus("a", sample=900)], {"a": texts}, 300, texts / "out")
    assert not (texts / "out").exists()


def test_excerpt_of_changed_text_is_cut_again(tmp_path):
    size = ExcerptConfig(train=50, documents=2, tokens=20, valid=50)
    texts = tmp_path / "texts"
    arguments = ([StudyCorpus("a", excerpt=size)], {"a": texts}, 275, tmp_path / "out")
    write_texts(texts, "abcdefghij")
    prepare_corpora(*arguments)
    write_texts(texts, "klmnopqrst")
    with pytest.raises(UserInputError, match="with different settings"):
        prepare_corpora(*arguments)
    # The message advises to delete the folder.
    shutil.rmtree(tmp_path / "out" / "a" / "prepared")
    prepare_corpora(*arguments)
    dictionary = load_dictionary(tmp_path / "out" / "a" / "data-bin")
    assert "▁k" in dictionary
    assert "▁a" not in dictionary
