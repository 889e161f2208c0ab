"""The beginnings of splits."""

from __future__ import annotations

import pytest
from fairseq_runs import write_corpus

from alibi_fairseq.data.excerpt import excerpt, first
from alibi_fairseq.evaluation.data import corpus_name, load_dictionary, load_split


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "data-bin"
    folder.mkdir()
    return write_corpus(folder, train=500, valid=200)


def split(folder, name):
    return load_split(folder, name, load_dictionary(folder))


def test_whole_lines_from_the_beginning_and_no_more_than_needed(corpus, tmp_path):
    out = tmp_path / "text-smoke"
    excerpt(corpus, out, {"train": first(100), "valid": first(10_000), "test": first(10)})
    whole, cut = split(corpus, "train"), split(out, "train")
    assert len(cut.tokens) >= 100
    assert cut.line_starts[-1] < 100  # without its last line it would be too short
    assert cut.tokens.tolist() == whole.tokens[: len(cut.tokens)].tolist()
    assert cut.line_starts.tolist() == whole.line_starts[: len(cut.line_starts)].tolist()
    assert split(out, "valid").tokens.tolist() == split(corpus, "valid").tokens.tolist()
    assert not (out / "test.bin").exists()
    assert (out / "dict.txt").read_bytes() == (corpus / "dict.txt").read_bytes()


def test_rare_words_become_unknown(corpus, tmp_path):
    """As fairseq-preprocess --nwordssrc: the most frequent words keep their numbers."""
    out = tmp_path / "text-smoke"
    excerpt(corpus, out, {"valid": first(10_000)}, words=12)
    whole, cut = split(corpus, "valid"), split(out, "valid")
    dictionary = load_dictionary(out)
    assert len(dictionary) == 4 + 12 < whole.tokens.max() < len(load_dictionary(corpus))
    kept = whole.tokens < len(dictionary)
    assert cut.tokens[kept].tolist() == whole.tokens[kept].tolist()
    assert set(cut.tokens[~kept].tolist()) == {dictionary.unk()}


def test_results_call_the_text_by_the_folders_name(corpus, tmp_path):
    (corpus / "manifest.json").write_text(
        "{}"
    )  # of the whole, whose name the excerpt must not bear
    excerpt(corpus, tmp_path / "text-smoke", {"valid": first(10)})
    assert corpus_name(tmp_path / "text-smoke") == "text-smoke"


def test_an_older_excerpt_and_an_unfinished_one_are_replaced(corpus, tmp_path):
    for name in ("text-smoke", ".text-smoke.unfinished"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "test.bin").touch()
    excerpt(corpus, tmp_path / "text-smoke", {"valid": first(10)})
    names = {path.name for path in (tmp_path / "text-smoke").iterdir()}
    assert names == {"dict.txt", "valid.bin", "valid.idx"}
    assert not (tmp_path / ".text-smoke.unfinished").exists()
