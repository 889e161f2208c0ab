"""The tokeniser that belongs to a data folder, as one of transformers.

Words need no code of ours: a word-level ``tokenizer.json`` is exact. Sentencepiece and GPT-2 pieces
that the dictionary does not list have to become ``<unk>``, which no ``tokenizer.json`` can say, so
those come with the file ``tokenization_alibi_lm.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fairseq.data import Dictionary
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ..errors import BadInput
from ..evaluation.data import CONTINUATION, SHARE, WORD_MARK, Split
from ..results import manifest
from .tokenization_alibi_lm import AlibiLmTokenizer

#: Lines to encode again, and the share of them that must come out as they were.
LINES, ENOUGH = 200, 0.95


@dataclass(frozen=True)
class TokenizerFiles:
    """Files that cut text into the dictionary's symbols; none for words.

    Attributes:
        sentencepiece: a sentencepiece model.
        encoder, merges: GPT-2's ``encoder.json`` and ``vocab.bpe``.
        wordpiece: BERT's ``vocab.txt``; ``lower_case`` says that it is of the uncased kind.
    """

    sentencepiece: Path | None = None
    encoder: Path | None = None
    merges: Path | None = None
    wordpiece: Path | None = None
    lower_case: bool = False

    def given(self) -> list[Path]:
        files = (self.sentencepiece, self.encoder, self.merges, self.wordpiece)
        return [file for file in files if file is not None]


NO_FILES = TokenizerFiles()


def find_files(data: Path, dictionary: Dictionary, named: TokenizerFiles) -> TokenizerFiles:
    """The tokeniser's files: those named, else those that lie in the data folder.

    Raises:
        BadInput: a file is missing, or the dictionary holds pieces and no file says whose.
    """
    if not named.given():
        named = _beside(data)
    for file in named.given():
        if not file.is_file():
            raise BadInput(f"There is no tokeniser file {file}.")
    if (named.encoder is None) != (named.merges is None):
        raise BadInput("GPT-2's tokeniser needs both --gpt2-encoder-json and --gpt2-vocab-bpe.")
    words = dictionary.symbols[dictionary.nspecial :]
    if not named.given() and words:
        for marked, what, option in (
            (sum(w.startswith(WORD_MARK) for w in words), "sentencepiece", "--sentencepiece-model"),
            (sum(w.startswith(CONTINUATION) for w in words), "WordPiece", "--wordpiece-vocab"),
            (sum(w.isdecimal() for w in words) - len(words) // 2, "GPT-2", "--gpt2-encoder-json"),
        ):
            if marked > SHARE * len(words):
                raise BadInput(
                    f"The dictionary of {data} lists {what} pieces, and the tokeniser is not "
                    f"beside it; name it with {option}."
                )
    return named


def _beside(data: Path) -> TokenizerFiles:
    described = manifest.load(data)
    if described is None:
        return NO_FILES
    tokenizer = described["tokenizer"]
    files = [data / name for name in tokenizer.get("files", [])]
    if tokenizer["kind"] == "sentencepiece-bpe":
        return TokenizerFiles(sentencepiece=files[0])
    if tokenizer["kind"] == "byte-level-bpe":
        return TokenizerFiles(encoder=files[0], merges=files[1])
    if tokenizer["kind"] == "wordpiece":
        return TokenizerFiles(wordpiece=files[0], lower_case=tokenizer["lower_case"])
    return NO_FILES


def build_tokenizer(data: Path, files: TokenizerFiles) -> PreTrainedTokenizerBase:
    """A tokeniser that gives the numbers of the data folder's ``dict.txt``."""
    dictionary = data / "dict.txt"
    if not files.given():
        return word_level(Dictionary.load(str(dictionary)))
    try:
        return AlibiLmTokenizer(
            str(dictionary),
            sentencepiece_file=_text(files.sentencepiece),
            encoder_file=_text(files.encoder),
            merges_file=_text(files.merges),
            wordpiece_file=_text(files.wordpiece),
            lower_case=files.lower_case,
        )
    except Exception as error:  # the libraries raise bare exceptions for damaged files
        names = " and ".join(map(str, files.given()))
        raise BadInput(f"{names} cannot be read as a tokeniser ({error}).") from error


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def word_level(dictionary: Dictionary) -> PreTrainedTokenizerFast:
    """Words between spaces; a line end is the word ``</s>``."""
    model = Tokenizer(WordLevel(dict(dictionary.indices), unk_token="<unk>"))
    model.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(Regex(r"\r\n|\r|\n"), " </s> "),
            normalizers.Replace(Regex(r"[\x1c-\x1f]"), " "),  # spaces to Python, not to Rust
        ]
    )
    model.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=model,
        bos_token="</s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        padding_side="left",
        # As for fairseq, "<unk>" in a text is the symbol where it stands as a word of its own.
        split_special_tokens=True,
    )


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, split: Split, unknown: int) -> None:
    """Decode some lines of the data and encode them again.

    Raises:
        BadInput: other numbers come out, so it is not the tokeniser of this data.
    """
    bounds = [*split.line_starts[: LINES + 1], len(split.tokens)][: LINES + 1]
    lines = [split.tokens[begin:end].tolist() for begin, end in zip(bounds, bounds[1:])]
    lines = [line for line in lines if unknown not in line]
    same = sum(tokenizer.encode(tokenizer.decode(line)) == line for line in lines)
    if same < ENOUGH * len(lines):
        raise BadInput(
            f"The tokeniser does not match the data: of {len(lines)} lines of '{split.name}', "
            f"decoded and encoded again, {len(lines) - same} came out as other numbers; name the "
            "one that the text was prepared with."
        )
