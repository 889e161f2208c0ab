"""The steps of a preparation: read and split, tokenize, binarize, describe, publish."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..completion_marker import (
    CompletionMarker,
    check_settings,
    read_json_if_present,
    write_settings,
)
from ..errors import UserInputError
from ..files import check_data_path, check_disk, locked, sync_files
from ..results import manifest as manifests
from ..results.data_folder import DataFolder
from .binarization import binarize, check_indexes
from .corpus_builder import CorpusBuilder
from .sources import check_output_folder
from .tokenization import Tokenizer

#: Counts from binarization that the manifest has for each split.
_COUNTS = ("lines", "words", "bytes", "tokens", "unknown")
#: Settings of an unfinished preparation in OUT/work. Without them, the folder is not ours.
_SETTINGS = "settings.json"
#: Lock file of a preparation in OUT/work.
_LOCK = "lock"
#: Completion marker in OUT/work: the normalized text has been written.
_TEXT_MARKER = "text.json"
_ADVICE = "Choose another --out, or delete that folder."


def prepare_corpus(
    corpus: CorpusBuilder, out: str | os.PathLike, workers: int = 1
) -> tuple[dict, bool]:
    """Create ``OUT/data-bin``, or resume an interrupted preparation from ``OUT/work``.

    Args:
        corpus: the corpus.
        out: the output folder.
        workers: number of processes.

    Returns:
        The manifest, and False if the data was already complete.

    Raises:
        UserInputError: the input cannot be used, or the folder has data with other settings, is
            in a folder of text, or has a colon in its path. ``OUT/work`` has other files, or the
            text.
    """
    started = time.time()
    check_data_path(out, "--out")
    check_output_folder(out, getattr(corpus, "sources", ()))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the worker processes are enough
    settings = corpus.settings()
    if corpus.excerpt:
        settings["excerpt"] = corpus.excerpt
    work = Path(out) / "work"
    _check_text_is_kept(work, corpus.files)
    manifest = _finished_manifest(Path(out), settings)
    if manifest is not None:
        return manifest, False
    _check_work_folder(work)
    existing_bytes = _folder_bytes(work)
    check_disk(out, max(0, corpus.disk_needed - existing_bytes), "The preparation")
    with _use_work_folder(work, settings):
        text_marker = CompletionMarker(work / _TEXT_MARKER)
        if not text_marker.holds():
            text_entries = corpus.write_normalized_text(work, workers)
            sync_files(work.rglob("*"))
            text_marker.write(text_entries)
        text_entries = text_marker.result
        tokenizer = corpus.build_tokenizer(work)
        if not (work / "dict.txt").exists():
            tokenizer.write_dictionary(work / "dict.txt")
        parts = corpus.parts(work, tokenizer)
        data_bin = work / "data-bin"
        totals = binarize(parts, work / "parts", data_bin, tokenizer, workers)
        targets = list(dict.fromkeys(part.target for part in parts))  # distinct, in this order
        _copy_vocabulary(work / "dict.txt", tokenizer, targets, data_bin)
        entries = _manifest_entries(corpus, text_entries, tokenizer, totals, targets)
        seconds = time.time() - started
        # A process killed just before the end leaves its manifest, which would be listed.
        (data_bin / manifests.FILE_NAME).unlink(missing_ok=True)
        manifest = manifests.describe(data_bin, settings=settings, seconds=seconds, **entries)
        # Not saved in data_bin directly: an atomic write leaves a temporary file if the process is
        # killed, and the manifest of the resumed preparation would list it.
        manifests.save(manifest, work)
        shutil.copyfile(work / manifests.FILE_NAME, data_bin / manifests.FILE_NAME)
        sync_files(data_bin.rglob("*"))
        os.replace(data_bin, Path(out) / "data-bin")
        _delete_work_folder(work)
    return manifest, True


def _check_text_is_kept(work: Path, files: list[Path]) -> None:
    """Check that no file of the text is in ``OUT/work``, which is deleted in the end.

    Raises:
        UserInputError: a file is.
    """
    for file in files:
        if file.resolve().is_relative_to(work.resolve()):
            raise UserInputError(
                f"{file} is inside {work}, which the preparation deletes. Move it, or choose "
                "another --out."
            )


def _check_work_folder(work: Path) -> None:
    """Check that ``OUT/work`` is free for a preparation, or has one.

    Raises:
        UserInputError: it has files but no settings of a preparation.
    """
    if not work.is_dir() or _settings_in(work) is not None:
        return
    for path in work.iterdir():
        # A process killed before it has written the settings leaves only these files.
        if path.name != _LOCK and not path.name.startswith(f".{_SETTINGS}."):
            raise UserInputError(
                f"{work} exists but has no {_SETTINGS} of this command, which would delete the "
                "folder. Choose another --out, or move it."
            )


def _settings_in(work: Path) -> dict | None:
    """Return the settings of the preparation in ``OUT/work``, or None if it holds none."""
    try:
        settings = read_json_if_present(work / _SETTINGS)
    except ValueError:  # another program's file of this name
        return None
    return settings if isinstance(settings, dict) else None


def _delete_work_folder(work: Path) -> None:
    """Delete ``OUT/work``, and its settings last.

    If the process is killed meanwhile, a rerun still recognizes the rest.
    """
    for path in work.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != _SETTINGS:
            path.unlink(missing_ok=True)
    shutil.rmtree(work)


def _folder_bytes(folder: Path) -> int:
    """Return the size of all files in a folder, 0 if there is none."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _finished_manifest(out: Path, settings: dict) -> dict | None:
    """Return the manifest of ``OUT/data-bin``, or None if the folder does not exist.

    If it exists, ``OUT/work`` is deleted if it has the same settings. A process killed after
    publishing leaves it behind.

    Raises:
        UserInputError: the folder has different data, or a damaged index.
    """
    data_bin = out / "data-bin"
    if not data_bin.exists():
        return None
    manifest = DataFolder.open(data_bin).manifest
    if manifest is None:
        raise UserInputError(
            f"{data_bin} exists but has no {manifests.FILE_NAME}, so it was not made by "
            "this command. Choose another --out, or move it."
        )
    description = f"{data_bin} was prepared"
    check_settings(manifest["settings"], settings, description, _ADVICE)
    check_indexes(data_bin)
    if _settings_in(out / "work") == manifest["settings"]:
        with suppress(OSError):  # another process is deleting it
            _delete_work_folder(out / "work")
    return manifest


