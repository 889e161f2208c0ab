import bz2
import gzip
import lzma
import re
import shutil
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alibi_fairseq.data import documents
from alibi_fairseq.data.documents import Portion, portions, read
from alibi_fairseq.errors import BadInput

LINES = st.lists(
    st.sampled_from(
        ["", "  ", "\t", "one", "two  words", " ä € 日本 ", "x\u00a0y", "a\u2028b\x85c"]
    ),
    max_size=60,
)


def naive(text):
    """The documents of a text by definition, words separated by single spaces."""
    blocks = re.split(r"\n(?:[^\S\n]*\n)+", "\n" + text + "\n")
    lined = [[" ".join(line.split()) for line in block.split("\n")] for block in blocks]
    return ["".join(line + "\n" for line in lines if line) for lines in lined if any(lines)]


def texts_of(path, portion=None):
    found = [portion] if portion else portions([path])
    return [document.text.decode() for part in found for document in read(part)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("documents")


@settings(deadline=None, max_examples=200)
@given(LINES, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.integers(8, 60))
def test_documents_are_those_between_empty_lines(folder, lines, end, ended, portion):
    text = end.join(lines) + (end if ended else "")
    path = folder / "text.txt"
    path.write_bytes(text.encode())
    expected = naive(text.replace("\r\n", "\n"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "PORTION", portion)
        assert texts_of(path) == expected


def test_offsets_do_not_depend_on_packing_or_portions(tmp_path, monkeypatch):
    text = "".join(f"document {n}\nsecond line {n}\n\n" for n in range(200)).encode()
    plain = tmp_path / "a.txt"
    plain.write_bytes(text)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text))
    (tmp_path / "a.txt.xz").write_bytes(lzma.compress(text))
    whole = list(read(Portion(0, plain, 0, len(text))))
    assert len({d.offset for d in whole}) == 200
    assert [text[d.offset :].startswith(d.text) for d in whole] == [True] * 200
    for name in ("a.txt.gz", "a.txt.xz"):
        assert list(read(Portion(0, tmp_path / name))) == whole
    monkeypatch.setattr(documents, "PORTION", 500)
    cut = portions([plain])
    assert len(cut) > 10
    assert [d for part in cut for d in read(part)] == whole


def test_each_text_of_an_archive_ends_its_document(tmp_path):
    with tarfile.open(tmp_path / "books.tar.xz", "w:xz") as archive:
        for name, text in (("a.txt", "one\ntwo"), ("skip.md", "no"), ("b.txt", "three\n\nfour\n")):
            (tmp_path / name).write_text(text)
            archive.add(tmp_path / name, f"books/{name}")
    (part,) = portions([tmp_path / "books.tar.xz"])
    found = list(read(part))
    assert [d.text for d in found] == [b"one\ntwo\n", b"three\n", b"four\n"]
    assert len({d.offset for d in found}) == 3


def test_endless_documents_and_lines_are_cut_between_words(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "LONGEST_DOCUMENT", 1000)
    monkeypatch.setattr(documents, "_LONGEST_LINE", 300)
    monkeypatch.setattr(documents, "_SEARCH", 2000)
    words = [f"word{n}" for n in range(3000)]
    for text in (" ".join(words), "\n".join(words)):
        path = tmp_path / "endless.txt"
        path.write_text(text)
        for portion in (1 << 30, 4000):
            monkeypatch.setattr(documents, "PORTION", portion)
            found = [d for part in portions([path]) for d in read(part)]
            assert max(len(d.text) for d in found) <= 1300
            assert " ".join(d.text.decode() for d in found).split() == words


def test_bytes_that_are_not_utf8_are_marked(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes("naïve\n".encode("latin-1"))
    assert texts_of(path) == ["na\ufffdve\n"]


PACK = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress}


@pytest.mark.parametrize("suffix", [*PACK, "tar.xz", "tar.gz", "zip"])
def test_damaged_files_are_named(tmp_path, suffix):
    (tmp_path / "in").mkdir()
    text = "".join(f"{n * 7919}\n" for n in range(40_000))
    (tmp_path / "in" / "a.txt").write_text(text)
    path = tmp_path / f"a.{suffix if '.' in suffix or suffix == 'zip' else f'txt.{suffix}'}"
    if suffix in PACK:
        path.write_bytes(PACK[suffix](text.encode()))
    else:
        kind = {"tar.xz": "xztar", "tar.gz": "gztar", "zip": "zip"}[suffix]
        made = shutil.make_archive(str(tmp_path / "made"), kind, tmp_path / "in")
        shutil.move(made, path)
    assert "".join(texts_of(path)) == text
    packed = path.read_bytes()
    for damaged in (packed[:-3000], packed[:9000] + b"####" + packed[9004:]):
        path.write_bytes(damaged)
        with pytest.raises(BadInput, match="damaged or cut off"):
            texts_of(path)


@pytest.mark.parametrize("suffix", ["txt.gz", "tar.gz", "tgz"])
def test_a_changed_byte_that_only_the_checksum_tells(tmp_path, suffix):
    text = "".join(f"{n * 7919}\n" for n in range(5000))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text(text)
    content = text.encode()
    if suffix != "txt.gz":
        made = shutil.make_archive(str(tmp_path / "made"), "tar", tmp_path / "in")
        content = Path(made).read_bytes()
    path = tmp_path / f"a.{suffix}"
    packed = gzip.compress(content, compresslevel=0)  # stored as it is
    path.write_bytes(packed)
    assert "".join(texts_of(path)) == text
    place = packed.index(b"7919000\n")
    path.write_bytes(packed[:place] + b"8" + packed[place + 1 :])
    with pytest.raises(BadInput, match="damaged or cut off"):
        texts_of(path)
