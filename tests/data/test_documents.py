import bz2
import gzip
import lzma
import random
import re
import shutil
import subprocess
import tarfile
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from preparations import tarred

from alibi_fairseq.data import shuffling
from alibi_fairseq.data.shuffling import (
    KEYS,
    chunks_in,
    documents_between,
    read_documents,
    write_sorted_chunks,
)
from alibi_fairseq.data.sources import text_files
from alibi_fairseq.errors import UserInputError

LINES = st.lists(
    st.sampled_from(
        ["", "  ", "\t", "one", "two  words", " ä € 日本 ", "x\u00a0y", "a\u2028b\x85c"]
    ),
    max_size=60,
)


def naive(text):
    """Return the documents of a text by definition, with single spaces between words."""
    blocks = re.split(r"\n(?:[^\S\n]*\n)+", "\n" + text + "\n")
    documents = []
    for block in blocks:
        lines = [" ".join(line.split()) for line in block.split("\n")]
        if any(lines):
            documents.append("".join(line + "\n" for line in lines if line))
    return documents


def texts_of(path):
    return [text.decode() for _, text in read_documents(path)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("documents")


def test_byte_order_mark_of_every_text_is_removed(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for name in ("1.txt", "2.txt"):
        (folder / name).write_text("one\n\ntwo\n", encoding="utf-8-sig")
    assert texts_of(folder / "1.txt") == ["one\n", "two\n"]
    assert texts_of(tarred(folder, tmp_path / "texts.tar.gz")) == ["one\n", "two\n"] * 2


@settings(deadline=None, max_examples=200)
@given(LINES, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_documents_end_at_empty_lines(folder, lines, end, ended):
    text = end.join(lines) + (end if ended else "")
    path = folder / "text.txt"
    path.write_bytes(text.encode())
    assert texts_of(path) == naive(text.replace("\r\n", "\n"))


def test_documents_end_with_their_archive_member(tmp_path):
    with tarfile.open(tmp_path / "books.tar.xz", "w:xz") as archive:
        for name, text in (("a.txt", "one\ntwo"), ("skip.md", "no"), ("b.txt", "three\n\nfour\n")):
            (tmp_path / name).write_text(text)
            archive.add(tmp_path / name, f"books/{name}")
    offsets, documents = zip(*read_documents(tmp_path / "books.tar.xz"))
    assert documents == (b"one\ntwo\n", b"three\n", b"four\n")
    assert len(set(offsets)) == 3


def test_compressed_tars_named_like_files_are_read(tmp_path):
    """OpenWebText comes as tar archives of one text per page, named urlsf_subset00-1_data.xz."""
    pages = tmp_path / "pages"
    pages.mkdir()
    for number in range(3):
        (pages / f"{number}.txt").write_text(f"Page {number}.\n")
    folder = tmp_path / "openwebtext"
    folder.mkdir()
    tarred(pages, tmp_path / "pages.tar.xz").rename(folder / "urlsf_subset00-1_data.xz")
    (folder / "more.txt").write_text("More.\n")
    more, archive = text_files([folder])
    assert [more.name, archive.name] == ["more.txt", "urlsf_subset00-1_data.xz"]
    assert sorted(texts_of(archive)) == [f"Page {number}.\n" for number in range(3)]


def test_a_page_of_openwebtext_is_one_document(tmp_path, monkeypatch):
    """Its pages have empty lines between paragraphs. In other files, these separate documents."""
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "1.txt").write_text("\na\n\n \nb\n")
    (pages / "2.txt").write_text("c\n")
    archive = tarred(pages, tmp_path / "pages.tar.xz")
    assert sorted(texts_of(archive)) == ["a\n", "b\n", "c\n"]
    assert texts_of(pages / "1.txt") == ["a\n", "b\n"]
    page = archive.rename(tmp_path / "urlsf_subset00-1_data.xz")
    assert sorted(texts_of(page)) == ["a\nb\n", "c\n"]
    monkeypatch.setattr(shuffling, "MAX_DOCUMENT_BYTES", 3)
    assert sorted(texts_of(page)) == ["a\n", "b\n", "c\n"]


def test_zip_members_of_one_name_are_all_read(tmp_path):
    path = tmp_path / "books.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "one\n")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("a.txt", "two\n")
    assert texts_of(path) == ["one\n", "two\n"]


@pytest.mark.parametrize("between", [" ", "\n"])
def test_long_documents_are_cut_between_words(tmp_path, monkeypatch, between):
    monkeypatch.setattr(shuffling, "MAX_DOCUMENT_BYTES", 1000)
    monkeypatch.setattr(shuffling, "MAX_LINE_BYTES", 300)
    words = [f"word{n}" for n in range(3000)]
    path = tmp_path / "endless.txt"
    path.write_text(between.join(words))
    documents = texts_of(path)
    assert max(map(len, documents)) <= 1300
    assert " ".join(documents).split() == words


@pytest.mark.parametrize("character", ["a", "é", "日", "😀"])
def test_long_lines_without_spaces_are_cut_between_characters(tmp_path, monkeypatch, character):
    monkeypatch.setattr(shuffling, "MAX_LINE_BYTES", 301)
    path = tmp_path / "endless.txt"
    text = "a" + character * 1000
    path.write_text(text, encoding="utf-8")
    (document,) = texts_of(path)
    assert document.replace("\n", "") == text


def test_long_lines_of_invalid_utf8_are_read_to_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(shuffling, "MAX_LINE_BYTES", 301)
    path = tmp_path / "binary.txt"
    path.write_bytes(b"\x80" * 1000 + b"\xe6\x97" + b"\n\nend\n")
    assert texts_of(path)[-1] == "end\n"


def test_invalid_utf8_becomes_replacement_characters(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes("naïve\n".encode("latin-1"))
    assert texts_of(path) == ["na\ufffdve\n"]


FORMATS = {
    "tar.xz": "xztar",
    "tar.gz": "gztar",
    "tgz": "gztar",
    "tbz2": "bztar",
    "tbz": "bztar",
    "zip": "zip",
}
PACK = {"txt.gz": gzip.compress, "txt.xz": lzma.compress, "txt.bz2": bz2.compress}
NUMBERS = "".join(f"{n * 7919}\n" for n in range(40_000))


def packed(folder, suffix):
    """Write the numbers to a file in the format of its suffix."""
    path = folder / f"a.{suffix}"
    if suffix in PACK:
        path.write_bytes(PACK[suffix](NUMBERS.encode()))
    else:
        (folder / "in").mkdir(exist_ok=True)
        (folder / "in" / "a.txt").write_text(NUMBERS)
        shutil.move(shutil.make_archive(str(folder / "made"), FORMATS[suffix], folder / "in"), path)
    assert "".join(texts_of(path)) == NUMBERS
    return path


def assert_rejected(path, content):
    path.write_bytes(content)
    with pytest.raises(UserInputError, match="damaged, truncated"):
        texts_of(path)


@pytest.mark.parametrize("suffix", [*PACK, "tar.xz", "tar.gz", "tbz", "tbz2", "zip"])
def test_damaged_file_is_named(tmp_path, suffix):
    path = packed(tmp_path, suffix)
    content = path.read_bytes()
    assert_rejected(path, content[:-3000])
    assert_rejected(path, content[:9000] + b"####" + content[9004:])


@pytest.fixture
def small_documents(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(20):
        (folder / f"{number:02d}.txt").write_text(f"document {number}\n")
    return folder


@pytest.fixture
def plain_tar(small_documents, tmp_path):
    """Write an archive with a block of 512 bytes for each header, and one for each text."""
    path = tmp_path / "texts.tar"
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for file in sorted(small_documents.iterdir()):
            archive.add(file, file.name)
    assert len(texts_of(path)) == 20
    return path


@pytest.mark.parametrize("size", [10 * 1024, 10 * 1024 + 256, 10 * 1024 + 512, 10 * 1024 + 900])
def test_truncated_plain_tar_is_rejected(plain_tar, size):
    assert_rejected(plain_tar, plain_tar.read_bytes()[:size])


def test_damaged_header_of_plain_tar_is_rejected(plain_tar):
    content = plain_tar.read_bytes()
    assert_rejected(plain_tar, content.replace(b"10.txt", b"10.tyt", 1))


@pytest.mark.parametrize("suffix", ["tar", "tar.gz", "tar.xz", "tar.bz2"])
@pytest.mark.parametrize("blocks", ["1", "20", "200"])
def test_archive_of_gnu_tar_is_read(small_documents, tmp_path, suffix, blocks):
    path = tmp_path / f"texts.{suffix}"
    # The number of blocks sets the number of zeros at the end.
    command = ["tar", "--auto-compress", f"--blocking-factor={blocks}", "-cf", path, "."]
    subprocess.run(command, cwd=small_documents, check=True)
    assert len(texts_of(path)) == 20


@pytest.mark.parametrize("suffix", ["tar", "tar.gz", "tar.xz"])
def test_several_archives_in_one_file_are_an_error(small_documents, tmp_path, suffix):
    path = tarred(small_documents, tmp_path / f"texts.{suffix}")
    path.write_bytes(2 * path.read_bytes())
    with pytest.raises(UserInputError, match="contains several tar archives"):
        texts_of(path)


@pytest.mark.parametrize("suffix", ["txt.gz", "tar.gz", "tgz"])
def test_gzip_checksum_is_verified(tmp_path, suffix):
    path = packed(tmp_path, suffix)
    # Without compression, a changed digit is noticed by the checksum only.
    content = gzip.compress(gzip.decompress(path.read_bytes()), compresslevel=0)
    path.write_bytes(content)
    assert "".join(texts_of(path)) == NUMBERS
    position = content.index(b"7919000\n")
    assert_rejected(path, content[:position] + b"8" + content[position + 1 :])


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / f"{file}.txt" for file in range(3)]
    for file, path in enumerate(paths):
        path.write_text(
            "".join(f"file {file} document {n}\n" + "more\n" * (n % 4) + "\n" for n in range(400))
        )
    return paths


def shuffled(files, folder, seed=1):
    assert write_sorted_chunks(files, seed, folder, 1) == 0
    runs = chunks_in(folder)
    return documents_between(runs, 0, KEYS), runs


def test_shuffle_depends_only_on_seed(files, tmp_path, monkeypatch):
    first, _ = shuffled(files, tmp_path / "a")
    monkeypatch.setattr(shuffling, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(shuffling, "_FILES_PER_FOLDER", 2)
    again, runs = shuffled(files, tmp_path / "b")
    assert len(runs) > 20
    assert {run.parent.name for run in runs} == {"00000", "00001"}
    assert again == first
    runs[-1].unlink()
    (runs[-1].parent / "00002.json").unlink()  # as after a kill at this point
    assert shuffled(files, tmp_path / "b")[0] == first
    assert shuffled(files, tmp_path / "c", seed=2)[0] != first


def test_shuffle_is_uniform(files, tmp_path):
    documents, _ = shuffled(files, tmp_path / "runs")
    positions = {text: position for position, (_, text) in enumerate(documents)}
    order = [positions[text] for text in sorted(positions)]
    # Neighbors in the input are as far apart as in a random permutation (a third of the length).
    assert np.abs(np.diff(order)).mean() == pytest.approx(400, rel=0.1)
    keys = np.array([key for key, _ in documents], dtype=np.float64) / KEYS
    # Kolmogorov-Smirnov, p < 1e-3
    assert np.abs(keys - (np.arange(1200) + 0.5) / 1200).max() < 0.06


def test_key_ranges_hold_each_document_once(files, tmp_path):
    documents, runs = shuffled(files, tmp_path / "runs")
    assert sorted(text.decode() for _, text in documents) == sorted(
        f"file {file} document {n}\n" + "more\n" * (n % 4) for file in range(3) for n in range(400)
    )
    keys = [key for key, _ in documents]
    edges = [0, *sorted(random.Random(0).choices(keys, k=9)), KEYS]
    joined = []
    for low, high in zip(edges, edges[1:]):
        joined += documents_between(runs, low, high)
    assert joined == documents
