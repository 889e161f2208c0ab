"""Tokenisers behind one interface: words, sentencepiece BPE, BERT WordPiece, byte-level BPE.

A tokeniser turns lines into its own numbers; ``number + offset`` is the index in fairseq's
dictionary, because ``dict.txt`` lists the pieces in the order of their numbers.
"""

from __future__ import annotations

import io
import os
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..errors import UserInputError
from ..files import atomic_write

SPECIAL = 4  # fairseq's <s>, <pad>, </s>, <unk> come first in every dictionary
UNKNOWN, END_OF_LINE = 3, 2  # their indices there
RESERVED = {"<s>", "<pad>", "</s>", "<unk>"}
_LONGEST_LINE = 1 << 20  # bytes; sentencepiece leaves longer lines out of its training


class Tokenizer:
    """The interface of all tokenisers.

    Attributes:
        kind: its name in the manifest.
        offset: fairseq index = own number + offset.
        names: the piece of each own number, as it stands in tokenised text.
        files: files that a user needs to tokenise further text.
    """

    kind: str
    offset: int
    names: list[str]
    files: list[Path]

    @property
    def entries(self) -> int:
        """Size of the fairseq dictionary, its four special symbols included."""
        return len(self.names) + self.offset

    def encode(self, lines: list[str]) -> list[list[int]]:
        """The tokeniser's own ids of the pieces of each line."""
        raise NotImplementedError

    def write_dictionary(self, path: str | os.PathLike) -> None:
        """fairseq's ``dict.txt``: the pieces in the order of their ids."""
        with atomic_write(path) as stream:
            for name in self.names[SPECIAL - self.offset :]:
                if name.split() != [name]:
                    raise UserInputError(
                        f"The vocabulary holds {name!r}: a piece with white space in it cannot "
                        "stand in a fairseq dictionary; use another vocabulary."
                    )
                flag = " #fairseq:overwrite" if name in RESERVED else ""
                stream.write(f"{name} 1{flag}\n")

    def describe(self) -> dict:
        """The manifest's entry."""
        return {
            "kind": self.kind,
            "pieces": len(self.names) - (SPECIAL - self.offset),
            "files": [path.name for path in self.files],
        }


class Words(Tokenizer):
    """Words separated by white space; its only file is fairseq's ``dict.txt``."""

    kind = "words"
    offset = 0  # the special symbols are among its names

    def __init__(self, dictionary: str | os.PathLike):
        from fairseq.data import Dictionary

        self.files = [Path(dictionary)]
        loaded = Dictionary.load(str(dictionary))
        self.names, self._numbers = loaded.symbols, loaded.indices

    def encode(self, lines: list[str]) -> list[list[int]]:
        number = self._numbers.get
        return [[number(word, UNKNOWN) for word in line.split()] for line in lines]

    def describe(self) -> dict:
        return {"kind": self.kind, "files": []}


class SentencePiece(Tokenizer):
    """A sentencepiece model trained by :func:`train_sentencepiece`."""

    kind = "sentencepiece-bpe"
    offset = UNKNOWN  # its <unk> is number 0 and falls on fairseq's

    def __init__(self, model: str | os.PathLike):
        import sentencepiece

        self.files = [Path(model)]
        self._model = sentencepiece.SentencePieceProcessor(model_file=str(model))
        self.names = [self._model.id_to_piece(i) for i in range(len(self._model))]

    def encode(self, lines: list[str]) -> list[list[int]]:
        return self._model.encode(lines, out_type=int, num_threads=1)


