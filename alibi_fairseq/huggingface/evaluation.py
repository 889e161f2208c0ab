"""Evaluation of Hugging Face models on text files, at any length and stride."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from transformers.utils import logging as transformers_logging

from ..errors import UserInputError
from ..evaluation.checkpoint import LoadedModel
from ..evaluation.config import SweepConfig
from ..evaluation.device import find_device
from ..evaluation.measurement import SweepResults, check_unchanged, measure_cases
from ..evaluation.split_identity import SplitIdentity
from ..evaluation.sweep import Sweep
from ..evaluation.text_evaluator import TextEvaluator
from ..files import locked, sha256_files
from ..results.file_names import lock_path
from ..results.manifest import other_name
from ..results.provenance import collect_provenance, installed_version
from ..results.result import Result
from ..results.values import TextSummary
from .model_folder import FolderHashes, ModelFolder
from .text_file import Documents, read_documents, tokenize_documents
from .transformers_model import load_transformers_model

#: Packages whose versions these results record in addition to the ones in every result.
_LIBRARIES = ("transformers", "tokenizers", "safetensors")


@dataclass(frozen=True)
class FolderOptions:
    """Options of an evaluation that fairseq checkpoints do not have.

    Attributes:
        trust_remote_code: True to run code in the folders if their models need it.
        bos_per_window: True to start every window with the token that starts the text.
    """

    trust_remote_code: bool = False
    bos_per_window: bool = False


def evaluate_folders(
    texts: list[Path],
    folders: list[Path],
    config: SweepConfig,
    out: Path,
    options: FolderOptions = FolderOptions(),
) -> list[Result]:
    """Make the measurements that are not in the output file yet.

    Args:
        texts: text files.
        folders: folders of models, which may have different tokenizers.
        config: settings of the sweep.
        out: results file.
        options: options that fairseq checkpoints do not have.

    Returns:
        The results of all measurements, including earlier sweeps.

    Raises:
        UserInputError: a measurement is impossible, or a folder is replaced meanwhile.
    """
    config = replace(config, splits=_split_names(texts))
    documents = [read_documents(path, config.per_document) for path in texts]
    transformers_logging.disable_progress_bar()
    opened = []
    for path in dict.fromkeys(folders):
        folder = ModelFolder.open(path, config.overrides, options.trust_remote_code)
        # At once, because the folder may be replaced while other models are evaluated.
        opened.append((folder, folder.hashes()))
    if options.bos_per_window:
        # It changes the scores like an overridden option, so it is recorded with these.
        config = replace(config, overrides={**(config.overrides or {}), "bos_per_window": True})
    results: list[Result] = []
    with locked(lock_path(out), f"--out {out}", "evaluation"):
        for folder, hashes in opened:
            results += _evaluate(folder, hashes, texts, documents, config, out, options)
    return results


def _evaluate(
    folder: ModelFolder,
    hashes: FolderHashes,
    texts: list[Path],
    documents: list[Documents],
    config: SweepConfig,
    out: Path,
    options: FolderOptions,
) -> list[Result]:
    """Evaluate one model on the documents of all texts.

    Args:
        hashes: hashes of the folder when its configuration and tokenizer were read.

    Raises:
        UserInputError: a measurement is impossible, or the folder has other contents since then.
    """
    splits = {}
    identities = {}
    for documents_of_text in documents:
        text = tokenize_documents(documents_of_text, folder, config.has_scored_range)
        splits[text.name] = text
        identities[text.name] = SplitIdentity(
            text.sha256, config.per_document, text.tokens_sha256, text.document_starts
        )
    summary = TextSummary(
        tokenizer=type(folder.tokenizer).__name__,
        vocabulary=len(folder.tokenizer),
    )
    sweep = Sweep(config, "text", identities, other_name(texts[0].resolve().parent))
    evaluator = TextEvaluator(sweep, splits, summary)
    provenance = collect_provenance(seconds=0, precision=config.precision)
    # The order of the command line does not matter.
    by_name = sorted(texts, key=lambda path: path.stem)
    provenance["data_sha256"] = sha256_files(by_name)
    provenance["versions"].update({name: installed_version(name) for name in _LIBRARIES})
    results = SweepResults(out, {folder.path: hashes.everything}, evaluator, provenance)

    def load_model(path: Path) -> LoadedModel:
        model = load_transformers_model(
            folder,
            config.precision,
            find_device(config.device),
            max(config.lengths),
            hashes.weights,
            options.bos_per_window,
        )
        check_unchanged(path, hashes.everything, folder.hashes().everything)
        return model

    return measure_cases(evaluator, results, load_model)


def _split_names(texts: list[Path]) -> tuple[str, ...]:
    """Return the split that each text file stands for: its name without the suffix.

    Raises:
        UserInputError: two files have the same name.
    """
    names = tuple(path.stem for path in texts)
    for name in names:
        if names.count(name) > 1:
            raise UserInputError(
                f"Two text files are named '{name}', and results are recorded under that name. "
                "Rename one, or evaluate them with separate commands."
            )
    return names
