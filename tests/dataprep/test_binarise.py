"""Text to binary data by way of the shared functions, read back with fairseq's own classes."""

import subprocess

import pytest
from fairseq.data import Dictionary, data_utils

from alibi_fairseq.dataprep.binarise import binarise
from alibi_fairseq.dataprep.encode import encode_file
from alibi_fairseq.dataprep.text import count_text
from alibi_fairseq.dataprep.tokenisers import SentencePiece, train_sentencepiece
from alibi_fairseq.errors import BadInput


def test_text_comes_back_from_the_binary_data(tmp_path):
    lines = {
        "train": [f"line {n} of the training text , naïve € text" for n in range(300)],
        "valid": ["a line", "", "日本 and more"],
    }
    counts, pieces = {}, {}
    for split, text in lines.items():
        (tmp_path / f"{split}.txt").write_text("".join(line + "\n" for line in text))
    model = tmp_path / "sp.model"
    tokeniser = train_sentencepiece(lines["train"], model, 320)
    tokeniser.write_dictionary(tmp_path / "dict.txt")
    for split in lines:
        pieces[split] = tmp_path / f"{split}.pieces"
        counts[split] = encode_file(
            tmp_path / f"{split}.txt", pieces[split], SentencePiece, (str(model),), workers=2
        )
    binarise(
        pieces,
        tmp_path / "data-bin",
        expected_tokens={split: counts[split]["tokens"] for split in lines},
        dictionary=tmp_path / "dict.txt",
        workers=2,
    )
    assert sorted(p.name for p in (tmp_path / "data-bin").iterdir()) == [
        *("dict.txt", "train.bin", "train.idx", "valid.bin", "valid.idx")
    ]
    dictionary = Dictionary.load(str(tmp_path / "data-bin" / "dict.txt"))
    for split, text in lines.items():
        items = data_utils.load_indexed_dataset(str(tmp_path / "data-bin" / split), dictionary)
        back = [tokeniser._model.decode(dictionary.string(i).split()) for i in items]
        assert back == text
        assert counts[split] == {
            "lines": len(text),
            "words": len(" ".join(text).split()),
            "bytes": (tmp_path / f"{split}.txt").stat().st_size,
            "tokens": int(items.sizes.sum()),
            "unknown": 0,
        }


def test_failing_and_wrong_runs_leave_no_data(tmp_path):
    text = tmp_path / "train.txt"
    text.write_text("a b c\n")
    (tmp_path / "dict.txt").write_text("not a dictionary\n")
    with pytest.raises(BadInput, match="fairseq-preprocess failed"):
        binarise(
            {"train": text},
            tmp_path / "data-bin",
            expected_tokens={"train": 4},
            dictionary=tmp_path / "dict.txt",
        )
    with pytest.raises(RuntimeError, match="4 tokens for train instead of 5"):
        binarise({"train": text}, tmp_path / "data-bin", expected_tokens={"train": 5})
    assert not (tmp_path / "data-bin").exists()


def test_counts_are_those_of_wc(tmp_path):
    text = tmp_path / "text"
    text.write_text("two words\n\n one\tmore: naïve €\nno end")
    counts = count_text(text)
    lines, words, size = subprocess.check_output(["wc", "-lwc", text], env={"LC_ALL": "C.UTF-8"})[
        :-1
    ].split()[:3]
    assert counts.lines == int(lines) + 1  # wc does not count a line without an end
    assert (counts.words, counts.bytes) == (int(words), int(size))


def test_text_in_another_encoding_is_named(tmp_path):
    text = tmp_path / "latin.txt"
    text.write_bytes("naïve\n".encode("latin-1"))
    with pytest.raises(BadInput, match=r"latin\.txt is not UTF-8"):
        count_text(text)
    model = tmp_path / "sp.model"
    train_sentencepiece(["a b c"] * 9, model, 265)
    with pytest.raises(BadInput, match=r"latin\.txt is not UTF-8"):
        encode_file(text, tmp_path / "out", SentencePiece, (model,))
    assert not (tmp_path / "out").exists()
