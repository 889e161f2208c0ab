"""Tokenizers with one interface: words, sentencepiece BPE, BERT WordPiece, and byte-level BPE.

A tokenizer converts lines to token IDs. ``dict.txt`` lists the pieces in the order of their
IDs, so ``ID + offset`` is the index in fairseq's dictionary.
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

#: Names of fairseq's special symbols, which come first in every dictionary.
RESERVED = {"<s>", "<pad>", "</s>", "<unk>"}
#: Number of special symbols.
SPECIAL = 4
#: Dictionary index of ``</s>``.
END_OF_LINE = 2
#: Dictionary index of ``<unk>``.
UNKNOWN = 3
#: WordPiece's piece for words that the vocabulary cannot express.
UNKNOWN_PIECE = "[UNK]"
#: Largest number of bytes of a line that sentencepiece trains on.
_MAX_LINE_BYTES = 1 << 20


class Tokenizer:
    """Interface of all tokenizers.

    Attributes:
        kind: name in the manifest.
        offset: dictionary index of a token minus its token ID.
        names: piece of each token ID, as in tokenized text.
        files: files that are needed to tokenize more text.
        unknown_index: dictionary index of the token that stands for any unknown text.
    """

    kind: str
    offset: int
    names: list[str]
    files: list[Path]
    unknown_index: int = UNKNOWN

    @property
    def entries(self) -> int:
        """Number of dictionary entries, including the four special symbols."""
        return len(self.names) + self.offset

    @property
    def _listed_names(self) -> list[str]:
        """Names that ``dict.txt`` lists: all but those that are special symbols of fairseq."""
        return self.names[SPECIAL - self.offset :]

    def encode(self, lines: list[str]) -> list[list[int]]:
        """Return the token IDs of each line."""
        raise NotImplementedError

    def write_dictionary(self, path: str | os.PathLike) -> None:
        """Write fairseq's ``dict.txt``, the pieces in the order of their token IDs."""
        with atomic_write(path) as stream:
            for name in self._listed_names:
                flag = " #fairseq:overwrite" if name in RESERVED else ""
                stream.write(f"{name} 1{flag}\n")

    def describe(self) -> dict:
        """Return the manifest's entry for the tokenizer."""
        return {
            "kind": self.kind,
            "pieces": len(self._listed_names),
            "files": [path.name for path in self.files],
        }


class Words(Tokenizer):
    """Words separated by whitespace. The only file is fairseq's ``dict.txt``."""

    kind = "words"
    offset = 0  # the special symbols are among the names

    def __init__(self, dictionary: str | os.PathLike):
        from fairseq.data import Dictionary

        self.files = [Path(dictionary)]
        loaded = Dictionary.load(str(dictionary))
        self.names = loaded.symbols
        self._ids = loaded.indices

    def encode(self, lines: list[str]) -> list[list[int]]:
        encoded = []
        for line in lines:
            encoded.append([self._ids.get(word, UNKNOWN) for word in line.split()])
        return encoded

    def describe(self) -> dict:
        return {"kind": self.kind, "files": []}


class SentencePiece(Tokenizer):
    """A sentencepiece model trained by :func:`train_sentencepiece`."""

    kind = "sentencepiece-bpe"
    offset = UNKNOWN  # token ID 0 is sentencepiece's <unk>, which becomes fairseq's

    def __init__(self, model: str | os.PathLike):
        import sentencepiece

        self.files = [Path(model)]
        self._model = sentencepiece.SentencePieceProcessor(model_file=str(model))
        self.names = [self._model.id_to_piece(token_id) for token_id in range(len(self._model))]

    def encode(self, lines: list[str]) -> list[list[int]]:
        return self._model.encode(lines, out_type=int, num_threads=1)


