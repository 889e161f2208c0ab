"""Token IDs of exported tokenizers compared with fairseq-preprocess."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from fairseq.data import Dictionary
from tokenizers.implementations import ByteLevelBPETokenizer
from trained import binarize, make_sentencepiece, text_of
from transformers import AutoTokenizer, PreTrainedConfig

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.evaluation.split import load_dictionary, load_split
from alibi_fairseq.evaluation.text_size import TextSize
from alibi_fairseq.evaluation.windows import Span
from alibi_fairseq.huggingface.export import build_tokenizer, check_tokenizer, find_tokenizer_files
from alibi_fairseq.huggingface.text_file import read_documents, tokenize_documents
from alibi_fairseq.results.data_folder import DataFolder

#: Text with fairseq's symbols, words and characters unseen in training, and unusual spaces.
UNUSUAL_LINES = [
    "the <unk> of </s> and <s> is <pad> in",
    "(<unk>) the</s> zebra<unk> , \N{LATIN SMALL LETTER E WITH ACUTE}\N{SNOWMAN}\N{SNOWMAN} the",
    "the\N{NO-BREAK SPACE}of\N{IDEOGRAPHIC SPACE}and  a\tb  ",
    "",
    "  the Of AND 2026 x=y_z",
]


def as_written() -> dict[str, list[str]]:
    return {"train": text_of("train"), "valid": text_of("valid") + UNUSUAL_LINES}


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    return binarize(folder, as_written()), {}


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pieces")
    model = make_sentencepiece(folder / "pieces.model")
    data = binarize(folder, as_written(), lambda line: " ".join(model.encode(line, out_type=str)))
    listed = load_dictionary(data).indices
    assert sum(model.id_to_piece(i) not in listed for i in range(3, len(model))) > 3
    return data, {"sentencepiece_file": folder / "pieces.model"}


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bytes")
    model = ByteLevelBPETokenizer()
    model.train_from_iterator(text_of("train"), vocab_size=400, show_progress=False)
    model.save_model(str(folder))
    (folder / "vocab.json").rename(folder / "encoder.json")
    (folder / "merges.txt").rename(folder / "vocab.bpe")
    data = binarize(folder, as_written(), lambda line: " ".join(map(str, model.encode(line).ids)))
    return data, {"encoder_file": folder / "encoder.json", "merges_file": folder / "vocab.bpe"}


@pytest.mark.parametrize(("kind", "separator"), [("pieces", " "), ("byte_level", "")])
def test_decoding_joins_lines_without_special_tokens(kind, separator, request):
    tokenizer = build_tokenizer(*request.getfixturevalue(kind))
    tokens = tokenizer("the of\nand")["input_ids"]
    assert tokenizer.decode(tokens) == "the of\nand"
    assert tokenizer.decode(tokens, skip_special_tokens=True) == f"the of{separator}and"


@pytest.mark.parametrize("kind", ["words", "pieces", "byte_level"])
def test_token_ids_of_real_text(kind, request, tmp_path):
    data, files = request.getfixturevalue(kind)
    tokenizer = build_tokenizer(data, files)
    if kind != "words":
        tokenizer.register_for_auto_class()
    tokenizer.save_pretrained(tmp_path / "once")
    remote = {"trust_remote_code": kind != "words"}
    loaded = AutoTokenizer.from_pretrained(tmp_path / "once", **remote)
    loaded.save_pretrained(tmp_path / "twice")
    resaved = AutoTokenizer.from_pretrained(tmp_path / "twice", **remote)
    for split in ("train", "valid"):
        stored = load_split(DataFolder.open(data), split, load_dictionary(data))
        lines = as_written()[split]
        for tokenizer in (loaded, resaved):
            text = "".join(f"{line}\n" for line in lines)
            assert tokenizer(text)["input_ids"] == stored.tokens.tolist()
            bounds = [*stored.item_starts[1:], len(stored.tokens)]
            begin = 0
            for line, end in zip(lines, bounds, strict=True):
                assert tokenizer(line)["input_ids"] == stored.tokens[begin : end - 1].tolist()
                begin = end
    assert (loaded.eos_token_id, loaded.bos_token_id, loaded.pad_token_id) == (2, 2, 1)
    assert loaded.unk_token_id == 3
    assert len(loaded) == len(load_dictionary(data))
    batch = loaded(["the of and", "the"], padding=True)
    # Padding is on the left.
    assert batch["input_ids"][1][0] == 1
    assert batch["attention_mask"][1][0] == 0
    lines = text_of("train")
    texts = [lines[0]]
    if kind == "pieces":
        texts.append("\n".join(lines[:3]) + "\n")
    assert [loaded.decode(loaded(text)["input_ids"]) for text in texts] == texts


def test_pieces_without_tokenizer_are_rejected(pieces, byte_level, words):
    for data, files in (pieces, byte_level):
        folder = DataFolder.open(data)
        with pytest.raises(UserInputError, match="--tokenizer-files"):
            find_tokenizer_files(folder, load_dictionary(data), [])
        assert find_tokenizer_files(folder, load_dictionary(data), [*files.values()]) == files
    data, _ = words
    folder = DataFolder.open(data)
    dictionary = load_dictionary(data)
    assert find_tokenizer_files(folder, dictionary, []) == {}
    vocabulary = [data / "vocab.txt"]
    assert [*find_tokenizer_files(folder, dictionary, vocabulary)] == ["wordpiece_file"]


def test_different_tokenizer_is_rejected(pieces, tmp_path):
    data, files = pieces
    make_sentencepiece(tmp_path / "other.model", vocabulary=120)
    split = load_split(DataFolder.open(data), "train", load_dictionary(data))
    check_tokenizer(build_tokenizer(data, files), split)
    other_tokenizer = build_tokenizer(data, {"sentencepiece_file": tmp_path / "other.model"})
    with pytest.raises(UserInputError, match="does not match"):
        check_tokenizer(other_tokenizer, split)


@pytest.mark.parametrize(
    ("text", "size"), [("the the\n", TextSize(3, 8)), ("the snowman\n", TextSize())]
)
def test_text_with_unknown_piece_has_no_bytes(tmp_path, text, size):
    (tmp_path / "dict.txt").write_text("the 3\n[UNK] 2\n")
    (tmp_path / "vocab.txt").write_text("[UNK]\n[CLS]\n[SEP]\nthe\n")
    tokenizer = build_tokenizer(tmp_path, {"wordpiece_file": tmp_path / "vocab.txt"})
    folder = SimpleNamespace(
        path=tmp_path,
        tokenizer=tokenizer,
        config=PreTrainedConfig(vocab_size=len(tokenizer)),
        first_input=tokenizer.eos_token_id,
    )
    (tmp_path / "text.txt").write_text(text)
    file = tokenize_documents(read_documents(tmp_path / "text.txt"), folder)
    assert file.scored_text_size([Span(0, 0, len(file.tokens))]) == size


def test_dictionary_may_overwrite_special_symbols(tmp_path):
    (tmp_path / "dict.txt").write_text("the 3\n<unk> 2 #fairseq:overwrite\nof 1\n")
    assert build_tokenizer(tmp_path, {})("the <unk> of")["input_ids"] == [4, 5, 6]
    assert Dictionary.load(str(tmp_path / "dict.txt")).index("<unk>") == 5


def test_added_tokens_are_found(pieces, tmp_path):
    data, files = pieces
    tokenizer = build_tokenizer(data, files)
    parts = ["the of\n", "and </s> in"]
    first, second = (tokenizer(part)["input_ids"] for part in parts)
    tokenizer.register_for_auto_class()
    tokenizer.add_tokens(["<sep>", "<sep>>"])
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path, trust_remote_code=True)
    for extended in (tokenizer, loaded):
        short, long = extended.convert_tokens_to_ids(["<sep>", "<sep>>"])
        assert len({short, long, extended.unk_token_id}) == 3
        text = "<sep>>".join(parts) + "<sep>"
        assert extended(text)["input_ids"] == [*first, long, *second, short]


def test_added_tokens_of_byte_level_tokenizer_are_decoded(byte_level):
    data, files = byte_level
    tokenizer = build_tokenizer(data, files)
    tokenizer.add_tokens(["<sep>"])
    text = text_of("train")[0]
    assert tokenizer.decode(tokenizer(f"{text}<sep>{text}")["input_ids"]) == f"{text}<sep>{text}"
