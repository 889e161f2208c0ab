"""``prepare text``: documents held out, and both tokenizations."""

import re
import zipfile

import pytest
from preparations import sentences, stored

from alibi_fairseq.cli import main
from alibi_fairseq.data.corpus_builder import SPLITS
from alibi_fairseq.data.custom_text import CustomTextBuilder, _document_lines
from alibi_fairseq.data.pipeline import prepare_corpus
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.results.data_folder import DataFolder


@pytest.fixture
def documents(tmp_path):
    """Return a folder of 40 documents of 25 lines, and a file that is not text.

    Each line begins with the name of its document, which no other document contains.
    """
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(40):
        lines = [f"document{number} {line}  <unk> " for line in sentences(number, 25)]
        suffix = "md" if number % 2 else "txt"
        path = folder / f"{number:02}.{suffix}"
        path.write_text("\n\n".join(lines), encoding="utf-8")
    (folder / "picture.png").write_bytes(b"\xff\xfe")
    return folder


def builder(folder, **options):
    return CustomTextBuilder([folder], tokenizer="words", held_out=10, **options)


def test_text_holds_out_whole_documents(documents, tmp_path):
    prepare_corpus(builder(documents), tmp_path / "out")
    names = {}
    for split in SPLITS:
        lines, _ = stored(tmp_path / "out" / "data-bin", split)
        names[split] = {line.split()[0] for line in lines if line}
    assert len(names["train"]) == 32
    # Words that only held-out documents contain are unknown. All words of training are known.
    assert "<unk>" not in names["train"]

    train, _ = stored(tmp_path / "out" / "data-bin", "train")
    first_words = [line.split()[0] for line in train if line]
    for name in names["train"]:
        assert first_words.count(name) == 25


def test_text_is_described_by_its_manifest(documents, tmp_path):
    manifest, done = prepare_corpus(builder(documents), tmp_path / "out")
    assert done
    # An empty line follows each document.
    assert manifest["splits"]["train"]["lines"] == 26 * 32
    assert manifest["unit"] == "document"
    assert manifest["identified_by"] is None
    assert DataFolder.open(tmp_path / "out" / "data-bin").manifest == manifest


def test_text_is_prepared_once(documents, tmp_path):
    manifest, _ = prepare_corpus(builder(documents), tmp_path / "out")
    assert prepare_corpus(builder(documents), tmp_path / "out") == (manifest, False)
    with pytest.raises(UserInputError, match="seed: 1 there, 2 now"):
        prepare_corpus(builder(documents, seed=2), tmp_path / "out")


def test_single_file_is_split_and_keeps_its_text(tmp_path, capsys):
    source = tmp_path / "book.anything"
    text = [f"Zeile {number}: {line} ß" for number, line in enumerate(sentences(1, 400))]
    source.write_text("\n".join(text), encoding="utf-8")
    command = ["prepare", "text", str(source), "--out", str(tmp_path / "out")]
    assert main([*command, "--workers", "1", "--vocab-size", "400"]) == 0
    data = tmp_path / "out" / "data-bin"
    assert str(data) in capsys.readouterr().out

    word_begin = "\N{LOWER ONE EIGHTH BLOCK}"
    plain = []
    sizes = {}
    for split in SPLITS:
        lines, _ = stored(data, split)
        sizes[split] = sum(map(len, lines))
        for line in lines:
            words = line.replace(" ", "").replace(word_begin, " ").strip()
            if words:
                plain.append(words)
    assert plain == text
    assert 0.04 < sizes["test"] / sum(sizes.values()) < 0.06


def test_member_in_another_encoding_is_named_with_its_archive(tmp_path):
    path = tmp_path / "texts.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "n\u00e4".encode("latin-1"))
    with pytest.raises(UserInputError, match=f"^{re.escape(str(path))}: a.txt is damaged"):
        list(_document_lines(path))
    plain = tmp_path / "a.txt"
    plain.write_bytes(b"\xe4")
    with pytest.raises(UserInputError, match=f"^{re.escape(str(plain))} is damaged"):
        list(_document_lines(plain))