def train_sentencepiece(
    lines: Iterable[str], model: str | os.PathLike, entries: int
) -> SentencePiece:
    """Train a byte-pair encoding on lines of text, or load it if the file exists.

    The same lines give the same model. Rare characters are encoded as bytes, so no text has unknown
    tokens. The joined pieces of a line, with ▁ replaced by spaces, are the line again if it has
    single spaces and none at its ends.

    Args:
        lines: the training text. It is held in memory, which takes about five times its size.
        model: file of the model.
        entries: number of dictionary entries, including the four special symbols.

    Raises:
        UserInputError: the text does not allow a vocabulary of this size.
    """
    import sentencepiece

    if Path(model).exists():
        return SentencePiece(model)
    print("training sentencepiece …", flush=True)
    num_pieces = entries - SPECIAL + 1  # with sentencepiece's own <unk>
    # Trained into memory, since sentencepiece stores the path of an output file in the model. It
    # also stores the number of threads, which is therefore the same on every machine.
    trained = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=trained,
            vocab_size=num_pieces,
            model_type="bpe",
            byte_fallback=True,
            character_coverage=0.9999,
            normalization_rule_name="identity",
            bos_id=-1,
            eos_id=-1,
            max_sentence_length=_MAX_LINE_BYTES,
            num_threads=4,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise UserInputError(
            f"No vocabulary of {entries:,} entries (--vocab-size), which are "
            f"{num_pieces:,} for sentencepiece, can be learned from this text: {error}"
        ) from error
    with atomic_write(model, "wb") as out:
        out.write(trained.getvalue())
    return SentencePiece(model)


class _HuggingFaceTokenizer(Tokenizer):
    """Tokenizer of the library ``tokenizers``."""

    offset = SPECIAL
    _model: Any

    def encode(self, lines: list[str]) -> list[list[int]]:
        encodings = self._model.encode_batch(lines, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]


class WordPiece(_HuggingFaceTokenizer):
    """BERT's WordPiece with the user's ``vocab.txt``.

    A vocabulary without uppercase letters is BERT's uncased kind: the text is lowercased and its
    accents are removed, as in BERT. ``[UNK]`` is a piece and not fairseq's ``<unk>``, but its text
    is unknown as well.
    """

    kind = "wordpiece"

    def __init__(self, vocabulary: str | os.PathLike):
        path = Path(vocabulary)
        text = path.read_text(encoding="utf-8", errors="replace")
        self.names = text.rstrip("\n").split("\n")
        distinct = set(self.names)
        has_special_pieces = {UNKNOWN_PIECE, "[CLS]", "[SEP]"} <= distinct
        has_duplicates = len(distinct) < len(self.names)
        if not has_special_pieces or has_duplicates:
            raise UserInputError(
                f"{path} is not a BERT vocabulary. It must have one piece per line, none twice, "
                "and [UNK], [CLS], and [SEP] among them."
            )
        self.files = [path]
        self.unknown_index = self.names.index(UNKNOWN_PIECE) + self.offset
        self.lower_case = not any(_has_upper_case(name) for name in self.names)
        from tokenizers.implementations import BertWordPieceTokenizer

        ids = {name: token_id for token_id, name in enumerate(self.names)}
        self._model = BertWordPieceTokenizer(ids, lowercase=self.lower_case)

    def describe(self) -> dict:
        return {**super().describe(), "lower_case": self.lower_case}


def _has_upper_case(name: str) -> bool:
    """Return True if a piece, other than a special one such as ``[UNK]``, has a capital letter."""
    if name.startswith("[") and name.endswith("]"):
        return False
    return any(unicodedata.category(letter) == "Lu" for letter in name)


class ByteLevelBpe(_HuggingFaceTokenizer):
    """GPT-2's byte-level BPE, from ``encoder.json`` and ``vocab.bpe``.

    As in fairseq's GPT-2 files, the dictionary lists the token IDs. ``--bpe gpt2`` with
    ``--gpt2-encoder-json`` and ``--gpt2-vocab-bpe`` therefore decodes a model's output.
    """

    kind = "byte-level-bpe"

    def __init__(self, encoder_json: str | os.PathLike, vocab_bpe: str | os.PathLike):
        from tokenizers.implementations import ByteLevelBPETokenizer

        self.files = [Path(encoder_json), Path(vocab_bpe)]
        self._model = ByteLevelBPETokenizer.from_file(str(encoder_json), str(vocab_bpe))
        self.names = [str(token_id) for token_id in range(self._model.get_vocab_size())]
