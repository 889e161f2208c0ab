"""Entries and tracks of a record, as their folders hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from ..errors import UserInputError
from ..files import atomic_write, json_text, read_json, sha256_file
from ..positions.spec import distinct_labels
from ..reporting.row import Row
from ..reporting.rows import build_rows
from ..results.file import load
from ..results.file_names import RESULTS_FILE
from ..results.json_types import (
    Bits,
    Date,
    JsonObject,
    NonEmptyStr,
    NonNegativeInt,
    Positive,
    PositiveCount,
    Sha256,
    StrictObject,
    parse_json,
)
from ..results.provenance import Provenance
from ..results.result import Result
from ..results.series import Series
from ..results.values import ProbeValues, TextValues

TRACK_FILE = "track.json"
#: File that describes an entry, and has the hashes of its other files.
ENTRY_FILE = "entry.json"
#: File of an entry with the trials that chose its learning rate.
TRIALS_FILE = "trials.json"
#: File of an entry with what ``alibi-fairseq recall`` measured.
RECALL_FILE = "recall.json"
#: Value of its key ``format``.
RECALL_FORMAT = "alibi_fairseq/recall"
#: Multiple of the training length at which recall is shown.
RECALL_MULTIPLE = 16


class TrackFile(StrictObject):
    """Content of ``track.json``.

    Attributes:
        title: heading of the track on the page.
        about: what else readers should know, such as where the text comes from.
        run: command that trains and evaluates a method for the track; None if nobody else can get
            its text.
        reference: name of the entry that others are compared with.
    """

    format: Literal["alibi_fairseq/track"] = "alibi_fairseq/track"
    version: Literal[1] = 1
    title: NonEmptyStr
    about: str
    run: NonEmptyStr | None
    reference: NonEmptyStr


class RateTrial(StrictObject):
    """Learning rate that was tried, and its validation loss; None if the trial diverged."""

    lr: Positive
    loss_bits: Bits | None


class RateTrials(StrictObject):
    """Content of ``trials.json``: trials of the learning rate, of a number of updates each."""

    format: Literal["alibi_fairseq/trials"] = "alibi_fairseq/trials"
    version: Literal[1] = 1
    updates: PositiveCount
    trials: list[RateTrial]


class EntryFile(StrictObject):
    """Content of ``entry.json``.

    Attributes:
        author: who trained the models.
        year: year of the method's first paper; None if it has none.
        paper: address of the method's description.
        note: sentence of the author about the outcome.
        added: when the entry was written.
        exceptions: reason for each rule that the entry is allowed to break.
        files: SHA-256 of each other file of the entry, by path.
    """

    format: Literal["alibi_fairseq/entry"] = "alibi_fairseq/entry"
    version: Literal[1] = 1
    author: NonEmptyStr
    year: PositiveCount | None
    paper: str
    note: str
    added: Date
    exceptions: dict[str, NonEmptyStr]
    files: dict[str, Sha256]


class RecallRange(JsonObject):
    """Loss of the tokens that complete a pair seen at least ``first`` tokens earlier."""

    first: NonNegativeInt
    tokens: NonNegativeInt
    loss_bits: Bits | None


class RecallResult(JsonObject):
    """Losses of one checkpoint at one length, by the distance of the earlier pair.

    Attributes:
        plugin_sha256: hash of the plugin that was used; None without one, or in earlier files.
    """

    checkpoint_sha256: Sha256
    plugin_sha256: Sha256 | None = None
    length: PositiveCount
    ranges: list[RecallRange]


class RecallFile(JsonObject):
    """What the record reads of a file of ``alibi-fairseq recall --out``.

    Attributes:
        split: name of the split, whose hash the provenance has.
    """

    split: NonEmptyStr
    provenance: Provenance
    results: list[RecallResult]


@dataclass(frozen=True)
class Entry:
    """Results of one method on a track.

    Attributes:
        folder: its folder, whose name is the name of the entry.
        file: content of ``entry.json``.
        results: all results.
        provenance: provenance of each training and evaluation, in ``parts``.
        trials: trials of the learning rate; None if there were none.
        recall: measurements of ``alibi-fairseq recall``; None without any.
    """

    folder: Path
    file: EntryFile
    results: Sequence[Result]
    provenance: Provenance
    trials: RateTrials | None
    recall: RecallFile | None

    @property
    def name(self) -> str:
        """Name within the track."""
        return self.folder.name

    @cached_property
    def rows(self) -> list[Row]:
        """Perplexities by case; one row, if all models are seeds of one."""
        return build_rows(self._of_kind("text"))

    @property
    def row(self) -> Row:
        """Perplexities by case."""
        return self.rows[0]

    @property
    def series(self) -> Series:
        """How the models were trained."""
        return self._of_kind("text")[0].series

    @property
    def learning_rate(self) -> float:
        """Peak learning rate of the training."""
        return float(self.series.learning_rate)

    @property
    def trainings(self) -> list[Result]:
        """Last validation of each training."""
        return self._of_kind("validation")

    @cached_property
    def passkey_rows(self) -> list[Row]:
        """Accuracies on the passkey probe; at most one row, if all models are seeds of one."""
        found = []
        for result in self.results:
            if isinstance(result.values, ProbeValues) and result.case.corpus == "passkey":
                found.append(result)
        return build_rows(found)

    @property
    def passkey(self) -> Row | None:
        """Accuracies on the passkey probe; None without any."""
        return self.passkey_rows[0] if self.passkey_rows else None

    @property
    def hours(self) -> float:
        """Duration of all trainings without their trials."""
        return sum(result.cost.seconds or 0.0 for result in self.trainings) / 3600

    @property
    def trial_updates(self) -> int:
        """Updates of all trials."""
        return len(self.trials.trials) * self.trials.updates if self.trials else 0

    def _of_kind(self, kind: str) -> list[Result]:
        """Return the losses on a text, or those of validations."""
        found = []
        for result in self.results:
            if result.case.kind == kind and isinstance(result.values, TextValues):
                found.append(result)
        return found


@dataclass(frozen=True)
class Track:
    """Track of a record.

    Attributes:
        folder: its folder, whose name is the name of the track.
        file: content of ``track.json``.
        entries: its entries, by name.
    """

    folder: Path
    file: TrackFile
    entries: Mapping[str, Entry]

    @cached_property
    def _labels(self) -> Mapping[str, str]:
        """Label of each entry, by name."""
        methods = {name: entry.series.method for name, entry in self.entries.items()}
        of_methods = distinct_labels(methods.values())
        labels = [of_methods[method] for method in methods.values()]
        by_name = {}
        for name, label in zip(methods, labels, strict=True):
            by_name[name] = f"{label} ({name})" if labels.count(label) > 1 else label
        return by_name

    def label(self, entry: Entry) -> str:
        """Return the name of an entry in tables: its method, whose options it states if needed.

        The labels of two entries of one method have the names of the entries as well.
        """
        return self._labels[entry.name]

    @property
    def reference(self) -> Entry:
        """Entry that others are compared with, which determines data and budget.

        Raises:
            UserInputError: it is missing.
        """
        name = self.file.reference
        if name not in self.entries:
            raise UserInputError(
                f"{self.folder / TRACK_FILE}: the reference '{name}' is no entry. Restore its "
                "folder."
            )
        return self.entries[name]


def read_record(folder: Path) -> list[Track]:
    """Read all tracks of a record, by name.

    Raises:
        UserInputError: the folder has no track, or a file is invalid.
    """
    tracks = [read_track(path.parent) for path in sorted(folder.glob(f"*/{TRACK_FILE}"))]
    if not tracks:
        raise UserInputError(f"{folder} has no track. Pass --record, the folder of a record.")
    return tracks


def read_track(folder: Path) -> Track:
    """Read a track and its entries."""
    path = folder / TRACK_FILE
    file = parse_json(TrackFile, read_json(path), str(path))
    entries = {}
    for entry_file in sorted(folder.glob(f"*/{ENTRY_FILE}")):
        entry = read_entry(entry_file.parent)
        entries[entry.name] = entry
    return Track(folder, file, entries)


def read_entry(folder: Path) -> Entry:
    """Read an entry."""
    path = folder / ENTRY_FILE
    file = parse_json(EntryFile, read_json(path), str(path))
    measured = load(folder / RESULTS_FILE)
    if measured.provenance is None:
        raise UserInputError(f"{folder / RESULTS_FILE} has no provenance. Write the entry again.")
    trials = None
    if (folder / TRIALS_FILE).is_file():
        trials = parse_json(RateTrials, read_json(folder / TRIALS_FILE), str(folder / TRIALS_FILE))
    recall = None
    if (folder / RECALL_FILE).is_file():
        recall = read_recall(folder / RECALL_FILE)
    return Entry(folder, file, measured.results, measured.provenance, trials, recall)


def read_recall(path: Path) -> RecallFile:
    """Read a file of ``alibi-fairseq recall --out``.

    Raises:
        UserInputError: it is another file, or has other content.
    """
    content = read_json(path)
    if not isinstance(content, dict) or content.get("format") != RECALL_FORMAT:
        raise UserInputError(f"'{path}' is not a file of `alibi-fairseq recall`. Choose another.")
    return parse_json(RecallFile, content, str(path))


def write_json(content: BaseModel, path: Path) -> None:
    """Write the file of a track or an entry."""
    with atomic_write(path) as stream:
        stream.write(json_text(content.model_dump(mode="json")))


def file_hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of an entry but ``entry.json``, by path."""
    hashes = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path != folder / ENTRY_FILE:
            hashes[path.relative_to(folder).as_posix()] = sha256_file(path)
    return hashes
