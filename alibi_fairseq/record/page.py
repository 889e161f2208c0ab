"""Page of a record: a section per track with its table, what did not help, and its cost."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from ..reporting import markdown
from ..reporting.common_conditions import common_conditions
from ..reporting.differences import format_difference, row_difference
from ..reporting.means import mean_of_known
from ..reporting.notes import mark_notes
from ..reporting.page import fill_file
from ..reporting.probes import area_text, compute_areas
from ..reporting.row import Point
from ..reporting.table import Column, Table
from ..reporting.training_costs import processor_name
from ..results.case import Case
from ..results.estimates import Difference
from .entry import RECALL_MULTIPLE, Entry, RecallRange, Track

_PAGE = Path(__file__).with_name("page.md")
_SECTION = Path(__file__).with_name("track.md")
#: Guide to a record, from the folder of the record in a clone of this repository.
_GUIDE = Path("../../docs/record.md")
#: Multiples of the training length with a column.
MULTIPLES = (1, 4, 16)


def write_page(tracks: Iterable[Track]) -> str:
    """Write the page of a record, which links the guide where it is next to the record."""
    tracks = list(tracks)
    start_a_track = "start a track"
    rules = "rules"
    guide = "(`docs/record.md` of alibi_fairseq) "
    if (tracks[0].folder.parent / _GUIDE).is_file():
        start_a_track = f"[start a track]({_GUIDE}#start-a-track)"
        rules = f"[rules]({_GUIDE}#rules)"
        guide = ""
    entries = [entry for track in tracks for entry in track.entries.values()]
    slots = {
        "is_open": any(track.file.run is not None for track in tracks),
        "start_a_track": start_a_track,
        "rules": rules,
        "guide": guide,
        "tracks": "\n\n".join(_section(track) for track in tracks),
        "recall": any(entry.recall is not None for entry in entries),
        "passkey": any(track.reference.passkey is not None for track in tracks),
    }
    return fill_file(_PAGE, slots, width=140) + "\n"


def cost_sentence(track: Track) -> str:
    """Return what an entry costs to train, and how long those of the track took."""
    reference = track.reference
    seeds = len(reference.trainings)
    tokens = max(result.cost.trained_tokens or 0 for result in reference.trainings)
    total = seeds * tokens
    sentence = f"train {seeds} models on {_short(tokens)} tokens each"
    if reference.trials is not None:
        trials = reference.trial_updates * (reference.series.tokens_per_update or 0)
        total += trials
        number = len(reference.trials.trials)
        sentence += f", plus {number} learning-rate trials"
    hours = [entry.hours for entry in track.entries.values()]
    return (
        f"{sentence}: {_short(total)} tokens in all. Each entry so far took "
        f"{_duration_range(min(hours), max(hours))} in total, not counting trials."
    )


def _short(tokens: int) -> str:
    """Format a number of tokens, such as ``24.0M``."""
    return f"{tokens / 1e6:.1f}M" if tokens >= 1e5 else f"{tokens:,}"


def _duration_range(shortest: float, longest: float) -> str:
    """Format a range of durations in hours, such as ``2.5 to 3.1 hours``."""
    unit = "hours"
    low = f"{shortest:.1f}"
    high = f"{longest:.1f}"
    if longest < 1:
        unit = "minutes"
        low = f"{60 * shortest:.0f}"
        high = f"{60 * longest:.0f}"
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"


def _section(track: Track) -> str:
    """Return the section of a track."""
    multiple = _sorted_by(track)
    entries = _sorted_entries(track, multiple)
    slots = {
        "title": track.file.title,
        "name": track.folder.name,
        "about": track.file.about,
        "run": track.file.run or "",
        "conditions": markdown.sentence(common_conditions([entry.row for entry in entries])),
        "table": markdown.to_markdown([_table(track, entries, multiple)]),
        "exceptions": _exceptions(track, entries),
        "outcome": _outcome(track, entries, multiple),
        "notes": _notes(track, entries),
        "origins": markdown.to_markdown([_origins_table(entries)]),
        "cost": cost_sentence(track),
    }
    return fill_file(_SECTION, slots, width=140)


def _sorted_by(track: Track) -> int:
    """Return the longest multiple of the training length at which the track is evaluated."""
    measured = [multiple for multiple in MULTIPLES if _case(track, multiple) is not None]
    return max(measured, default=1)


def _sorted_entries(track: Track, multiple: int) -> list[Entry]:
    """Return the entries from the lowest perplexity to the highest."""
    return sorted(track.entries.values(), key=partial(_perplexity, track, multiple))


def _perplexity(track: Track, multiple: int, entry: Entry) -> float:
    point = _point(track, entry, multiple)
    assert point is not None, "an entry has every result of the reference"
    assert point.perplexity is not None, "results without a loss are left out"
    return point.perplexity


def _case(track: Track, multiple: int) -> Case | None:
    """Return what the track evaluates at a multiple of the training length; None if nothing.

    It is the case of the reference: an entry may have others.
    """
    length = multiple * track.reference.series.train_length
    for point in track.reference.row.points:
        if point.case.length == length:
            return point.case
    return None


def _point(track: Track, entry: Entry, multiple: int) -> Point | None:
    """Return the results of an entry at a multiple of the training length; None without any."""
    case = _case(track, multiple)
    for point in entry.row.points:
        if point.case == case:
            return point
    return None


def _table(track: Track, entries: Sequence[Entry], multiple: int) -> Table[Entry]:
    """Return the table of a track."""
    columns = [
        Column[Entry]("method", track.label),
        Column[Entry]("year", lambda entry: str(entry.file.year or markdown.NOTHING)),
    ]
    for shown in MULTIPLES:
        columns.append(Column(_name(shown), partial(_perplexity_cell, track, shown)))
    title = f"{_name(multiple)} vs. {track.label(track.reference)}"
    columns.append(Column(title, partial(_difference_cell, track, multiple)))
    optional = [
        Column(_recall_title(track), partial(_recall_cell, track)),
        Column("passkey", partial(_passkey_cell, track)),
        Column("tokens/s", _speed_cell),
        Column[Entry]("exceptions", lambda entry: ", ".join(entry.file.exceptions)),
    ]
    for column in optional:
        if any(column.cell(entry) not in ("", markdown.NOTHING) for entry in entries):
            columns.append(column)
    shown_points = []
    for entry in entries:
        points = [_point(track, entry, shown) for shown in MULTIPLES]
        shown_points += [point for point in points if point is not None]
    return Table(columns, entries, notes=mark_notes(shown_points))


def _name(multiple: int) -> str:
    return "L" if multiple == 1 else f"{multiple} L"


def _perplexity_cell(track: Track, multiple: int, entry: Entry) -> str:
    """Return the perplexity at a multiple of the training length."""
    point = _point(track, entry, multiple)
    return markdown.NOTHING if point is None else markdown.point(point, with_seeds=False)


def _difference(track: Track, multiple: int, entry: Entry) -> Difference | None:
    """Estimate the difference from the reference; None for the reference itself."""
    if entry.name == track.reference.name:
        return None
    case = _case(track, multiple)
    assert case is not None, "the track is evaluated at the multiple by which it is sorted"
    return row_difference(entry.row, track.reference.row, case)


def _difference_cell(track: Track, multiple: int, entry: Entry) -> str:
    """Return the difference from the reference with its interval."""
    estimate = _difference(track, multiple, entry)
    return markdown.NOTHING if estimate is None else format_difference(estimate)


def _recall_title(track: Track) -> str:
    """Return the header of the column of recall, with the smallest distance that counts.

    Distances are measured in ranges, whose edges the training length need not be.
    """
    firsts = []
    for entry in track.entries.values():
        for beyond in _recall_beyond(track, entry):
            firsts += [found.first for found in beyond]
    return f"recall from {min(firsts)}" if firsts else "recall"


def _recall_beyond(track: Track, entry: Entry) -> Iterator[list[RecallRange]]:
    """Yield the ranges of each checkpoint in which no distance is below the training length."""
    length = track.reference.series.train_length
    for result in entry.recall.results if entry.recall is not None else ():
        if result.length == RECALL_MULTIPLE * length:
            yield [found for found in result.ranges if found.first >= length]


def _recall_cell(track: Track, entry: Entry) -> str:
    """Return the loss of tokens that complete a pair beyond the training length."""
    losses = []
    for beyond in _recall_beyond(track, entry):
        tokens = sum(found.tokens for found in beyond)
        if tokens:
            bits = math.fsum(found.tokens * (found.loss_bits or 0.0) for found in beyond)
            losses.append(bits / tokens)
    mean = mean_of_known(losses)
    return markdown.NOTHING if mean is None else f"{mean:.2f}"


def _passkey_cell(track: Track, entry: Entry) -> str:
    """Return the area under the curve of the passkey probe beyond the training length.

    Without one of the reference, nothing ensures that entries trained on the probe alike.
    """
    if entry.passkey is None or track.reference.passkey is None:
        return markdown.NOTHING
    (areas,) = compute_areas(entry.passkey.results)
    return area_text(areas.beyond)


def _speed_cell(entry: Entry) -> str:
    """Return the mean training speed."""
    mean = mean_of_known(result.cost.tokens_per_second for result in entry.trainings)
    return markdown.NOTHING if mean is None else markdown.thousands(mean)


def _exceptions(track: Track, entries: Iterable[Entry]) -> str:
    """Return a list of the exceptions, with the methods that share a reason."""
    methods: dict[tuple[str, str], list[str]] = defaultdict(list)
    for entry in entries:
        for rule, reason in entry.file.exceptions.items():
            methods[rule, reason].append(track.label(entry))
    lines = []
    for (rule, reason), names in methods.items():
        lines.append(f"- **{rule}** ({'; '.join(names)}): {markdown.literal(reason)}")
    return "\n".join(lines)


def _outcome(track: Track, entries: Iterable[Entry], multiple: int) -> str:
    """Return which methods help, which do not, and which cannot be told apart."""
    outcomes: dict[str, list[str]] = {"lower": [], "unclear": [], "higher": []}
    for entry in entries:
        estimate = _difference(track, multiple, entry)
        if estimate is None:
            continue
        low, high = estimate.interval()
        outcome = "lower" if high < 0 else "higher" if low > 0 else "unclear"
        outcomes[outcome].append(track.label(entry))
    reference = track.label(track.reference)
    kinds = {
        "lower": f"Lower perplexity than {reference} at {_name(multiple)}",
        "unclear": f"No clear difference from {reference}",
        "higher": f"Higher perplexity than {reference} at {_name(multiple)}",
    }
    lines = []
    for kind, text in kinds.items():
        lines.append(f"- {text}: {'; '.join(outcomes[kind]) or 'none'}")
    return "\n".join(lines)


def _notes(track: Track, entries: Iterable[Entry]) -> str:
    """Return a list of the authors' sentences."""
    lines = []
    for entry in entries:
        if entry.file.note:
            lines.append(f"- {track.label(entry)}: {markdown.literal(entry.file.note)}")
    return "\n".join(lines)


