"""Samples of the documents of a raw text."""

from __future__ import annotations

import pytest

from alibi_fairseq.completion_marker import CompletionMarker
from studies.corpora.document_sampling import sample_documents

SIZE = 100


def write_documents(folder, names: str):
    """Write a document of :data:`SIZE` bytes per letter. Equal letters are repeated documents."""
    folder.mkdir()
    for number, name in enumerate(names):
        (folder / f"{number}.txt").write_text(name * SIZE)
    return folder


def sampled(source, out, boundaries: str, sample: int | None) -> list[str]:
    """Return the first letter of each sampled document, in alphabetical order."""
    sample_documents([str(source)], out, boundaries, sample)
    return sorted(file.read_text().strip()[0] for file in out.iterdir())


def test_repeated_documents_count_once(tmp_path):
    source = write_documents(tmp_path / "texts", "aaabbbcccd")
    for count in (1, 2, 3, 4):
        names = sampled(source, tmp_path / "out", "files", count * SIZE)
        assert len(names) == len(set(names)) == count
    distinct = write_documents(tmp_path / "distinct", "abcd")
    for count in (1, 2, 3):
        expected = sampled(distinct, tmp_path / "expected", "files", count * SIZE)
        assert sampled(source, tmp_path / "out", "files", count * SIZE) == expected


def test_interrupted_sample_does_not_replace_complete_one(tmp_path, monkeypatch):
    source = write_documents(tmp_path / "texts", "abcd")
    out = tmp_path / "out"
    first = sampled(source, out, "files", SIZE)

    def stop(marker):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(CompletionMarker, "write", stop)
        with pytest.raises(KeyboardInterrupt):
            sample_documents([str(source)], out, "files", 3 * SIZE)
    assert sampled(source, out, "files", SIZE) == first


def test_repeated_articles_are_kept_once(tmp_path):
    article = " = Title = \n \n text \n"
    (tmp_path / "wiki.tokens").write_text(article + article + " = Other = \n text \n")
    names = sampled(tmp_path / "wiki.tokens", tmp_path / "out", "titles", None)
    assert len(names) == 2


def test_articles_with_any_line_end_are_kept(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for name, end in (("unix", "\n"), ("windows", "\r\n")):
        text = f" = One {name} = \n text \n = Two {name} = \n text \n"
        (folder / f"{name}.tokens").write_text(text, newline=end)
    names = sampled(folder, tmp_path / "out", "titles", None)
    assert len(names) == 4
