"""Tokenizer of a fairseq dictionary, for transformers.

This file is copied into the folder of an exported model (``trust_remote_code=True``). It imports
only transformers, and sentencepiece or tokenizers. The token IDs of a text equal those of
``fairseq-preprocess``: each line is split into pieces, the pieces are looked up in ``dict.txt``,
and each newline is the symbol ``</s>``.
"""

import re
import shutil
import unicodedata
from itertools import groupby
from pathlib import Path

from transformers import PreTrainedTokenizer

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
LINE_END = "</s>"
UNKNOWN = "<unk>"


class AlibiLmTokenizer(PreTrainedTokenizer):
    """Tokenizer with sentencepiece, GPT-2's byte-level BPE, or BERT's WordPiece.

    Args:
        vocab_file: fairseq's ``dict.txt``.
        sentencepiece_file: sentencepiece model.
        encoder_file, merges_file: ``encoder.json`` and ``vocab.bpe`` of GPT-2.
        wordpiece_file: ``vocab.txt`` of BERT.
    """

    vocab_files_names = {
        "vocab_file": "dict.txt",
        "sentencepiece_file": "sentencepiece.model",
        "encoder_file": "encoder.json",
        "merges_file": "vocab.bpe",
        "wordpiece_file": "vocab.txt",
    }
    model_input_names = ["input_ids", "attention_mask"]

    def __init__(self, vocab_file, **kwargs):
        self._files = {"vocab_file": vocab_file}
        for kind in self.vocab_files_names:
            if kind != "vocab_file":
                file = kwargs.pop(kind, None)
                if file:
                    self._files[kind] = file
        self._symbols = list(SPECIAL)
        self._ids_by_symbol = {symbol: token_id for token_id, symbol in enumerate(SPECIAL)}
        # Lines are a symbol, a count, and possibly fairseq's mark of a duplicate symbol.
        for line in Path(vocab_file).read_text(encoding="utf-8").split("\n"):
            line = line.rstrip().removesuffix(" #fairseq:overwrite")
            if line:
                symbol = line.rsplit(" ", 1)[0]
                self._ids_by_symbol[symbol] = len(self._symbols)
                self._symbols.append(symbol)
        self._segmenter: SentencePieces | ByteLevel | WordPieces
        if "sentencepiece_file" in self._files:
            self._segmenter = SentencePieces(self._files["sentencepiece_file"])
        elif "encoder_file" in self._files:
            self._segmenter = ByteLevel(self._files["encoder_file"], self._files.get("merges_file"))
        else:
            self._segmenter = WordPieces(self._files.get("wordpiece_file"))
        defaults = {"bos_token": LINE_END, "eos_token": LINE_END, "pad_token": "<pad>"}
        kwargs = {**defaults, "unk_token": UNKNOWN, "padding_side": "left", **kwargs}
        super().__init__(**kwargs)

    @property
    def is_wordpiece(self):
        """True if words are split into the pieces of a vocabulary of BERT."""
        return "wordpiece_file" in self._files

    @property
    def vocab_size(self):
        return len(self._symbols)

    def get_vocab(self):
        return {**self._ids_by_symbol, **self.added_tokens_encoder}

    def tokenize(self, text, **kwargs):
        """Split a text into pieces, with ``</s>`` at each newline.

        Special symbols in the text are ordinary text, as in ``fairseq-preprocess``. Tokens that
        were added later are not split.
        """
        added = [token for token in self.added_tokens_encoder if token not in SPECIAL]
        if not added:
            return self._split_text(text)
        # Where tokens overlap, the longest one is found.
        longest_first = sorted(added, key=len, reverse=True)
        pattern = "|".join(re.escape(token) for token in longest_first)
        tokens: list[str] = []
        for part in re.split(f"({pattern})", text):
            if part in added:
                tokens.append(part)
            else:
                tokens += self._split_text(part)
        return tokens

    def _split_text(self, text):
        """Split a text without added tokens into pieces, with ``</s>`` at each newline."""
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        tokens = self._segmenter.split(lines[0])
        for line in lines[1:]:
            tokens += [LINE_END, *self._segmenter.split(line)]
        return tokens

    def _convert_token_to_id(self, token):
        return self._ids_by_symbol.get(token, self._ids_by_symbol[UNKNOWN])

    def _convert_id_to_token(self, index):
        return self._symbols[index]

    def convert_tokens_to_string(self, tokens):
        lines: list[list[str]] = [[]]
        for token in tokens:
            if token == LINE_END:
                lines.append([])
            else:
                lines[-1].append(token)
        return "\n".join(self._segmenter.join(line) for line in lines)

    def save_vocabulary(self, save_directory, filename_prefix=None):
        saved = []
        for kind, file in self._files.items():
            target = Path(save_directory, self.vocab_files_names[kind])
            if not (target.exists() and target.samefile(file)):
                shutil.copyfile(file, target)
            saved.append(str(target))
        return tuple(saved)


class SentencePieces:
    """Pieces of a sentencepiece model."""

    def __init__(self, file):
        import sentencepiece

        self._model = sentencepiece.SentencePieceProcessor(model_file=str(file))

    def split(self, line):
        # fairseq-preprocess splits the joined pieces again, which affects unusual spaces.
        return " ".join(self._model.encode(line, out_type=str)).split()

    def join(self, tokens):
        return self._model.decode_pieces(tokens)


class ByteLevel:
    """Pieces of GPT-2's byte-level BPE; the symbols of the dictionary are GPT-2's token IDs."""

    def __init__(self, encoder, merges):
        from tokenizers.implementations import ByteLevelBPETokenizer

        self._model = ByteLevelBPETokenizer.from_file(str(encoder), str(merges))

    def split(self, line):
        return [str(token_id) for token_id in self._model.encode(line).ids]

    def join(self, tokens):
        text = ""
        for is_piece, run in groupby(tokens, key=str.isdecimal):
            if is_piece:
                text += self._model.decode([int(token) for token in run])
            else:  # special and added tokens
                text += "".join(run)
        return text


class WordPieces:
    """Pieces of BERT's WordPiece; text is lowercased if no piece has an uppercase letter."""

    def __init__(self, file):
        from tokenizers.implementations import BertWordPieceTokenizer

        pieces = Path(file).read_text(encoding="utf-8").split("\n")
        token_ids = {}
        has_uppercase = False
        for token_id, piece in enumerate(pieces):
            if not piece:
                continue
            piece = piece.rstrip("\r")
            token_ids[piece] = token_id
            if not piece.startswith("["):  # special tokens such as [UNK]
                has_uppercase |= any(unicodedata.category(letter) == "Lu" for letter in piece)
        self._model = BertWordPieceTokenizer(token_ids, lowercase=not has_uppercase)

    def split(self, line):
        return self._model.encode(line, add_special_tokens=False).tokens

    def join(self, tokens):
        return " ".join(tokens).replace(" ##", "")