def _origins_table(entries: Sequence[Entry]) -> Table[Entry]:
    """Return who trained each entry, on what, from which code."""
    columns = [
        Column[Entry]("entry", lambda entry: entry.name),
        Column[Entry]("author", lambda entry: entry.file.author),
        Column[Entry]("paper", lambda entry: entry.file.paper or markdown.NOTHING),
        Column[Entry]("seeds", lambda entry: str(len(entry.trainings))),
        Column[Entry]("learning rate", lambda entry: f"{entry.learning_rate:g}"),
        Column[Entry]("hours", lambda entry: f"{entry.hours:.1f}"),
        Column[Entry]("machine", _machine_cell),
        Column[Entry]("commit", _commit_cell),
    ]
    return Table(columns, entries, left=3)


def _machine_cell(entry: Entry) -> str:
    """Return the processors that trained and evaluated the models."""
    parts = entry.provenance.parts or [entry.provenance]
    return " and ".join(dict.fromkeys(processor_name(part.hardware) for part in parts))


def _commit_cell(entry: Entry) -> str:
    """Return the commits of the code, or the versions of installed copies."""
    names: dict[str, None] = {}
    for part in entry.provenance.parts or [entry.provenance]:
        version = part.versions.get("alibi_fairseq")
        names[(part.git_commit or f"version {version}")[:12]] = None
    return ", ".join(names)
