import pytest
from fairseq.data import Dictionary
from fairseq.data.encoders.gpt2_bpe_utils import get_encoder
from preparations import train_byte_level_bpe

from alibi_fairseq.data.tokenization import (
    WordPiece,
    train_sentencepiece,
)

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
