"""A checkpoint as a folder that ``from_pretrained`` loads, with its tokeniser.

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
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ..errors import UserInputError
from ..evaluation.checkpoint import load_checkpoint
from ..evaluation.data import CONTINUATION, SHARE, WORD_MARK, Split, load_dictionary, load_split
from ..files import atomic_folder
from ..results.data_folder import DataFolder
from .configuration_alibi_lm import AlibiLmConfig
from .conversion import NAME, Converted, convert
from .modeling_alibi_lm import AlibiLmForCausalLM
from .tokenization_alibi_lm import AlibiLmTokenizer

#: Lines to encode again, and the share of them that must come out as they were.
LINES, ENOUGH = 200, 0.95
#: The model card, with the metadata block of model hubs.
CARD = Path(__file__).with_name("card.md")


def export(checkpoint: Path, data: Path, out: Path, tokenizer_files: Sequence[Path]) -> Converted:
    """Write the folder.

    Args:
        out: folder to write; it must not be there, or be empty.
        tokenizer_files: the tokeniser's, where they are not beside the data.

    Raises:
        UserInputError: something is missing or does not fit; nothing is written then.
    """
    with atomic_folder(out) as folder:
        dictionary = load_dictionary(data)
        tokenizer = build_tokenizer(data, find_files(data, dictionary, tokenizer_files))
        loaded = load_checkpoint(checkpoint, data)
        for split in ("valid", "test", "train"):
            if (data / f"{split}.idx").is_file():
                check_tokenizer(tokenizer, load_split(DataFolder.open(data), split, dictionary))
                break
        # Of our models the option: in results, a method with other options has another name.
        method = getattr(loaded.decoder.args, "position_method", loaded.facts["position_method"])
        length = loaded.facts["train_length"]
        converted = convert(loaded.decoder, method, length)
        save(converted.model, folder)
        ours = isinstance(tokenizer, AlibiLmTokenizer)
        if ours:
            tokenizer.register_for_auto_class("AutoTokenizer")
        tokenizer.save_pretrained(folder)
        # Not needed by every tokeniser, but by whoever takes the model back to fairseq.
        (folder / "dict.txt").write_bytes((data / "dict.txt").read_bytes())
        code = ", trust_remote_code=True"
        card = CARD.read_text(encoding="utf-8").format(
            **{**loaded.facts, **vars(converted)},
            run=checkpoint.resolve().parent.name,
            name=out.name,
            for_model=code if converted.architecture == NAME else "",
            for_tokenizer=code if ours else "",
        )
        (folder / "README.md").write_text(card, encoding="utf-8")
    return converted


def save(model: PreTrainedModel, folder: Path) -> None:
    """Configuration and weights, with the modelling files where the model needs them."""
    if isinstance(model, AlibiLmForCausalLM):
        AlibiLmConfig.register_for_auto_class()
        AlibiLmForCausalLM.register_for_auto_class("AutoModelForCausalLM")
    model.save_pretrained(folder)


def find_files(data: Path, dictionary: Dictionary, named: Sequence[Path]) -> dict[str, Path]:
    """The tokeniser's files by its arguments: those named, else those that the manifest lists.

    Returns:
        Nothing for words.

    Raises:
        UserInputError: the dictionary holds pieces and no file says whose.
    """
    files = [*named] or DataFolder.open(data).tokenizer_files
    if len(files) == 2:
        return dict(zip(("encoder_file", "merges_file"), files))
    if files:
        return {"wordpiece_file" if files[0].suffix == ".txt" else "sentencepiece_file": files[0]}
    words = dictionary.symbols[dictionary.nspecial :]
    marked = sum(word.startswith((WORD_MARK, CONTINUATION)) for word in words)
    numbers = sum(word.isdecimal() for word in words)
    if marked > SHARE * len(words) or numbers > 0.5 * len(words):
        raise UserInputError(
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
        raise UserInputError(f"{names} cannot be read as a tokeniser ({error}).") from error


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
        UserInputError: other numbers come out, so it is not the tokeniser of this data.
    """
    lines = np.split(split.tokens, split.line_starts[1 : LINES + 1])[:LINES]
    known = [line.tolist() for line in lines if split.dictionary.unk() not in line]
    wrong = sum(tokenizer.encode(tokenizer.decode(line)) != line for line in known)
    if wrong > (1 - ENOUGH) * len(known):
        raise UserInputError(
            f"The tokeniser does not match the data: of {len(known)} lines of '{split.name}', "
            f"decoded and encoded again, {wrong} came out as other numbers; name the one that the "
            "text was prepared with by --tokenizer."
        )
