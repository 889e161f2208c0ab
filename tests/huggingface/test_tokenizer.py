"""Tokenisers give the numbers that fairseq-preprocess gave."""

from __future__ import annotations

import pytest
import sentencepiece
from commands import in_process
from fairseq.data import Dictionary
from tokenizers.implementations import ByteLevelBPETokenizer
from trained import text_of
from transformers import AutoTokenizer

from alibi_fairseq.errors import BadInput
from alibi_fairseq.evaluation.data import load_dictionary, load_split
from alibi_fairseq.huggingface.tokenizer import (
    build_tokenizer,
    check_tokenizer,
    find_files,
)

#: Symbols of fairseq in the text, words and characters that training never saw, exotic spaces.
STRANGE = [
    "the <unk> of </s> and <s> is <pad> in",
    "(<unk>) the</s> zebra<unk> , \N{LATIN SMALL LETTER E WITH ACUTE}\N{SNOWMAN}\N{SNOWMAN} the",
    "the\N{NO-BREAK SPACE}of\N{IDEOGRAPHIC SPACE}and  a\tb  ",
    "",
    "  the Of AND 2026 x=y_z",
]


def binarise(folder, lines: dict[str, list[str]]):
    """fairseq-preprocess over lines of pieces."""
    prefixes = []
    for split, content in lines.items():
        (folder / f"{split}.pieces").write_text("".join(f"{line}\n" for line in content), "utf-8")
        prefixes += [f"--{split}pref", folder / f"{split}.pieces"]
    data = folder / "data-bin"
    in_process("preprocess", "--only-source", *prefixes, "--destdir", data, "--workers", 1)
    return data


def as_written() -> dict[str, list[str]]:
    return {"train": text_of("train"), "valid": text_of("valid") + STRANGE}


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    return binarise(folder, as_written()), {}


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pieces")
    lines = as_written()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines["train"]),
        model_prefix=str(folder / "pieces"),
        model_type="bpe",
        vocab_size=300,
        minloglevel=2,
    )
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "pieces.model"))
    encoded = {
        split: [" ".join(model.encode(x, out_type=str)) for x in lines[split]] for split in lines
    }
    data = binarise(folder, encoded)
    listed = load_dictionary(data).indices
    assert sum(model.id_to_piece(i) not in listed for i in range(3, len(model))) > 3
    return data, {"sentencepiece_file": folder / "pieces.model"}


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bytes")
    lines = as_written()
    model = ByteLevelBPETokenizer()
    model.train_from_iterator(lines["train"], vocab_size=400, show_progress=False)
    model.save_model(str(folder))
    (folder / "vocab.json").rename(folder / "encoder.json")
    (folder / "merges.txt").rename(folder / "vocab.bpe")
    encoded = {
        split: [" ".join(map(str, model.encode(x).ids)) for x in lines[split]] for split in lines
    }
    data = binarise(folder, encoded)
    return data, {"encoder_file": folder / "encoder.json", "merges_file": folder / "vocab.bpe"}


@pytest.mark.parametrize("kind", ["words", "pieces", "byte_level"])
def test_numbers_of_real_text(kind, request, tmp_path):
    data, files = request.getfixturevalue(kind)
    build_tokenizer(data, files).register_for_auto_class() if kind != "words" else None
    build_tokenizer(data, files).save_pretrained(tmp_path / "once")
    remote = {"trust_remote_code": kind != "words"}
    loaded = AutoTokenizer.from_pretrained(tmp_path / "once", **remote)
    loaded.save_pretrained(tmp_path / "twice")
    again = AutoTokenizer.from_pretrained(tmp_path / "twice", **remote)
    for split in ("train", "valid"):
        stored = load_split(data, split, load_dictionary(data))
        lines = as_written()[split]
        for tokenizer in (loaded, again):
            text = "".join(f"{line}\n" for line in lines)
            assert tokenizer(text)["input_ids"] == stored.tokens.tolist()
            bounds = [*stored.line_starts[1:], len(stored.tokens)]
            begin = 0
            for line, end in zip(lines, bounds):
                assert tokenizer(line)["input_ids"] == stored.tokens[begin : end - 1].tolist()
                begin = end
    assert (loaded.eos_token_id, loaded.bos_token_id, loaded.pad_token_id) == (2, 2, 1)
    assert loaded.unk_token_id == 3 and len(loaded) == len(load_dictionary(data))
    batch = loaded(["the of and", "the"], padding=True)
    assert batch["input_ids"][1][0] == 1 and batch["attention_mask"][1][0] == 0  # on the left
    line = text_of("train")[0]
    assert loaded.decode(loaded(line)["input_ids"]) == line


def test_pieces_come_back_as_lines(pieces):
    tokenizer = build_tokenizer(*pieces)
    text = "\n".join(text_of("train")[:3]) + "\n"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_pieces_without_their_tokeniser_are_refused(pieces, byte_level, words):
    for data, files in (pieces, byte_level):
        with pytest.raises(BadInput, match="--tokenizer"):
            find_files(data, load_dictionary(data), [])
        assert find_files(data, load_dictionary(data), [*files.values()]) == files
    data, _ = words
    assert find_files(data, load_dictionary(data), []) == {}
    assert [*find_files(data, load_dictionary(data), [data / "vocab.txt"])] == ["wordpiece_file"]


def test_another_tokeniser_does_not_match(pieces, tmp_path):
    data, files = pieces
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text_of("train")),
        model_prefix=str(tmp_path / "other"),
        model_type="bpe",
        vocab_size=120,
        minloglevel=2,
    )
    split = load_split(data, "train", load_dictionary(data))
    check_tokenizer(build_tokenizer(data, files), split)
    other = build_tokenizer(data, {"sentencepiece_file": tmp_path / "other.model"})
    with pytest.raises(BadInput, match="does not match"):
        check_tokenizer(other, split)


def test_symbols_that_overwrite_special_ones(tmp_path):
    (tmp_path / "dict.txt").write_text("the 3\n<unk> 2 #fairseq:overwrite\nof 1\n")
    assert build_tokenizer(tmp_path, {})("the <unk> of")["input_ids"] == [4, 5, 6]
    assert Dictionary.load(str(tmp_path / "dict.txt")).index("<unk>") == 5
