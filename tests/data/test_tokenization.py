import json

import pytest
from fairseq.data import Dictionary
from fairseq.data.encoders.gpt2_bpe_utils import get_encoder
from preparations import train_byte_level_bpe

from alibi_fairseq.data.tokenization import (
    ByteLevelBpe,
    SentencePiece,
    WordPiece,
    train_sentencepiece,
)
from alibi_fairseq.errors import UserInputError

LINES = [
    "the cat sat on the mat , and the cat was fat",
    "Zoë's naïve café cost 3.50 € – “far” too much",
    "<s> and </s> and <unk> and <pad> are words too",
    "x = {'a': [1, 2], \"b\": None}",
] * 30
UNSEEN = ["日本語 and 🎉 were never seen", "ThE CaT", "<unk> <s>"]


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory):
    return train_sentencepiece(LINES, tmp_path_factory.mktemp("sp") / "sp.model", 400)


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory):
    return train_byte_level_bpe(LINES, tmp_path_factory.mktemp("bpe"), 330)


def fairseq_indices(tokenizer, line, folder):
    """Return the indices of the tokenized line in fairseq-preprocess, and its dictionary."""
    tokenizer.write_dictionary(folder / "dict.txt")
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    text = " ".join(tokenizer.names[i] for i in tokenizer.encode([line])[0])
    return dictionary.encode_line(text, add_if_not_exist=False).tolist(), dictionary


@pytest.mark.parametrize("kind", ["sentencepiece", "byte_level"])
@pytest.mark.parametrize("line", LINES[:4] + UNSEEN)
def test_token_ids_plus_offset_equal_fairseq_indices(kind, line, request, tmp_path):
    tokenizer = request.getfixturevalue(kind)
    indices, dictionary = fairseq_indices(tokenizer, line, tmp_path)
    ids = tokenizer.encode([line])[0]
    assert [token_id + tokenizer.offset for token_id in ids] + [dictionary.eos()] == indices
    assert dictionary.unk() not in indices
    if kind == "sentencepiece":
        assert tokenizer._model.decode(ids) == line
    assert len(dictionary) == len(tokenizer.names) + tokenizer.offset


def test_byte_level_bpe_equals_fairseq_encoder(byte_level):
    encoder = get_encoder(*map(str, byte_level.files))
    for line in LINES[:4] + UNSEEN:
        assert byte_level.encode([line])[0] == encoder.encode(line)


@pytest.mark.parametrize("cased", [True, False])
def test_wordpiece_equals_transformers(cased, tmp_path):
    from transformers import BertTokenizer

    words = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on mat , . ' “ ” fat ##s ##y cafe was to"
    words += " café The Cat" if cased else ""
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(words.split()) + "\n")
    tokenizer = WordPiece(path)
    assert tokenizer.lower_case is not cased
    reference = BertTokenizer(str(path), do_lower_case=not cased)
    for line in ["The cats sat on the fatty mat , “ Café ” was", "the café's cat . catsy"]:
        ids = tokenizer.encode([line])[0]
        assert [tokenizer.names[token_id] for token_id in ids] == reference.tokenize(line)
        indices, dictionary = fairseq_indices(tokenizer, line, tmp_path)
        assert [token_id + tokenizer.offset for token_id in ids] + [2] == indices
    assert len(dictionary) == len(words.split()) + 4


@pytest.mark.parametrize("content", ["the\nthe\n", "the\ncat\n", "[UNK]\n[CLS]\n[SEP]\na\na\n"])
def test_wordpiece_rejects_other_files(tmp_path, content):
    (tmp_path / "vocab.txt").write_text(content)
    with pytest.raises(UserInputError, match=r"vocab\.txt"):
        WordPiece(tmp_path / "vocab.txt")


def test_byte_level_bpe_rejects_gaps_in_token_ids(byte_level, tmp_path):
    encoder, merges = byte_level.files
    ids = json.loads(encoder.read_text())
    last = max(ids, key=ids.get)
    (tmp_path / "encoder.json").write_text(json.dumps({**ids, last: ids[last] + 1}))
    with pytest.raises(UserInputError, match=r"encoder\.json"):
        ByteLevelBpe(tmp_path / "encoder.json", merges)


def test_dictionary_rejects_pieces_with_white_space(sentencepiece, tmp_path):
    broken = SentencePiece(sentencepiece.files[0])
    broken.names[5] = "a\u00a0b"
    with pytest.raises(UserInputError, match="whitespace"):
        broken.write_dictionary(tmp_path / "dict.txt")
    assert not list(tmp_path.iterdir())
