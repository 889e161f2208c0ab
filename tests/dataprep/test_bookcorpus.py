import json
import shutil

import pytest
from fairseq.data import Dictionary, data_utils
from killing import files_of, killed_at
from preparations import books, sentences, tarred
from sacremoses import MosesPunctNormalizer

from alibi_fairseq.dataprep import binarise, bookcorpus
from alibi_fairseq.dataprep import books as reading
from alibi_fairseq.dataprep.tokenisers import SentencePiece
from alibi_fairseq.errors import BadInput

SETTINGS = dict(held_out=10, vocabulary=400)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return books(tmp_path_factory.mktemp("books") / "books")


@pytest.fixture(scope="module")
def prepared(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("prepared") / "out"
    manifest, done = bookcorpus.prepare([folder], out, workers=2, **SETTINGS)
    assert done
    return out, manifest


@pytest.fixture
def no_preprocess(monkeypatch):
    """fairseq-preprocess takes seconds to start: a stand-in where its output is not looked at."""

    def pretend(texts, destination, *, expected_tokens, dictionary, workers):
        destination.mkdir()
        shutil.copy(dictionary, destination / "dict.txt")
        for split, path in texts.items():
            shutil.copy(path, destination / f"{split}.pieces")

    monkeypatch.setattr(bookcorpus, "binarise", pretend)


def split_of(out):
    rows = (out / "data-bin" / "splits.tsv").read_text().splitlines()[1:]
    return {row.split("\t")[3]: row.split("\t")[0] for row in rows}


def lines_of(data_bin, split, model):
    dictionary = Dictionary.load(str(data_bin / "dict.txt"))
    items = data_utils.load_indexed_dataset(str(data_bin / split), dictionary)
    return [model._model.decode(dictionary.string(item).split()) for item in items], items.sizes


def test_binary_data_holds_whole_normalised_books(prepared, folder):
    out, manifest = prepared
    data_bin = out / "data-bin"
    model = SentencePiece(data_bin / "sentencepiece.model")
    normalise = MosesPunctNormalizer("en").normalize
    splits = split_of(out)
    for split in ("train", "valid", "test"):
        lines, sizes = lines_of(data_bin, split, model)
        found = "\n".join(lines).split("\n\n")
        names = [name for name, where in splits.items() if where == split]
        expected = []
        for name in names:
            raw = (folder / name).read_text(encoding="utf-8").split("\n")
            expected.append("\n".join(" ".join(normalise(line).split()) for line in raw if line))
        assert sorted(book.strip() for book in found if book) == sorted(expected)
        text = "".join(line + "\n" for line in lines)
        assert manifest["splits"][split] == {
            "lines": len(lines),
            "words": len(text.split()),
            "bytes": len(text.encode()),
            "tokens": int(sizes.sum()),
            "unknown": 0,
            "books": len(names),
        }
    assert '"Quoted" - text...' in lines
    assert manifest["dictionary"]["entries"] == 400
    assert manifest["corpus"] == "books"
    assert manifest["identified_by"] is None


def test_near_duplicates_are_in_one_split(prepared):
    splits = split_of(prepared[0])
    assert splits["book00.txt"] == splits["book11.txt"]
    assert prepared[1]["near_duplicate_groups"] == 11


def test_archive_gives_the_same_data_and_the_list_the_same_split(
    prepared, folder, tmp_path, no_preprocess
):
    settings = {**SETTINGS, "workers": 1}
    archive = tarred(folder, tmp_path / "books.tar.xz")
    bookcorpus.prepare([folder], tmp_path / "a", **settings)
    bookcorpus.prepare([archive], tmp_path / "b", **settings)
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")
    assert split_of(tmp_path / "a") == split_of(prepared[0])
    shared = prepared[0] / "data-bin" / "splits.tsv"
    bookcorpus.prepare([folder], tmp_path / "c", seed=2, **settings)
    assert split_of(tmp_path / "c") != split_of(prepared[0])
    bookcorpus.prepare([folder], tmp_path / "d", seed=2, split_list=shared, **settings)
    assert split_of(tmp_path / "d") == split_of(prepared[0])


def test_second_run_does_nothing(prepared, folder, monkeypatch):
    monkeypatch.setattr(bookcorpus, "units", None)
    again, done = bookcorpus.prepare([folder], prepared[0], **SETTINGS)
    assert not done
    assert again == json.loads(json.dumps(prepared[1]))


@pytest.mark.slow
def test_killed_again_and_again_gives_the_same_bytes(prepared, folder, tmp_path):
    """Each run gets a little further than the one before, and is killed there."""
    kills = 0
    while killed_at(kills + 1, kills % 2 == 0, bookcorpus.prepare, [folder], tmp_path, **SETTINGS):
        kills += 1
    assert kills >= 5
    assert files_of(tmp_path) == files_of(prepared[0])


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(reading, "LINES_PER_BLOCK", 50)


@pytest.fixture
def line_file(tmp_path):
    path = tmp_path / "bookcorpus" / "books_large_p1.txt"
    path.parent.mkdir()
    path.write_text("".join(line + "\n" for line in sentences(1, 1000)))
    return path


def test_line_edition_is_checked_and_split_in_runs(
    line_file, tmp_path, monkeypatch, small_blocks, no_preprocess
):
    settings = {**SETTINGS, "vocabulary": 320}
    lines = line_file.read_text().splitlines()
    tokens = len(line_file.read_text().split())
    with pytest.raises(
        BadInput, match=f"1,000 lines and {tokens:,} tokens, expected 74,004,228 and 984,846,357"
    ):
        bookcorpus.prepare([line_file], tmp_path / "out", **settings)
    assert not (tmp_path / "out").exists()
    manifest, _ = bookcorpus.prepare(
        [line_file], tmp_path / "other", allow_other_text=True, **settings
    )
    assert (manifest["corpus"], manifest["unit"]) == ("other-text", "block of lines")
    monkeypatch.setattr(bookcorpus, "LINES", 1000)
    monkeypatch.setattr(bookcorpus, "TOKENS", tokens)
    packed = tarred(line_file.parent, tmp_path / "packed.tar.bz2")
    for name, source in (("file", line_file), ("archive", packed)):
        manifest, _ = bookcorpus.prepare([source], tmp_path / name, **settings)
        assert (manifest["corpus"], manifest["identified_by"]) == ("bookcorpus", "lines and tokens")
    splits = list(split_of(tmp_path / "file").values())
    assert len(splits) == 20
    assert splits.count("valid") == splits.count("test") == 2
    model = SentencePiece(tmp_path / "file" / "data-bin" / "sentencepiece.model")
    valid = (tmp_path / "file" / "data-bin" / "valid.pieces").read_text().splitlines()
    first = 50 * splits.index("valid")
    found = [model._model.decode(line.split()) for line in valid]
    assert found == lines[first : first + 100]


def test_wordpiece_of_the_user(folder, tmp_path, no_preprocess):
    vocabulary = tmp_path / "vocab.txt"
    letters = 'abcdefghijklmnopqrstuvwxyz0123456789I".,-'
    vocabulary.write_text(
        "\n".join(["[SEP]", "[UNK]", "[CLS]", *letters, *("##" + x for x in letters)])
    )
    manifest, _ = bookcorpus.prepare([folder], tmp_path / "out", held_out=10, wordpiece=vocabulary)
    assert manifest["tokenizer"]["kind"] == "wordpiece"
    assert manifest["dictionary"]["entries"] == 3 + 2 * len(letters) + 4
    assert (tmp_path / "out" / "data-bin" / "vocab.txt").exists()


def test_bad_sources_leave_nothing(folder, tmp_path):
    out = tmp_path / "out"
    (tmp_path / "empty").mkdir()
    for source, words in [
        (tmp_path / "none", "no such file or folder"),
        (tmp_path / "empty", "no text files"),
    ]:
        with pytest.raises(BadInput, match=words):
            bookcorpus.prepare([source], out)
    (tmp_path / "few").mkdir()
    shutil.copy(folder / "book01.txt", tmp_path / "few")
    (tmp_path / "few" / "blank.txt").write_text(" \n")
    with pytest.raises(BadInput, match="1 books in 1 groups"):
        bookcorpus.prepare([tmp_path / "few"], out)
    shutil.rmtree(out)
    (tmp_path / "few" / "latin.txt").write_bytes("naïve".encode("latin-1"))
    with pytest.raises(BadInput, match=r"latin\.txt is not UTF-8"):
        bookcorpus.prepare([tmp_path / "few"], out)
    with pytest.raises(BadInput, match="held-out is a percentage"):
        bookcorpus.prepare([folder], out, held_out=0)
    with pytest.raises(BadInput, match="not a readable WordPiece"):
        bookcorpus.prepare([folder], out, wordpiece=tmp_path / "none.txt")
    with pytest.raises(BadInput, match="none.tsv: cannot be read"):
        bookcorpus.prepare([folder], out, split_list=tmp_path / "none.tsv")
    assert not out.exists()


def test_vocabulary_that_is_too_large_is_refused(folder, tmp_path):
    with pytest.raises(BadInput, match="too small for a vocabulary of 29,000: at most"):
        bookcorpus.prepare([folder], tmp_path / "out", held_out=10)
    assert not (tmp_path / "out" / "data-bin").exists()


def test_preprocess_stand_in_takes_what_binarise_takes():
    import inspect

    wanted = {"texts", "destination", "expected_tokens", "dictionary", "workers"}
    assert set(inspect.signature(binarise.binarise).parameters) == wanted
