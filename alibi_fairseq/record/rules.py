"""Rules that the entries of a track must keep, so that its table compares like with like."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from ..reporting.row import Row
from ..results.case import Case
from ..results.series import Series
from ..results.settings import canonical
from .entry import ENTRY_FILE, Entry, Track, file_hashes

#: Smallest number of seeds.
MIN_SEEDS = 3
#: Settings in which the entries of a track may differ: the method, and its learning rate.
OF_METHOD = ("method", "method_versions", "plugin", "optimization.lr")
#: Settings of the training data.
OF_DATA = ("data.train", "data.train_lines", "data.dictionary", "data")


def check_files(entry: Entry, reference: Entry) -> str:
    """Return what was changed, added, or removed since the entry was written."""
    found = file_hashes(entry.folder)
    changed = []
    for name in sorted({*found, *entry.file.files}):
        if found.get(name) != entry.file.files.get(name):
            changed.append(name)
    return f"{', '.join(changed)} changed after the entry was written" if changed else ""


def check_seeds(entry: Entry, reference: Entry) -> str:
    """Return why the models are not enough seeds of one model."""
    if len(entry.rows) != 1:
        return f"its results are of {len(entry.rows)} models instead of seeds of one"
    seeds = {result.seed for result in (*entry.row.results, *entry.trainings)}
    if len(seeds) < MIN_SEEDS:
        return f"it has {len(seeds)} seeds, fewer than {MIN_SEEDS}"
    trained = {result.seed for result in entry.trainings}
    if trained != seeds:
        return (
            f"only {len(trained)} of its {len(seeds)} seeds have the last validation of their "
            "training"
        )
    for point in entry.row.points:
        if point.seeds != len(seeds):
            return (
                f"only {point.seeds} of its {len(seeds)} seeds have a result at length "
                f"{point.case.length}"
            )
    texts = [text for row in entry.passkey_rows for text in _texts(row)]
    if len(texts) > 1:
        return (
            "its passkey results are of several models or texts instead of seeds of one model; "
            "move the folders of the other probes out of that of the comparison"
        )
    for row in entry.passkey_rows:
        for point in row.points:
            with_result = seeds & {result.seed for result in point.results}
            if with_result != seeds:
                return (
                    f"only {len(with_result)} of its {len(seeds)} seeds have a passkey result at "
                    f"length {point.case.length} and depth {point.case.depth:g}; run compare again"
                )
    return ""


def check_data(entry: Entry, reference: Entry) -> str:
    """Return which data, or which evaluation of the track, is another one, missing, or unclear."""
    differing = _differences(entry.series, reference.series, of_data=True)
    if differing:
        return f"it was trained on other data ({', '.join(differing)})"
    cases = {point.case for point in entry.row.points}
    if entry.series.train_length not in {case.length for case in cases}:
        return "it has no result at its training length"
    for point in reference.row.points:
        if point.case not in cases:
            return f"it has no result on the track's test text at length {point.case.length}"
    if "plugin" in entry.row.results[0].reading.overrides:
        return "it was evaluated with another version of the plugin than its training"
    return _ambiguous_length(entry) or _other_recall(entry)


def check_training(entry: Entry, reference: Entry) -> str:
    """Return in what the training differs from the reference's, besides method, rate, and data.

    The data of the passkey probe count, since no other rule compares them.
    """
    problems = []
    differing = _differing_training(entry.row, reference.row)
    if differing:
        problems.append(f"its training differs: {', '.join(differing)}")
    if entry.passkey is not None and reference.passkey is not None:
        differing = _differing_training(entry.passkey, reference.passkey)
        if _texts(entry.passkey) != _texts(reference.passkey):
            differing.append("data")
        if _lengths(entry.passkey) != _lengths(reference.passkey):
            differing.append("lengths")
        if differing:
            problems.append(f"its passkey probe differs: {', '.join(differing)}")
    return "; ".join(problems)


def check_rate(entry: Entry, reference: Entry) -> str:
    """Return why the learning rate may not be the best one."""
    if entry.trials is None:
        return "its learning rate was not chosen by trials"
    losses = {}
    for trial in entry.trials.trials:
        if trial.loss_bits is not None:
            losses[trial.lr] = trial.loss_bits
    if not losses:
        return "all of its trials diverged"
    best = min(losses, key=losses.__getitem__)
    rate = entry.learning_rate
    if best != rate:
        return f"it was trained at {rate:g}, but the best trial is that at {best:g}"
    tried = [trial.lr for trial in entry.trials.trials]
    if rate in (min(tried), max(tried)):
        return f"its learning rate, {rate:g}, is at the edge of the grid"
    return ""


def check_commit(entry: Entry, reference: Entry) -> str:
    """Return whether the code that trained and evaluated the models had uncommitted changes.

    An installed copy has no commit, and its version says what ran.
    """
    parts = entry.provenance.parts or [entry.provenance]
    if any(part.git_clean is False for part in parts):
        return "its code had uncommitted changes"
    return ""


Rule = Callable[[Entry, Entry], str]
#: Rules by name. Each returns what is wrong; empty if nothing is.
RULES: dict[str, Rule] = {
    "files": check_files,
    "seeds": check_seeds,
    "data": check_data,
    "training": check_training,
    "rate": check_rate,
    "commit": check_commit,
}
#: Rules that an entry may break for a stated reason, which the page shows.
EXCEPTABLE = ("training", "rate", "commit")


def find_problems(entry: Entry, reference: Entry) -> list[str]:
    """Return a sentence for each rule that an entry breaks without an exception.

    An exception without need is a problem as well: what it excuses is no longer true.
    """
    problems = []
    for name in entry.file.exceptions:
        if name not in EXCEPTABLE:
            problems.append(
                f"{entry.folder}: no entry may have an exception from '{name}'. Remove it from "
                f"{ENTRY_FILE}."
            )
    for name, rule in RULES.items():
        problem = rule(entry, reference)
        excepted = name in EXCEPTABLE and name in entry.file.exceptions
        if problem and not excepted:
            advice = " With a good reason, pass --exception." if name in EXCEPTABLE else ""
            problems.append(f"{entry.folder}: {problem} (rule '{name}').{advice}")
        if excepted and not problem:
            problems.append(f"{entry.folder}: the exception from '{name}' is not needed.")
        if problem and name in ("seeds", "files"):
            break  # the other rules read the results of one model
    return problems


def problems_of_track(track: Track) -> list[str]:
    """Return a sentence for each rule that an entry of a track breaks.

    If it is the reference, the others are not checked, because rules compare them with it.
    """
    problems = find_problems(track.reference, track.reference)
    if problems:
        return problems
    for name, entry in track.entries.items():
        if name != track.reference.name:
            problems += find_problems(entry, track.reference)
    return problems


def _ambiguous_length(entry: Entry) -> str:
    """Return at which length an entry has several results of a seed, of which tables show one."""
    by_length: dict[int, list[Case]] = defaultdict(list)
    for point in entry.row.points:
        by_length[point.case.length].append(point.case)
    for length, cases in by_length.items():
        if len(cases) > 1:
            names = " and ".join(f"{case.split} ({case.scored})" for case in cases)
            return (
                f"it has several evaluations at length {length}: {names}; run compare with only "
                "one of them, then add the model again"
            )
    return ""


def _other_recall(entry: Entry) -> str:
    """Return in what the measurement of recall differs from the evaluations of an entry."""
    if entry.recall is None:
        return ""
    evaluated = entry.row.points[-1].results[0]
    split = evaluated.case.split
    origin = entry.recall.provenance
    if entry.recall.split != split:
        return (
            f"its recall was measured on {entry.recall.split}, but its perplexity on {split}; pass "
            f"--subset {split} to `alibi-fairseq recall`"
        )
    if origin.data_sha256 != evaluated.case.text:
        return (
            "its recall was measured on another text than its perplexity; pass the data folder of "
            "the comparison to `alibi-fairseq recall`"
        )
    precision = evaluated.reading.precision
    if origin.precision != precision:
        return (
            f"its recall was measured in {origin.precision}, but its perplexity in {precision}; "
            f"pass --precision {precision} to `alibi-fairseq recall`"
        )
    plugins = {result.plugin_sha256 for result in entry.recall.results}
    if plugins - {None, entry.series.settings.get("plugin")}:
        return (
            "its recall was measured with another version of the plugin than its training; pass "
            "the copy in the folder of a run, plugin/NAME, as --user-dir to `alibi-fairseq recall`"
        )
    return ""


def _differing_training(ours: Row, theirs: Row) -> list[str]:
    """Return the settings in which two models differ, besides those of the method and the data."""
    series = ours.results[0].series
    differing = _differences(series, theirs.results[0].series, of_data=False)
    reading = ours.results[0].reading
    expected = theirs.results[0].reading
    if reading.at != expected.at:
        differing.append(f"updates {reading.at} instead of {expected.at}")
    if reading.precision != expected.precision:
        differing.append(f"precision {reading.precision} instead of {expected.precision}")
    if series.history:
        differing.append("resumed with other settings")
    if series.start:
        differing.append("started from a checkpoint")
    return differing


def _texts(row: Row) -> set[str | None]:
    """Return the hashes of the data of a row."""
    return {point.case.text for point in row.points}


def _lengths(row: Row) -> set[int]:
    """Return the lengths at which a row was evaluated."""
    return {point.case.length for point in row.points}


def _differences(first: Series, second: Series, of_data: bool) -> list[str]:
    """Return the settings in which two trainings differ, besides those of the method."""
    ours = _compared(first, of_data)
    theirs = _compared(second, of_data)
    return sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))


def _compared(series: Series, of_data: bool) -> dict[str, Any]:
    """Return the settings that must be equal: those of the data, or all others."""
    compared = {}
    for name, value in canonical(series.settings).items():
        if name not in OF_METHOD and (name in OF_DATA) == of_data:
            compared[name] = value
    return compared
