"""The tokeniser that belongs to a data folder, as one of transformers.

Words need no code of ours: a word-level ``tokenizer.json`` is exact. Sentencepiece and GPT-2 pieces
that the dictionary does not list have to become ``<unk>``, which no ``tokenizer.json`` can say, so
those come with the file ``tokenization_alibi_lm.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
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


#: The tokeniser's arguments for the files that cut text into the dictionary's symbols, by our options.
FILES = {
    "sentencepiece_model": "sentencepiece_file",
    "gpt2_encoder_json": "encoder_file",
    "gpt2_vocab_bpe": "merges_file",
    "wordpiece_vocab": "wordpiece_file",
}
#: The same by the kind of tokeniser that a manifest names.
KINDS = {
    "sentencepiece-bpe": ("sentencepiece_file",),
    "byte-level-bpe": ("encoder_file", "merges_file"),
    "wordpiece": ("wordpiece_file",),
}


def find_files(
    data: Path, dictionary: Dictionary, named: Mapping[str, str | Path | None]
) -> dict[str, Path]:
    """The tokeniser's files by argument: those named, else those that lie in the data folder.

    Args:
        named: options of ``FILES`` and their values; others are ignored.

    Returns:
        Nothing for words.

    Raises:
        BadInput: a file is missing, or the dictionary holds pieces and no file says whose.
    """
    files = {kind: Path(path) for option, kind in FILES.items() if (path := named.get(option))}
    described = manifest.load(data)
    if described is not None and not files:
        tokenizer = described["tokenizer"]
        beside = [data / name for name in tokenizer.get("files", [])]
        files = dict(zip(KINDS.get(tokenizer["kind"], ()), beside))
    for file in files.values():
        if not file.is_file():
            raise BadInput(f"There is no tokeniser file {file}.")
    if ("encoder_file" in files) != ("merges_file" in files):
        raise BadInput("GPT-2's tokeniser needs both --gpt2-encoder-json and --gpt2-vocab-bpe.")
    words = dictionary.symbols[dictionary.nspecial :]
    if not files and words:
        for marked, option in (
            (sum(w.startswith(WORD_MARK) for w in words), "--sentencepiece-model"),
            (sum(w.startswith(CONTINUATION) for w in words), "--wordpiece-vocab"),
            (sum(w.isdecimal() for w in words) - len(words) // 2, "--gpt2-encoder-json"),
        ):
            if marked > SHARE * len(words):
                raise BadInput(
                    f"The dictionary of {data} lists pieces of words, and the tokeniser is not "
                    f"beside it; name it with {option}."
                )
    return files


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
