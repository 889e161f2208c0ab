"""Model card of an exported folder: ``README.md`` with the metadata block of model hubs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import yaml

from ..errors import UserInputError
from ..evaluation.checkpoint import LoadedModel
from ..files import sha256_file
from ..reporting.markdown import literal
from ..reporting.perplexity_by_length import length_table
from ..results.data_folder import DataFolder
from ..results.file import load, load_training
from ..results.file_names import TRAINING_FILE
from ..results.result import Result, distinct
from ..results.values import TextValues
from .conversion import Converted

#: Template of the model card, below the metadata block.
TEMPLATE = Path(__file__).with_name("card.md")
UNKNOWN = "not recorded"


def results_of_checkpoint(checkpoint: Path, results_paths: Sequence[Path]) -> list[Result]:
    """Return the perplexities of a checkpoint in results files, each once.

    Raises:
        UserInputError: a file is invalid, or has no perplexity of the checkpoint.
    """
    sha256 = sha256_file(checkpoint) if results_paths else ""
    results: list[Result] = []
    for path in results_paths:
        found = []
        for result in load(path).results:
            is_perplexity = isinstance(result.values, TextValues) and result.case.kind == "text"
            if is_perplexity and result.checkpoint_sha256 == sha256:
                found.append(result)
        if not found:
            raise UserInputError(
                f"--results {path} has no perplexity of {checkpoint}. "
                "Pass results that `alibi-fairseq eval` wrote for this checkpoint."
            )
        results += found
    return distinct(results)


def trained_tokens(checkpoint: Path, updates: int | None) -> int | None:
    """Return the number of tokens a checkpoint was trained on, or None if it is not recorded.

    The number is in ``training.json`` next to the checkpoint if it was saved at a validation.
    """
    if not (checkpoint.parent / TRAINING_FILE).is_file():
        return None
    for validation in load_training(checkpoint.parent).results:
        if validation.updates == updates:
            return validation.cost.trained_tokens
    return None


def describe_data(data: DataFolder) -> str:
    """Describe the corpus, the size of its training split, and its tokenizer."""
    parts = [literal(data.corpus)]
    summary = data.text_summary
    if summary.train_tokens is not None:
        parts.append(f"{summary.train_tokens:,} tokens in the training split")
    if summary.tokenizer is not None:
        parts.append(f"tokenizer {literal(summary.tokenizer)}")
    return ", ".join(parts)


def perplexity_section(results: Sequence[Result]) -> str:
    """Format perplexities by evaluation length, with a table per corpus.

    The text is empty without results.
    """
    by_corpus: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        by_corpus[result.case.corpus].append(result)
    parts = []
    for corpus, of_corpus in by_corpus.items():
        parts.append(f"## Perplexity on {literal(corpus)}\n\n{length_table(of_corpus)}")
    return "\n".join(parts)


def model_card(
    model: LoadedModel,
    converted: Converted,
    data: DataFolder,
    checkpoint: Path,
    results: Sequence[Result],
    license_identifier: str | None,
    name: str,
    for_model: str,
    for_tokenizer: str,
) -> str:
    """Return the text of the model card.

    Args:
        model: the loaded checkpoint.
        converted: the converted model.
        data: data folder with the dictionary of the checkpoint.
        checkpoint: the exported checkpoint.
        results: perplexities of the checkpoint.
        license_identifier: license for the metadata; None: no license is stated.
        name: name of the exported folder.
        for_model: more arguments in the call that loads the model.
        for_tokenizer: more arguments in the call that loads the tokenizer.
    """
    metadata = {"library_name": "transformers", "pipeline_tag": "text-generation"}
    if license_identifier is not None:
        metadata["license"] = license_identifier
    tokens = trained_tokens(checkpoint, model.weights.updates)
    body = TEMPLATE.read_text(encoding="utf-8").format(
        run=literal(checkpoint.resolve().parent.name),
        position_method=model.method.notation,
        train_length=model.weights.series.train_length,
        # More than in the checkpoint if that ties its projections (--tie-adaptive-proj).
        parameters=converted.model.num_parameters(),
        data=describe_data(data),
        updates=model.weights.updates,
        trained_tokens=UNKNOWN if tokens is None else f"{tokens:,}",
        license=license_identifier or "not stated",
        architecture=converted.architecture,
        reason=converted.reason,
        difference=converted.difference,
        name=name,
        for_model=for_model,
        for_tokenizer=for_tokenizer,
    )
    card = f"---\n{yaml.safe_dump(metadata, sort_keys=False)}---\n\n{body}"
    if results:
        card += f"\n{perplexity_section(results)}"
    return card
