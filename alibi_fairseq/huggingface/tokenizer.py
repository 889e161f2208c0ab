"""The tokeniser that belongs to a data folder, as one of transformers.

Words need no code of ours: a word-level ``tokenizer.json`` is exact. Sentencepiece and GPT-2 pieces
that the dictionary does not list have to become ``<unk>``, which no ``tokenizer.json`` can say, so
those come with the file ``tokenization_alibi_lm.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
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


def find_files(data: Path, dictionary: Dictionary, named: Sequence[Path]) -> dict[str, Path]:
    """The tokeniser's files by its arguments: those named, else those that the manifest lists.

    Returns:
        Nothing for words.

    Raises:
        BadInput: the dictionary holds pieces and no file says whose.
    """
    described = manifest.load(data)
    listed = described["tokenizer"].get("files", []) if described else []
    files = [*named] or [data / name for name in listed]
    if len(files) == 2:
        return dict(zip(("encoder_file", "merges_file"), files))
    if files:
        return {"wordpiece_file" if files[0].suffix == ".txt" else "sentencepiece_file": files[0]}
    words = dictionary.symbols[dictionary.nspecial :]
    marked = sum(word.startswith((WORD_MARK, CONTINUATION)) for word in words)
    numbers = sum(word.isdecimal() for word in words)
    if marked > SHARE * len(words) or numbers > 0.5 * len(words):
        raise BadInput(
            f"The dictionary of {data} lists pieces of words, and their tokeniser is not beside "
            "it; name it with --tokenizer."
        )
    return {}


def build_tokenizer(data: Path, files: Mapping[str, Path]) -> PreTrainedTokenizerBase:
    """A tokeniser that gives the numbers of the data folder's ``dict.txt``."""
    if not files:
        return word_level(Dictionary.load(str(data / "dict.txt")))
    try:
        return AlibiLmTokenizer(data / "dict.txt", **files)
    except Exception as error:  # the libraries raise bare exceptions for damaged files
        names = " and ".join(map(str, files.values()))
        raise BadInput(f"{names} cannot be read as a tokeniser ({error}).") from error


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


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, split: Split) -> None:
    """Decode some lines of the data and encode them again.

    Raises:
        BadInput: other numbers come out, so it is not the tokeniser of this data.
    """
    lines = np.split(split.tokens, split.line_starts[1 : LINES + 1])[:LINES]
    known = [line.tolist() for line in lines if split.dictionary.unk() not in line]
    wrong = sum(tokenizer.encode(tokenizer.decode(line)) != line for line in known)
    if wrong > (1 - ENOUGH) * len(known):
        raise BadInput(
            f"The tokeniser does not match the data: of {len(known)} lines of '{split.name}', "
            f"decoded and encoded again, {wrong} came out as other numbers; name the one that the "
            "text was prepared with by --tokenizer."
        )