@contextmanager
def _use_work_folder(work: Path, settings: dict) -> Iterator[None]:
    """Lock ``OUT/work`` for a preparation with these settings.

    The folder is deleted if the input is rejected before all of it has been read.

    Raises:
        UserInputError: the folder has a preparation with other settings, or is locked.
    """
    with locked(work / _LOCK, "--out", "preparation"):
        description = f"{work} has an unfinished preparation"
        existing = _settings_in(work)
        check_settings(existing, settings, description, _ADVICE)
        write_settings(work / _SETTINGS, settings)
        try:
            yield
        except UserInputError:
            if not (work / _TEXT_MARKER).exists():
                _delete_work_folder(work)
            raise


def _copy_vocabulary(
    dictionary: Path, tokenizer: Tokenizer, targets: list[str], data_bin: Path
) -> None:
    """Copy the dictionary to the folder of each target, and the tokenizer's files to ``data_bin``.

    The copies are not atomic writes, which leave a temporary file if the process is killed. A
    resumed preparation copies all files again.
    """
    for folder in {(data_bin / target).parent for target in targets}:
        shutil.copyfile(dictionary, folder / dictionary.name)
    for file in tokenizer.files:
        if file != dictionary:
            shutil.copyfile(file, data_bin / file.name)


def _manifest_entries(
    corpus: CorpusBuilder,
    text_entries: dict,
    tokenizer: Tokenizer,
    totals: dict[str, Counter],
    targets: list[str],
) -> dict:
    """Return the corpus's entries of the manifest.

    Args:
        corpus: the corpus.
        text_entries: entries returned by :meth:`.CorpusBuilder.write_normalized_text`. They replace
            those computed here, except ``more``, which is added to the counts of each split.
        tokenizer: its tokenizer.
        totals: counts of each split, from :func:`.binarize`.
        targets: target files.
    """
    further_counts = text_entries.get("more", {})
    splits: dict[str, dict] = {}
    for split, total in totals.items():
        splits[split] = {}
        if corpus.item:
            splits[split][corpus.item] = total["items"]
        for name in _COUNTS:
            splits[split][name] = total[name]
        splits[split].update(further_counts.get(split, {}))
    entries: dict = {"splits": splits, "tokenizer": tokenizer.describe()}
    shards = [target.split("/")[0] for target in targets if target.endswith("/train")]
    if shards:
        entries["shards"] = shards
    entries.update(text_entries)
    entries.pop("more", None)
    return entries
