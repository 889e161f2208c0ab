"""Export of a checkpoint as a folder for ``from_pretrained``, with its tokenizer.

A word-level ``tokenizer.json`` is exact for words. Sentencepiece and GPT-2 pieces outside the
dictionary must become ``<unk>``, which ``tokenizer.json`` cannot express. Their folders contain the
file ``tokenization_alibi_lm.py``.
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
from ..evaluation.split import Split, load_dictionary, load_split
from ..evaluation.text_size import MIN_MARKED, WORD_MARK
from ..files import atomic_folder
from ..positions.registry import UnknownMethodError
from ..results.data_folder import DataFolder
from .configuration_alibi_lm import AlibiLmConfig
from .conversion import Converted, convert_decoder
from .model_card import model_card, results_of_checkpoint
from .modeling_alibi_lm import AlibiLmForCausalLM
from .tokenization_alibi_lm import AlibiLmTokenizer

#: Number of lines to decode and encode again.
NUM_CHECKED_LINES = 200
#: Smallest fraction of these lines whose token IDs must be unchanged.
MIN_UNCHANGED = 0.95
#: Prefix of all pieces of a word but the first in a WordPiece vocabulary.
_CONTINUATION = "##"


def export_checkpoint(
    checkpoint: Path,
    data: Path,
    out: Path,
    tokenizer_files: Sequence[Path],
    results_paths: Sequence[Path] = (),
    license_identifier: str | None = None,
) -> Converted:
    """Export a checkpoint as a folder for ``from_pretrained``.

    Args:
        checkpoint: fairseq checkpoint.
        data: data folder with its dictionary.
        out: folder to write; it must be missing or empty.
        tokenizer_files: files of the tokenizer, if they are not next to the data.
        results_paths: results files whose perplexities of the checkpoint the model card shows.
        license_identifier: license for the model card; None: no license is stated.

    Raises:
        UserInputError: if a file is missing or invalid. Nothing is written then.
    """
    results = results_of_checkpoint(checkpoint, results_paths)
    with atomic_folder(out) as folder:
        data_folder = DataFolder.open(data)
        dictionary = load_dictionary(data)
        files = find_tokenizer_files(data_folder, dictionary, tokenizer_files)
        tokenizer = build_tokenizer(data, files)
        try:
            loaded = load_checkpoint(checkpoint, data)
        except UnknownMethodError as error:
            raise UserInputError(
                "Cannot export a model with the position method of a plugin: transformers runs "
                "only the files in the folder, which cannot import the plugin. Keep the "
                "checkpoint, which `alibi-fairseq sample` and AlibiLanguageModel load."
            ) from error
        for split in ("valid", "test", "train"):
            if (data / f"{split}.idx").is_file():
                check_tokenizer(tokenizer, load_split(data_folder, split, dictionary))
                break
        # Results name a method with other options differently, so the option takes precedence.
        method = getattr(loaded.decoder.args, "position_method", loaded.method.notation)
        length = loaded.weights.series.train_length
        converted = convert_decoder(loaded.decoder, method, length)
        save_model(converted.model, folder)
        is_custom_tokenizer = isinstance(tokenizer, AlibiLmTokenizer)
        if is_custom_tokenizer:
            tokenizer.register_for_auto_class("AutoTokenizer")
        tokenizer.save_pretrained(folder)
        # Some tokenizers do not need it, but `import-hf` does.
        (folder / "dict.txt").write_bytes((data / "dict.txt").read_bytes())
        trust_argument = ", trust_remote_code=True"
        is_custom_model = isinstance(converted.model, AlibiLmForCausalLM)
        card = model_card(
            loaded,
            converted,
            data_folder,
            checkpoint,
            results,
            license_identifier,
            name=out.name,
            for_model=trust_argument if is_custom_model else "",
            for_tokenizer=trust_argument if is_custom_tokenizer else "",
        )
        (folder / "README.md").write_text(card, encoding="utf-8")
    return converted


def save_model(model: PreTrainedModel, folder: Path) -> None:
    """Write configuration and weights, with the modeling files if the model needs them."""
    if isinstance(model, AlibiLmForCausalLM):
        AlibiLmConfig.register_for_auto_class()
        AlibiLmForCausalLM.register_for_auto_class("AutoModelForCausalLM")
    model.save_pretrained(folder)


def find_tokenizer_files(
    data: DataFolder, dictionary: Dictionary, named: Sequence[Path]
) -> dict[str, Path]:
    """Return the files of the tokenizer by argument of :class:`AlibiLmTokenizer`.

    Args:
        named: files that the user named; they take precedence over those in the manifest.

    Returns:
        The files. Empty if the dictionary contains whole words, which need no file.

    Raises:
        UserInputError: if the dictionary contains pieces and their tokenizer is unknown.
    """
    files = list(named)
    if not files:
        files = data.tokenizer_files
    if len(files) == 2:
        return {"encoder_file": files[0], "merges_file": files[1]}
    if files:
        if files[0].suffix == ".txt":
            return {"wordpiece_file": files[0]}
        return {"sentencepiece_file": files[0]}
    words = dictionary.symbols[dictionary.nspecial :]
    marked = sum(word.startswith((WORD_MARK, _CONTINUATION)) for word in words)
    # GPT-2's byte-level BPE has numbers as symbols.
    numbers = sum(word.isdecimal() for word in words)
    if marked > MIN_MARKED * len(words) or numbers > 0.5 * len(words):
        raise UserInputError(
            f"The dictionary of {data.path} contains pieces of words, and their tokenizer is not "
            "next to it. Pass --tokenizer-files."
        )
    return {}


def build_tokenizer(data: Path, files: Mapping[str, Path]) -> PreTrainedTokenizerBase:
    """Create a tokenizer with the token IDs of the ``dict.txt`` in a data folder."""
    if not files:
        return word_level_tokenizer(Dictionary.load(str(data / "dict.txt")))
    return AlibiLmTokenizer(data / "dict.txt", **files)


def word_level_tokenizer(dictionary: Dictionary) -> PreTrainedTokenizerFast:
    """Create a tokenizer that splits at spaces; a newline is the word ``</s>``."""
    model = Tokenizer(WordLevel(dict(dictionary.indices), unk_token="<unk>"))
    model.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(Regex(r"\r\n|\r|\n"), " </s> "),
            # Python splits at these characters, the tokenizer in Rust does not.
            normalizers.Replace(Regex(r"[\x1c-\x1f]"), " "),
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
        # In fairseq, "<unk>" in a text is the symbol only as a separate word.
        split_special_tokens=True,
    )


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, split: Split) -> None:
    """Decode some lines of the data and encode them again.

    Raises:
        UserInputError: if the token IDs of too many lines differ, so this is not the tokenizer of
            the data.
    """
    line_ends = split.item_starts[1 : NUM_CHECKED_LINES + 1]
    lines = np.split(split.tokens, line_ends)[:NUM_CHECKED_LINES]
    known = [line.tolist() for line in lines if split.dictionary.unk() not in line]
    wrong = sum(tokenizer.encode(tokenizer.decode(line)) != line for line in known)
    if wrong > (1 - MIN_UNCHANGED) * len(known):
        raise UserInputError(
            f"The tokenizer does not match the data: {wrong} of {len(known)} lines of "
            f"'{split.name}' change when decoded and encoded again. Pass the tokenizer of the data "
            "with --tokenizer-files."
        )
