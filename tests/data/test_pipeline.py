"""The pipeline: its bytes against fairseq-preprocess, which makes the same from the same text, and its folder."""

from __future__ import annotations

import pytest
from commands import in_process
from fairseq.tasks import FairseqTask
from preparations import sentences

from alibi_fairseq.data import binarization, pipeline
from alibi_fairseq.data.binarization import binarize, text_parts
from alibi_fairseq.data.custom_text import CustomTextBuilder
from alibi_fairseq.data.pipeline import prepare
from alibi_fairseq.data.sources import single_spaced
from alibi_fairseq.data.tokenization import Words, train_sentencepiece
from alibi_fairseq.data.wikitext103 import count_words
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.files import locked

ODD = [
    "",
    " two  words\t",
    "<unk> </s> <s> <pad> of",
    "naïve € 日本\x85and\u2028 so",
    "a\r",
    "of the",
]


@pytest.mark.parametrize("kind", ["words", "sentencepiece"])
@pytest.mark.parametrize("workers", [1, 2])
def test_bytes_are_those_of_fairseq_preprocess(tmp_path, monkeypatch, kind, workers):
    monkeypatch.setattr(binarization, "_PART_BYTES", (2000, 2000))
    texts = {"train": sentences(1, 300) + ODD, "valid": ODD[::-1] + sentences(2, 30)}
    if kind != "words":
        texts = {split: [single_spaced(line) for line in lines] for split, lines in texts.items()}
    splits = {split: tmp_path / f"{split}.txt" for split in texts}
    for split, path in splits.items():
        path.write_text("\n".join(texts[split]), encoding="utf-8", newline="")
    if kind == "words":
        FairseqTask.build_dictionary([str(splits["train"])]).save(str(tmp_path / "dict.txt"))
        tokeniser, given = Words(tmp_path / "dict.txt"), []
    else:
        tokeniser = train_sentencepiece(texts["train"], tmp_path / "sp.model", 400)
        tokeniser.write_dictionary(tmp_path / "dict.txt")
        given = ["--srcdict", str(tmp_path / "dict.txt")]
    parts = [part for split, path in splits.items() for part in text_parts(path, split)]
    found = binarize(parts, tmp_path / "parts", tmp_path / "ours", tokeniser, workers)
    for split, path in splits.items():
        if kind == "words":
            given += [f"--{split}pref", str(path)]
            counts = count_words(path)
            assert all(counts[name] == found[split][name] for name in ("lines", "words", "tokens"))
        else:
            lines = path.read_text(encoding="utf-8").split("\n")
            pieces = (" ".join(tokeniser.names[i] for i in ids) for ids in tokeniser.encode(lines))
            (tmp_path / f"{split}.pieces").write_text("\n".join(pieces) + "\n")
            given += [f"--{split}pref", str(tmp_path / f"{split}.pieces")]
    in_process("preprocess", "--only-source", "--destdir", tmp_path / "theirs", *given)
    for split in splits:
        for suffix in (".bin", ".idx"):
            ours, theirs = (tmp_path / who / f"{split}{suffix}" for who in ("ours", "theirs"))
            assert ours.read_bytes() == theirs.read_bytes()
    assert (tmp_path / "dict.txt").read_bytes() == (tmp_path / "theirs/dict.txt").read_bytes()
    assert not [path for path in (tmp_path / "parts").iterdir() if path.suffix != ".json"]


def test_unknown_words_are_counted(tmp_path):
    (tmp_path / "dict.txt").write_text("a 2\nb 1\n")
    (tmp_path / "text").write_text("a b c\n\n<unk> a\n")
    words = Words(tmp_path / "dict.txt")
    parts = text_parts(tmp_path / "text", "test")
    found = binarize(parts, tmp_path / "parts", tmp_path / "out", words, 1)["test"]
    assert found == {"lines": 3, "words": 5, "bytes": 15, "tokens": 8, "unknown": 2, "items": 3}


@pytest.fixture
def interrupted(tmp_path, monkeypatch):
    """Prepares a text with a seed, until the text has been read."""
    (tmp_path / "text.txt").write_text("A line.\n" * 2000)

    def run(seed: int):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(pipeline, "binarize", interrupt)
            prepare(CustomTextBuilder([tmp_path / "text.txt"], "words", seed=seed), tmp_path)

    return run


def interrupt(*_):
    raise KeyboardInterrupt


def test_unfinished_data_is_of_one_preparation(interrupted, tmp_path, monkeypatch):
    interrupted(1)
    with pytest.raises(UserInputError, match="unfinished"):
        interrupted(2)
    with (
        locked(tmp_path / "work" / "lock", "--out", "preparation"),
        pytest.raises(UserInputError, match="another preparation"),
    ):
        interrupted(1)
    monkeypatch.setattr(
        CustomTextBuilder, "read", None
    )  # it has been read, and no refusal kept the lock
    interrupted(1)


def test_data_of_somebody_else_is_not_touched(tmp_path):
    (tmp_path / "text.txt").write_text("A line.\n" * 2000)
    (tmp_path / "data-bin").mkdir()
    (tmp_path / "data-bin" / "train.bin").write_bytes(b"precious")
    with pytest.raises(UserInputError, match=r"has no manifest\.json"):
        prepare(CustomTextBuilder([tmp_path / "text.txt"]), tmp_path)
    assert (tmp_path / "data-bin" / "train.bin").read_bytes() == b"precious"
