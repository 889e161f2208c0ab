"""A checkpoint as a folder that ``from_pretrained`` loads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from transformers import PreTrainedModel

from ..checkpoints import read_checkpoint
from ..errors import BadInput
from ..evaluation.checkpoint import load_checkpoint
from ..evaluation.data import load_dictionary, load_split
from ..files import atomic_folder, sha256_file
from ..results.schema import load_document
from .card import model_card
from .configuration_alibi_lm import AlibiLmConfig
from .conversion import Converted, convert
from .modeling_alibi_lm import AlibiLmForCausalLM
from .tokenization_alibi_lm import AlibiLmTokenizer
from .tokenizer import build_tokenizer, check_tokenizer, find_files


def export(
    checkpoint: Path,
    data: Path,
    out: Path,
    trained_with: Path | None,
    tokenizer_files: Mapping[str, Path | None],
    results: Sequence[Path],
) -> Converted:
    """Write the folder.

    Args:
        out: folder to write; it must not be there, or be empty.
        trained_with: dictionary file, for checkpoints that do not remember theirs.
        tokenizer_files: the tokeniser's by option, where they are not beside the data.
        results: documents of ``alibi-fairseq eval`` to quote in the model card.

    Raises:
        BadInput: something is missing or does not fit; nothing is written then.
    """
    with atomic_folder(out) as folder:
        if not checkpoint.is_file():
            raise BadInput(f"There is no checkpoint '{checkpoint}'; change --path.")
        dictionary = load_dictionary(data)
        files = find_files(data, dictionary, tokenizer_files)
        loaded = load_checkpoint(checkpoint, data, trained_with=trained_with)
        method, length = loaded.facts["position_method"], loaded.facts["train_length"]
        tokenizer = build_tokenizer(data, files)
        for split in ("valid", "test", "train"):
            if (data / f"{split}.idx").is_file():
                check_tokenizer(tokenizer, load_split(data, split, dictionary), dictionary.unk())
                break
        converted = convert(loaded.decoder, method, length)
        cells = measured(checkpoint, results)
        save(converted.model, folder)
        if isinstance(tokenizer, AlibiLmTokenizer):
            tokenizer.register_for_auto_class("AutoTokenizer")
        tokenizer.save_pretrained(folder)
        # Not needed by every tokeniser, but by whoever takes the model back to fairseq.
        (folder / "dict.txt").write_bytes((data / "dict.txt").read_bytes())
        state = read_checkpoint(checkpoint)
        run = checkpoint.resolve().parent.name
        card = model_card(run, out.name, loaded.facts, state, converted, tokenizer, cells)
        (folder / "README.md").write_text(card, encoding="utf-8")
    return converted


def save(model: PreTrainedModel, folder: Path) -> None:
    """Configuration and weights, with the modelling files where the model needs them."""
    if isinstance(model, AlibiLmForCausalLM):
        AlibiLmConfig.register_for_auto_class()
        AlibiLmForCausalLM.register_for_auto_class("AutoModelForCausalLM")
    model.save_pretrained(folder)


def measured(checkpoint: Path, results: Sequence[Path]) -> list[dict]:
    """The cells of the results that measured this checkpoint.

    Raises:
        BadInput: a document has none.
    """
    digest = sha256_file(checkpoint)
    cells = []
    for path in results:
        document = load_document(path)
        found = [cell for cell in document["cells"] if cell.get("checkpoint_sha256") == digest]
        if not found:
            raise BadInput(f"{path} holds no result of {checkpoint}; leave out --results.")
        cells += [{**cell, "corpus": document["corpus"]} for cell in found]
    return cells
