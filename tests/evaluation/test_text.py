"""Words and bytes counted in tokens, compared with the original text."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import sentencepiece
from conftest import describe
from fairseq.data import Dictionary

from alibi_fairseq.evaluation.split import Split, load_dictionary, load_split
from alibi_fairseq.evaluation.text_size import WORD_MARK, TextSize, measure_text_size
from alibi_fairseq.evaluation.windows import Span
from alibi_fairseq.results.data_folder import DataFolder

TEXT = ["the quick brown fox", "jumps over", "", "the lazy dög and the fox ", "x"]


def binarized(lines: list[list[str]], vocabulary: list[str]):
    dictionary = Dictionary()
    for symbol in vocabulary:
        dictionary.add_symbol(symbol)
    token_ids = []
    for line in lines:
        token_ids.append([*map(dictionary.index, line), dictionary.eos()])
    starts = np.cumsum([0] + [len(line) for line in token_ids[:-1]])
    return np.concatenate(token_ids), starts, dictionary


def sizes(lines: list[str]) -> TextSize:
    text = "".join(line + "\n" for line in lines)
    return TextSize(len(text.split()) + len(lines), len(text.encode()))


@pytest.mark.parametrize("dummy_prefix", [True, False])
@pytest.mark.parametrize("byte_fallback", [True, False])
def test_text_size_matches_sentencepiece_model(tmp_path, dummy_prefix, byte_fallback):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(line for line in TEXT if line) * 20, encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus),
        model_prefix=str(tmp_path / "sp"),
        vocab_size=290 if byte_fallback else 36,
        model_type="bpe",
        character_coverage=1.0,
        add_dummy_prefix=dummy_prefix,
        byte_fallback=byte_fallback,
        minloglevel=2,
    )
    model = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "sp.model"))
    lines = [line.strip() for line in TEXT]
    if byte_fallback:
        lines[4] = "€ x€"  # unseen: three bytes each
    vocabulary = [model.id_to_piece(i) for i in range(model.vocab_size())]
    vocabulary = [piece for piece in vocabulary if not model.is_control(model.piece_to_id(piece))]
    pieces = [model.encode(line, out_type=str) for line in lines]
    tokens, starts, dictionary = binarized(pieces, vocabulary)
    assert measure_text_size(tokens, starts, dictionary) == sizes(lines)
    # fairseq's items can have several lines, as in CC100+RoBERTa, where they are documents.
    for items in (starts[:1], starts[[0, 3]]):
        assert measure_text_size(tokens, items, dictionary) == sizes(lines)


def test_scored_tokens_of_a_document_with_several_lines_have_their_own_bytes():
    piece = f"{WORD_MARK}ab"
    tokens, _, dictionary = binarized([[piece, piece], [piece, piece, piece]], [piece])
    document = Split("test", tokens, np.array([0]), dictionary, TextSize())
    # "ab", and " ab ab" and a newline, which don't begin a line.
    spans = [Span(0, 0, 1), Span(0, 4, 7)]
    assert document.scored_text_size(spans) == TextSize(words=4, bytes=9)
    # "ab ab" and a newline, and " ab": no line starts at the end of the first span.
    assert document.scored_text_size([Span(0, 0, 3), Span(0, 4, 5)]) == TextSize(4, 9)
    # A newline, and "ab" at the start of the second line.
    assert document.scored_text_size([Span(0, 2, 4)]) == TextSize(words=2, bytes=3)


@pytest.mark.parametrize(
    ("lines", "words", "size"),
    [
        # In the text, "don't" is one word.
        ([["the", "qui", "##ck", "fox"], [], ["don", "'", "t", "jump", "##s"]], None, None),
        # Few marked tokens, but many marked pieces.
        ([[f"{WORD_MARK}the", *["fox"] * 200]], 1 + 1, len("the" + 200 * "fox" + "\n")),
        # Too few marked pieces.
        ([[f"{WORD_MARK}s", *(f"w{word}" for word in range(100))]], None, None),
        ([["the", "fox"]], None, None),
        ([[f"{WORD_MARK}the", "fox"]], 1 + 1, len("thefox\n")),
        ([[f"{WORD_MARK}the", "<unk>"]], None, None),  # the size of an unknown word is unknown
    ],
)
def test_text_size_by_word_marks(lines, words, size):
    vocabulary = sorted({piece for line in lines for piece in line if piece != "<unk>"})
    assert measure_text_size(*binarized(lines, vocabulary)) == TextSize(words, size)


def test_text_size_without_spaces_is_recognized_by_byte_pieces():
    vocabulary = [f"<0x{byte:02X}>" for byte in range(256)]
    vocabulary += [WORD_MARK, "天", "地"]
    pieces = [WORD_MARK, *["天", "地"] * 100]
    assert measure_text_size(*binarized([pieces], vocabulary)) == sizes(["天地" * 100])


def test_tokenizer_kind_replaces_the_guess():
    pieces = [f"{WORD_MARK}天", *(f"地{number}" for number in range(200))]
    arguments = binarized([pieces], pieces)
    assert measure_text_size(*arguments) == TextSize()
    text = "".join(pieces).replace(WORD_MARK, "")
    assert measure_text_size(*arguments, "sentencepiece-bpe") == sizes([text])
    marked = binarized([[f"{WORD_MARK}the"]], [f"{WORD_MARK}the"])
    assert measure_text_size(*marked, "words") == TextSize()


def test_text_size_of_manifest_takes_precedence(trained, tmp_path):
    data = tmp_path / "data-bin"
    shutil.copytree(trained.data, data)
    dictionary = load_dictionary(data)
    split = load_split(DataFolder.open(data), "valid", dictionary)
    assert DataFolder.open(data).corpus == tmp_path.name
    counts = {"lines": 10, "words": 100, "bytes": 1000, "tokens": len(split.tokens)}

    describe(data, valid=counts)
    assert DataFolder.open(data).corpus == "small-text"
    described = load_split(DataFolder.open(data), "valid", dictionary)
    assert described.text_size == TextSize(words=110, bytes=1000)
    describe(data, valid={**counts, "unknown": 1})
    with_unknown = load_split(DataFolder.open(data), "valid", dictionary)
    assert with_unknown.text_size == TextSize()
    undescribed = load_split(DataFolder.open(data), "test", dictionary)
    assert undescribed.text_size.words != 110
