"""Command ``alibi-fairseq record``: a record of results that others extend."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ..errors import UserInputError
from ..options import option
from .options import CliCommand, fill_dataclass

#: Page of a record, in its folder.
PAGE = "README.md"


@dataclass(kw_only=True)
class RecordAction(CliCommand):
    """Option that all actions share.

    Attributes:
        action, summary: name of the action, and its line of help.
    """

    action: ClassVar[str]
    summary: ClassVar[str]

    record: Path = option("folder of the record", Path("results/record"), metavar="FOLDER")


@dataclass(kw_only=True)
class Add(RecordAction):
    """Options of ``alibi-fairseq record add``."""

    action = "add"
    summary = "add the models of a finished comparison to a track"

    results: Path = option(
        "output folder of compare, or folder of a study's results", metavar="FOLDER"
    )
    track: str = option("name of the track", required=True, metavar="NAME")
    author: str = option("who trained the models", required=True, metavar="TEXT")
    models: str = option(
        "glob pattern of the models to add, such as '*/root-128*'; each match becomes an entry", "*"
    )
    name: str = option("name of the entry (default: derived from the method's name)", "")
    year: int | None = option("year of the method's first paper", None)
    url: str = option(
        "address of the paper, or of a different description of the method", "", metavar="URL"
    )
    note: str = option("a sentence about the outcome, for example why it did not help", "")
    recall: Path | None = option("file of `alibi-fairseq recall --out`", None, metavar="FILE")
    exception: Sequence[str] = option(
        "reason to break a rule (docs/record.md); repeatable",
        (),
        action="append",
        metavar="RULE=REASON",
    )
    title: str = option(
        "heading of a new track, of which this is the first entry", "", metavar="TEXT"
    )
    about: str = option("what readers should know about the new track, such as its text", "")
    run_with: str = option(
        "command that trains a method for the new track (default: one of compare)",
        "",
        metavar="COMMAND",
    )

    def __call__(self) -> None:
        """Write the entries, and the page.

        Raises:
            UserInputError: as :func:`.add_entry`, or an option is missing.
        """
        from ..record.collection import Description, add_entry, find_models, start_track
        from ..record.entry import TRACK_FILE

        folder = self.record / self.track
        is_new = not (folder / TRACK_FILE).is_file()
        if is_new and not self.title:
            raise UserInputError(
                f"{self.record} has no track '{self.track}'. To start it, pass --title."
            )
        models = find_models(self.results, self.models)
        if self.name and len(models) > 1:
            raise UserInputError(
                f"--name is for one of {len(models)} models. Select it by --models: "
                f"{', '.join(model.name for model in models)}."
            )
        description = Description(
            author=self.author,
            name=self.name,
            year=self.year,
            paper=self.url,
            note=self.note,
            exceptions=self._exceptions(),
            recall=self.recall,
        )
        written: list[Path] = []
        try:
            if is_new:
                texts = (self.title, self.about, self.run_with)
                entry = start_track(folder, self.results, models.pop(0), description, *texts)
                written += [folder / TRACK_FILE, entry.folder]
            for model in models:
                written.append(add_entry(folder, self.results, model, description).folder)
            page = _write_page(self.record)
        except UserInputError:
            _remove(written)
            raise
        for path in written:
            if path.is_dir():
                print(path)
        print(page)

    def _exceptions(self) -> dict[str, str]:
        """Return the reasons by rule."""
        from ..record.rules import EXCEPTABLE

        reasons = {}
        for text in self.exception:
            rule, _, reason = text.partition("=")
            if rule not in EXCEPTABLE or not reason:
                raise UserInputError(
                    f"--exception takes RULE=REASON, and RULE is {', '.join(EXCEPTABLE)}, not "
                    f"'{text[:60]}'."
                )
            reasons[rule] = reason
        return reasons


@dataclass(kw_only=True)
class Check(RecordAction):
    """Options of ``alibi-fairseq record check``. It exits with 1 if an entry breaks a rule."""

    action = "check"
    summary = "check that all entries follow the rules, and that the page matches them"

    def __call__(self) -> int:
        """Print how many entries each track has, what one costs, and each problem.

        The cost is not known of a track whose entries lack results.
        """
        from ..record.entry import read_record
        from ..record.page import cost_sentence, write_page
        from ..record.rules import problems_of_track

        tracks = read_record(self.record)
        problems: list[str] = []
        for track in tracks:
            found = problems_of_track(track)
            problems += found
            cost = "" if found else f" To add one, {cost_sentence(track)}"
            print(f"{track.folder.name}: {len(track.entries)} entries.{cost}")
        page = self.record / PAGE
        shown = page.read_text(encoding="utf-8") if page.is_file() else ""
        if not problems and shown != write_page(tracks):
            problems.append(f"{page} is out of date. Run `alibi-fairseq record table`.")
        for problem in problems:
            print(problem)
        return 1 if problems else 0


@dataclass(kw_only=True)
class WritePage(RecordAction):
    """Options of ``alibi-fairseq record table``."""

    action = "table"
    summary = "write the page with the tables of all tracks"

    def __call__(self) -> None:
        """Write the page."""
        print(_write_page(self.record))


def _remove(paths: Iterable[Path]) -> None:
    """Remove files and folders that a refused command has written, and empty parents."""
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
        with suppress(OSError):  # the track has other entries
            path.parent.rmdir()


def _write_page(record: Path) -> Path:
    """Write the page of a record, and return its path.

    Raises:
        UserInputError: an entry breaks a rule.
    """
    from ..files import atomic_write
    from ..record.entry import read_record
    from ..record.page import write_page
    from ..record.rules import problems_of_track

    tracks = read_record(record)
    for track in tracks:
        for problem in problems_of_track(track):
            raise UserInputError(problem)
    text = write_page(tracks)
    with atomic_write(record / PAGE) as stream:
        stream.write(text)
    return record / PAGE


ACTIONS: tuple[type[RecordAction], ...] = (Add, Check, WritePage)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a subcommand for each action."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for kind in ACTIONS:
        options = actions.add_parser(kind.action, help=kind.summary, description=kind.summary)
        options.set_defaults(kind=kind)
        kind.add_arguments(options)


def run(args: argparse.Namespace) -> int | None:
    """Execute an action."""
    return fill_dataclass(args.kind, args)()