def train_sentencepiece(
    lines: Iterable[str], model: str | os.PathLike, entries: int
) -> SentencePiece:
    """Train a byte-pair encoding on lines of text, unless there is the file of one.

    The same lines give the same model.

    Rare characters are spelled as bytes, so that no text holds an unknown token, and pieces joined,
    with their ▁ read as spaces, are the line again (lines have single spaces and none at the ends).

    Args:
        lines: the training text; held in memory, about five times its size.
        entries: size of the fairseq dictionary, its four special symbols included.
    """
    import sentencepiece

    if Path(model).exists():
        return SentencePiece(model)
    print("training sentencepiece …", flush=True)
    # Into memory: sentencepiece would keep the path of a file of its own inside of it. The number
    # of threads is kept too, so it is the same everywhere.
    trained = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=trained,
            vocab_size=entries - SPECIAL + 1,  # with sentencepiece's own <unk>
            model_type="bpe",
            byte_fallback=True,
            character_coverage=0.9999,
            normalization_rule_name="identity",
            bos_id=-1,
            eos_id=-1,
            max_sentence_length=_LONGEST_LINE,
            num_threads=4,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise UserInputError(
            f"No vocabulary of {entries:,} entries (--vocab-size), which are {entries - UNKNOWN:,} for "
            f"sentencepiece, can be learned from this text: {error}"
        ) from error
    with atomic_write(model, "wb") as out:
        out.write(trained.getvalue())
    return SentencePiece(model)


class _OfHuggingFace(Tokenizer):
    """A tokeniser of the library ``tokenizers``."""

    offset = SPECIAL
    _model: Any

    def encode(self, lines: list[str]) -> list[list[int]]:
        return [e.ids for e in self._model.encode_batch(lines, add_special_tokens=False)]


class WordPiece(_OfHuggingFace):
    """BERT's WordPiece with the user's ``vocab.txt``.

    A vocabulary in which no piece has an upper-case letter is BERT's uncased kind: the text is
    lower-cased and loses its accents, as BERT does. ``[UNK]`` is a piece of its own.
    """

    kind = "wordpiece"

    def __init__(self, vocabulary: str | os.PathLike):
        path = Path(vocabulary)
        text = path.read_text(encoding="utf-8", errors="replace")
        self.names = text.rstrip("\n").split("\n")
        distinct = set(self.names)
        if not distinct >= {"[UNK]", "[CLS]", "[SEP]"} or len(distinct) != len(self.names):
            raise UserInputError(
                f"{path}: not a BERT vocabulary (one piece per line, none twice, and among them "
                "[UNK], [CLS] and [SEP])."
            )
        self.files = [path]
        self.lower_case = not any(
            unicodedata.category(letter) == "Lu"
            for name in self.names
            if not (name.startswith("[") and name.endswith("]"))
            for letter in name
        )
        from tokenizers.implementations import BertWordPieceTokenizer

        self._model = BertWordPieceTokenizer(
            {name: number for number, name in enumerate(self.names)}, lowercase=self.lower_case
        )

    def describe(self) -> dict:
        return {**super().describe(), "lower_case": self.lower_case}


class ByteLevelBpe(_OfHuggingFace):
    """GPT-2's byte-level BPE, from ``encoder.json`` and ``vocab.bpe``.

    As in fairseq's own GPT-2 files the dictionary lists the numbers, so ``--bpe gpt2`` with
    ``--gpt2-encoder-json`` and ``--gpt2-vocab-bpe`` decodes a model's output.
    """

    kind = "byte-level-bpe"

    def __init__(self, encoder_json: str | os.PathLike, vocab_bpe: str | os.PathLike):
        from tokenizers.implementations import ByteLevelBPETokenizer

        self.files = [Path(encoder_json), Path(vocab_bpe)]
        try:
            self._model = ByteLevelBPETokenizer.from_file(str(encoder_json), str(vocab_bpe))
        except Exception as error:  # the library raises bare Exception
            raise UserInputError(
                f"{encoder_json} and {vocab_bpe}: not GPT-2's encoder.json and vocab.bpe ({error})."
            ) from error
        size = self._model.get_vocab_size()
        if sorted(self._model.get_vocab().values()) != list(range(size)):
            raise UserInputError(
                f"{encoder_json}: its numbers are not 0 to {size - 1} without gaps."
            )
        self.names = [str(number) for number in range(size)]
