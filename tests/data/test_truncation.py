"""Excerpts of texts before tokenization, and of binary data."""

from __future__ import annotations

import pytest
from fairseq_runs import write_corpus
from preparations import books, documents_file, sentences, tarred, wikitext_files

from alibi_fairseq.data import bookcorpus, cc100_roberta
from alibi_fairseq.data.bookcorpus import BookCorpus
from alibi_fairseq.data.cc100_roberta import Cc100Roberta
from alibi_fairseq.data.custom_text import CustomTextBuilder
from alibi_fairseq.data.pipeline import prepare_corpus
from alibi_fairseq.data.truncation import first_lines, load_lines, write_excerpt
from alibi_fairseq.data.wikitext103 import WikiText103
from alibi_fairseq.evaluation.split import load_dictionary, load_split
from alibi_fairseq.results.data_folder import DataFolder


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "data-bin"
    folder.mkdir()
    return write_corpus(folder, train=500, valid=200)


def split(folder, name):
    return load_split(DataFolder.open(folder), name, load_dictionary(folder))


def write_beginnings(source, out, tokens: dict[str, int], entries=None):
    """Write an excerpt with the first lines of each split."""
    lines_by_split = load_lines(source, tokens)
    excerpt = {split: first_lines(lines, tokens[split]) for split, lines in lines_by_split.items()}
    write_excerpt(source, out, excerpt, entries)


def test_excerpt_has_the_first_whole_lines(corpus, tmp_path):
    out = tmp_path / "text-smoke"
    out.mkdir()
    (out / "test.bin").touch()  # left by an earlier excerpt
    (corpus / "manifest.json").write_text("{}")  # names the full corpus, not the excerpt
    write_beginnings(corpus, out, {"train": 100, "valid": 10_000, "test": 10})
    (corpus / "manifest.json").unlink()
    whole = split(corpus, "train")
    cut = split(out, "train")
    assert len(cut.tokens) >= 100
    assert cut.item_starts[-1] < 100  # without its last line it would be too short
    assert cut.tokens.tolist() == whole.tokens[: len(cut.tokens)].tolist()
    assert cut.item_starts.tolist() == whole.item_starts[: len(cut.item_starts)].tolist()
    assert split(out, "valid").tokens.tolist() == split(corpus, "valid").tokens.tolist()
    assert not (out / "test.bin").exists()
    assert DataFolder.open(out).corpus == "text-smoke"
    assert (out / "dict.txt").read_bytes() == (corpus / "dict.txt").read_bytes()


def test_excerpt_replaces_rare_words(corpus, tmp_path):
    """As with fairseq-preprocess --nwordssrc, the most frequent words keep their indices."""
    out = tmp_path / "text-smoke"
    write_beginnings(corpus, out, {"valid": 10_000}, entries=12)
    whole = split(corpus, "valid")
    cut = split(out, "valid")
    dictionary = load_dictionary(out)
    assert len(dictionary) == 4 + 12 < whole.tokens.max() < len(load_dictionary(corpus))
    is_frequent = whole.tokens < len(dictionary)
    assert cut.tokens[is_frequent].tolist() == whole.tokens[is_frequent].tolist()
    assert set(cut.tokens[~is_frequent].tolist()) == {dictionary.unk()}


def test_wikitext_excerpt_has_the_whole_dictionary(tmp_path):
    """Its binary excerpt is bitwise identical to the binary excerpt of the full text."""
    wikitext_files(tmp_path / "text")
    text = {"from_folder": tmp_path / "text", "allow_other_text": True}
    prepare_corpus(WikiText103(**text), tmp_path / "whole")
    manifest, _ = prepare_corpus(WikiText103(**text, excerpt=1000), tmp_path / "beginning")
    assert 1000 <= manifest["splits"]["train"]["tokens"] < 1040
    for name in ("whole", "beginning"):
        source = tmp_path / name / "data-bin"
        write_beginnings(source, tmp_path / f"{name}-cut", {"train": 1000, "test": 50}, entries=40)
    for name in ("train.bin", "train.idx", "test.bin", "dict.txt"):
        whole = tmp_path / "whole-cut" / name
        beginning = tmp_path / "beginning-cut" / name
        assert whole.read_bytes() == beginning.read_bytes()


def corpora(folder):
    (folder / "lines.txt").write_text("".join(f"{line}\n" for line in sentences(1, 2000)))
    packed = tarred(books(folder / "books", 30), folder / "books.tar.xz")
    documents = documents_file(folder / "documents.txt")
    small = {"vocab_size": 300, "excerpt": 1000}
    web = {"valid_tokens": 300, **small}
    return {
        "books": BookCorpus([packed], held_out=10, **small),
        "lines": BookCorpus([folder / "lines.txt"], held_out=10, allow_other_text=True, **small),
        "documents": Cc100Roberta([documents], **web),
        "archive": Cc100Roberta([tarred(folder / "books", folder / "books.tar.gz")], **web),
        "own": CustomTextBuilder([folder / "lines.txt"], vocab_size=300, excerpt=2000),
    }


@pytest.mark.parametrize("name", ["books", "lines", "documents", "archive", "own"])
def test_excerpt_option_prepares_the_beginning(tmp_path, monkeypatch, name):
    monkeypatch.setattr(bookcorpus, "LINES_PER_BLOCK", 50)
    monkeypatch.setattr(cc100_roberta, "_MIN_EXCERPT_BYTES", 20_000)
    corpus = corpora(tmp_path)[name]
    # With this size, the full text would count as the paper's.
    monkeypatch.setattr(cc100_roberta, "PAPER_BYTES", 1000)
    manifest, _ = prepare_corpus(corpus, tmp_path / "out")
    assert manifest["corpus"] in ("books", "lines", "documents")
    assert manifest["identified_by"] is None
    sizes = {split: counts["bytes"] for split, counts in manifest["splits"].items()}
    size_ranges = {"books": (8000, 100_000), "own": (15_900, 16_200)}
    least, most = size_ranges.get(name, (8000, 75_000))
    assert least <= sum(sizes.values()) <= most
    assert min(sizes.values()) > 0
    assert set(sizes) >= {"train", "valid"}
