import re
import zipfile

import pytest
from preparations import books, sentences, stored, tarred
from sacremoses import MosesPunctNormalizer

from alibi_fairseq.data import bookcorpus
from alibi_fairseq.data.bookcorpus import BookCorpus
from alibi_fairseq.data.pipeline import prepare_corpus
from alibi_fairseq.data.tokenization import SentencePiece
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.evaluation.split import load_dictionary, load_split
from alibi_fairseq.evaluation.text_size import TextSize
from alibi_fairseq.results.data_folder import DataFolder

SETTINGS = dict(held_out=10, vocab_size=400)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return books(tmp_path_factory.mktemp("books") / "books")


@pytest.fixture(scope="module")
def prepared(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("prepared") / "out"
    manifest, done = prepare_corpus(BookCorpus([folder], **SETTINGS), out, workers=2)
    assert done
    return out, manifest


def split_of(out):
    rows = (out / "data-bin" / "splits.tsv").read_text().splitlines()[1:]
    return {row.split("\t")[3]: row.split("\t")[0] for row in rows}


def lines_of(data_bin, split, model):
    lines, sizes = stored(data_bin, split)
    return [model._model.decode(line.split()) for line in lines], sizes


@pytest.mark.ci
def test_bookcorpus_holds_whole_normalized_books(prepared, folder):
    out, manifest = prepared
    data_bin = out / "data-bin"
    model = SentencePiece(data_bin / "sentencepiece.model")
    normalize = MosesPunctNormalizer("en").normalize
    splits = split_of(out)
    for split in ("train", "valid", "test"):
        lines, sizes = lines_of(data_bin, split, model)
        stored_books = "\n".join(lines).split("\n\n")
        names = [name for name, split_of_book in splits.items() if split_of_book == split]
        expected = []
        for name in names:
            raw = (folder / name).read_text(encoding="utf-8").split("\n")
            expected.append("\n".join(" ".join(normalize(line).split()) for line in raw if line))
        assert sorted(book.strip() for book in stored_books if book) == sorted(expected)
        text = "".join(line + "\n" for line in lines)
        assert manifest["splits"][split] == {
            "lines": len(lines),
            "words": len(text.split()),
            "bytes": len(text.encode()),
            "tokens": sum(sizes),
            "unknown": 0,
            "books": len(names),
        }
    assert '"Quoted" - text...' in lines
    assert manifest["dictionary"]["entries"] == 400
    assert manifest["corpus"] == "books"
    assert manifest["identified_by"] is None


def test_books_and_lines_are_other_settings(prepared, folder):
    out, manifest = prepared
    assert prepare_corpus(BookCorpus([folder], **SETTINGS), out) == (manifest, False)
    # The same files by name are one text with one sentence per line.
    lines = BookCorpus(sorted(folder.iterdir()), allow_other_text=True, **SETTINGS)
    with pytest.raises(UserInputError, match="unit: 'book' there, 'block of lines' now"):
        prepare_corpus(lines, out)


def test_copies_of_a_book_are_one_group(tmp_path):
    texts = {"1.txt": b"Too short.\n", "2.txt": b"Another.\n", "3.txt": b"Too  short.\r\n"}
    books = []
    for name, content in texts.items():
        raw_book = bookcorpus.RawBook(name, content, name)
        books.append(bookcorpus._normalize_book(tmp_path, raw_book)[1])
    bookcorpus._group_duplicates(books, tmp_path)
    assert [book.group for book in books] == [0, 1, 0]


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(bookcorpus, "LINES_PER_BLOCK", 50)


@pytest.fixture
def line_file(tmp_path):
    path = tmp_path / "bookcorpus" / "books_large_p1.txt"
    path.parent.mkdir()
    path.write_text("".join(line + "\n" for line in sentences(1, 1000)))
    return path


@pytest.mark.ci
def test_line_edition_is_checked_and_split_into_blocks(
    line_file, tmp_path, monkeypatch, small_blocks
):
    settings = {**SETTINGS, "vocab_size": 320}
    lines = line_file.read_text().splitlines()
    tokens = len(line_file.read_text().split())
    with pytest.raises(
        UserInputError,
        match=f"1,000 lines and {tokens:,} tokens, expected 74,004,228 and 984,846,357",
    ):
        prepare_corpus(BookCorpus([line_file], **settings), tmp_path / "out")
    assert not (tmp_path / "out" / "work").exists()
    manifest, _ = prepare_corpus(
        BookCorpus([line_file], allow_other_text=True, **settings), tmp_path / "other"
    )
    assert (manifest["corpus"], manifest["unit"]) == ("other-text", "block of lines")
    monkeypatch.setattr(bookcorpus, "LINES", 1000)
    monkeypatch.setattr(bookcorpus, "TOKENS", tokens)
    packed = tarred(line_file.parent, tmp_path / "packed.tar.bz2")
    for name, source in (("file", line_file), ("archive", packed)):
        manifest, _ = prepare_corpus(BookCorpus([source], **settings), tmp_path / name)
        assert (manifest["corpus"], manifest["identified_by"]) == ("bookcorpus", "lines and tokens")
    splits = list(split_of(tmp_path / "file").values())
    assert len(splits) == 20
    assert splits.count("valid") == splits.count("test") == 2
    model = SentencePiece(tmp_path / "file" / "data-bin" / "sentencepiece.model")
    first = 50 * splits.index("valid")
    valid_lines, _ = lines_of(tmp_path / "file" / "data-bin", "valid", model)
    assert valid_lines == lines[first : first + 100]


def test_files_of_lines_are_joined_at_line_ends(tmp_path, small_blocks):
    files = [tmp_path / f"books_large_p{number}.txt" for number in (1, 2, 3)]
    for file in files:
        file.write_text("first\nlast", encoding="utf-8-sig")
    (block,) = bookcorpus._read_blocks(files)
    assert block.name == "block-00000"
    assert block.content == b"first\nlast\n" * 3


def test_books_in_another_encoding_are_named(tmp_path):
    path = tmp_path / "books.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("en/a.txt", "n\u00e4".encode("latin-1"))
    for read, name in (
        (bookcorpus._read_books, f"{path}: en/a.txt"),
        (bookcorpus._read_blocks, f"block-00000 of {path}"),
    ):
        (raw_book,) = read([path])
        with pytest.raises(UserInputError, match=f"^{re.escape(name)} is damaged"):
            bookcorpus._normalize_book(tmp_path, raw_book)


def test_bookcorpus_uses_given_wordpiece(folder, tmp_path):
    vocabulary = tmp_path / "vocab.txt"
    letters = 'abcdefghijklmnopqrstuvwxyz0123456789I".,-'
    vocabulary.write_text(
        "\n".join(["[SEP]", "[UNK]", "[CLS]", *letters, *("##" + x for x in letters)])
    )
    manifest, _ = prepare_corpus(
        BookCorpus([folder], held_out=10, wordpiece=vocabulary), tmp_path / "out"
    )
    assert manifest["tokenizer"]["kind"] == "wordpiece"
    assert manifest["dictionary"]["entries"] == 3 + 2 * len(letters) + 4
    assert (tmp_path / "out" / "data-bin" / "vocab.txt").exists()
    # The word "Quoted" is in each of ten books, and the vocabulary has no Q.
    assert manifest["splits"]["train"]["unknown"] == 10
    data_bin = tmp_path / "out" / "data-bin"
    split = load_split(DataFolder.open(data_bin), "train", load_dictionary(data_bin))
    assert split.text_size == TextSize()
