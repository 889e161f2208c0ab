"""Entries from the output folder of ``compare``, or from the results of a study."""

from __future__ import annotations

import fnmatch
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..errors import UserInputError
from ..files import atomic_folder, read_json
from ..results.case import Case
from ..results.file import Results, load, load_training, merge, save
from ..results.file_names import (
    COMPARISON_FILE,
    COPIED_PLUGIN,
    PLUGIN_FOLDER,
    RESULTS_FILE,
    TRAINING_FILE,
    TRIALS_ENDING,
    find_results_files,
)
from ..results.provenance import utc_time
from ..results.result import Result
from ..results.values import ProbeValues, TextValues
from .entry import (
    ENTRY_FILE,
    RECALL_FILE,
    RECALL_MULTIPLE,
    TRACK_FILE,
    TRIALS_FILE,
    Entry,
    EntryFile,
    RateTrial,
    RateTrials,
    TrackFile,
    file_hashes,
    read_entry,
    read_recall,
    read_track,
    write_json,
)
from .rules import find_problems

#: Results files of a run as trained: those of ``compare``, and of a study.
_EVALUATION_FILES = (RESULTS_FILE, "evaluation.json")
#: Commands that train a method for a track of ``compare``.
_RUN = """\
cp {configuration} mine.yaml    # in the copy, replace the methods and the path of the text
alibi-fairseq compare mine.yaml --user-dir my_plugin --out runs/mine --dry-run
alibi-fairseq compare mine.yaml --user-dir my_plugin --out runs/mine"""


@dataclass(frozen=True)
class Description:
    """What the author says about an entry.

    Attributes:
        author, year, paper, note, exceptions: as in :class:`.EntryFile`.
        name: name of the entry; empty: made of the method's label.
        recall: results file of ``alibi-fairseq recall``.
    """

    author: str
    name: str = ""
    year: int | None = None
    paper: str = ""
    note: str = ""
    exceptions: Mapping[str, str] = field(default_factory=dict)
    recall: Path | None = None


@dataclass
class ComparedModel:
    """Finished runs of one model.

    Attributes:
        name: path of the runs within the folder, without the seed.
        runs: folder of each seed.
        probes: results of the same model on probes.
    """

    name: str
    runs: list[Path] = field(default_factory=list)
    probes: list[Results] = field(default_factory=list)


def find_models(folder: Path, pattern: str = "*") -> list[ComparedModel]:
    """Return the finished models of a comparison or study that were trained on a text.

    Args:
        folder: output folder of ``compare``, or folder of a study's results.
        pattern: glob pattern of the models' names, such as ``*alibi-128``.

    Raises:
        UserInputError: there are none.
    """
    models: dict[str, ComparedModel] = {}
    probes: dict[str, list[Results]] = {}
    for path in sorted(folder.rglob(TRAINING_FILE)):
        run = path.parent
        match = re.fullmatch(r"(.+)-seed\d+", run.name)
        file = _evaluation_file(run)
        if match is None or file is None:
            continue
        measured = load(file)
        if isinstance(measured.results[0].values, ProbeValues):
            probes.setdefault(match[1], []).append(measured)
            continue
        name = (run.parent / match[1]).relative_to(folder).as_posix()
        if fnmatch.fnmatch(name, pattern):
            models.setdefault(name, ComparedModel(name)).runs.append(run)
    if not models:
        raise UserInputError(
            f"{folder} has no finished model whose name matches '{pattern}'. Pass the output "
            "folder of compare, or the results of a study."
        )
    for model in models.values():
        model.probes = probes.get(Path(model.name).name, [])
    return list(models.values())


def start_track(
    track: Path,
    source: Path,
    model: ComparedModel,
    description: Description,
    title: str,
    about: str,
    run: str,
) -> Entry:
    """Start a track with the entry that others are compared with.

    Args:
        track: folder of the track.
        source, model, description: as for :func:`add_entry`.
        title, about, run: as in :class:`.TrackFile`; without ``run``, the command is one of
            ``compare`` with the configuration of the entry.

    Raises:
        UserInputError: as :func:`add_entry`.
    """
    entry = _write_entry(track, source, model, description, None)
    if not run:
        run = _RUN.format(configuration=entry.folder / COMPARISON_FILE)
    file = TrackFile(title=title, about=about, run=run, reference=entry.name)
    write_json(file, track / TRACK_FILE)
    return entry


def add_entry(track: Path, source: Path, model: ComparedModel, description: Description) -> Entry:
    """Write an entry, unless it breaks a rule of its track.

    Args:
        track: folder of the track.
        source: folder of the comparison or study.
        model: finished model.

    Raises:
        UserInputError: a rule is broken, or the name is taken.
    """
    return _write_entry(track, source, model, description, read_track(track).reference)


def _write_entry(
    track: Path,
    source: Path,
    model: ComparedModel,
    description: Description,
    reference: Entry | None,
) -> Entry:
    """Write an entry; see :func:`add_entry`. The first entry of a track is its own reference."""
    measured = _merge_results(model)
    needed = _configured_cases(source) if reference is None else _cases_of(reference)
    results = replace(measured, results=_select_results(measured.results, needed, model.name))
    label = results.results[0].series.method.label
    name = description.name or re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")
    folder = track / name
    if folder.exists():
        raise UserInputError(
            f"{model.name}: another entry of the track is named '{name}'. Pass another --name, or "
            "select one of the models by --models."
        )
    with atomic_folder(folder) as unfinished:
        save(results, unfinished / RESULTS_FILE)
        _copy_inputs(source, model, unfinished)
        trials = _read_trials(model.runs[0])
        if trials is not None:
            write_json(trials, unfinished / TRIALS_FILE)
        if description.recall is not None:
            _write_recall(description.recall, results.results, unfinished / RECALL_FILE)
        file = EntryFile(
            author=description.author,
            year=description.year,
            paper=description.paper,
            note=description.note,
            added=utc_time(),
            exceptions=dict(description.exceptions),
            files=file_hashes(unfinished),
        )
        write_json(file, unfinished / ENTRY_FILE)
        entry = read_entry(unfinished)
        problems = find_problems(entry, reference or entry)
        if problems:
            raise UserInputError(problems[0].replace(str(unfinished), model.name))
    return read_entry(folder)


def _evaluation_file(run: Path) -> Path | None:
    """Return the results file of a run; None if it is not evaluated."""
    for name in _EVALUATION_FILES:
        if (run / name).is_file():
            return run / name
    return None


def _merge_results(model: ComparedModel) -> Results:
    """Return the evaluations of all seeds, and the last validation of each training."""
    files = []
    for run in model.runs:
        path = _evaluation_file(run)
        assert path is not None, "only evaluated runs are found"
        evaluated = load(path)
        files.append(replace(evaluated, results=_as_trained(evaluated.results)))
        training = load_training(run)
        files.append(replace(training, results=training.results[-1:]))
    for probe in model.probes:
        files.append(replace(probe, results=_as_trained(probe.results)))
    return merge(files)


def _cases_of(reference: Entry) -> set[Case]:
    """Return the cases in which the models of a track are evaluated."""
    return {point.case for point in reference.row.points}


def _configured_cases(source: Path) -> set[Case]:
    """Return the cases of a comparison's report, which are those of its last configuration.

    The results files of its runs also have what earlier configurations evaluated. A study has no
    report: its set is empty.
    """
    cases: set[Case] = set()
    if (source / COMPARISON_FILE).is_file():
        for path in find_results_files(source):
            cases.update(result.case for result in load(path).results)
    return cases


def _select_results(results: Iterable[Result], needed: set[Case], model: str) -> list[Result]:
    """Return the results in the needed cases, and all validations and results of probes.

    Args:
        needed: cases of a text; empty: all.
        model: name of the model, for the message.

    Raises:
        UserInputError: the model was evaluated in none of the cases.
    """
    selected = []
    has_text = False
    for result in results:
        is_text = result.case.kind == "text"
        if is_text and needed and result.case not in needed:
            continue
        has_text = has_text or is_text
        selected.append(result)
    if needed and not has_text:
        case = max(needed, key=lambda case: case.length)
        raise UserInputError(
            f"{model}: it was not evaluated as the track is, on {case.split} ({case.scored}) of "
            "the track's text. Run compare with this evaluation."
        )
    return selected


def _as_trained(results: Iterable[Result]) -> list[Result]:
    """Return the results in windows that do not overlap, without variants."""
    kept = []
    for result in results:
        if result.case.nonoverlapping and not result.reading.variant and result.values is not None:
            kept.append(result)
    return kept


def _read_trials(run: Path) -> RateTrials | None:
    """Read the trials that chose the learning rate of a run; None without any."""
    name = run.name.rpartition("-seed")[0]
    path = run.parent / f"{name}{TRIALS_ENDING}"
    if run.parent.name == "cells":  # of a study
        path = run.parent.parent / "tuning" / _trials_in_study(run, name)
    if not path.is_file():
        return None
    choice = read_json(path)["result"]
    trials = []
    for trial in choice["trials"]:
        trials.append(RateTrial(lr=trial["lr"], loss_bits=trial["loss_bits"]))
    return RateTrials(updates=choice["updates"], trials=trials)


def _trials_in_study(run: Path, name: str) -> str:
    """Return the file of a run's trials in the folder of a study's trials.

    Corpora can have hyphens in their names, and each version of a plugin has trials of its own.

    Args:
        name: name of the model, ``CORPUS-METHOD-LENGTH``.
    """
    path = _evaluation_file(run)
    assert path is not None, "only evaluated runs are found"
    evaluated = load(path).results[0]
    corpus = evaluated.case.corpus
    model = name.removeprefix(f"{corpus}-")
    plugin = evaluated.series.settings.get("plugin")
    if plugin:
        model += f"-{plugin[:8]}"
    return f"{corpus}/{model}{TRIALS_ENDING}"


def _copy_inputs(source: Path, model: ComparedModel, folder: Path) -> None:
    """Copy the configuration of a comparison, and the source of a plugin's method."""
    if (source / COMPARISON_FILE).is_file():
        shutil.copyfile(source / COMPARISON_FILE, folder / COMPARISON_FILE)
    plugin = model.runs[0] / PLUGIN_FOLDER
    if plugin.is_dir():
        ignored = shutil.ignore_patterns("__pycache__", COPIED_PLUGIN)
        shutil.copytree(plugin, folder / PLUGIN_FOLDER, ignore=ignored)


def _write_recall(path: Path, results: Sequence[Result], copy: Path) -> None:
    """Write what ``recall`` measured with the checkpoints of an entry.

    Raises:
        UserInputError: the file lacks one of them at the length that the page shows.
    """
    length = RECALL_MULTIPLE * results[0].series.train_length
    checkpoints = set()
    for result in results:
        if result.case.kind == "text" and isinstance(result.values, TextValues):
            checkpoints.add(result.checkpoint_sha256)
    measured = read_recall(path)
    own = [result for result in measured.results if result.checkpoint_sha256 in checkpoints]
    found = {result.checkpoint_sha256 for result in own if result.length == length}
    if found != checkpoints:
        raise UserInputError(
            f"--recall {path} has measurements at length {length} of {len(found)} of the "
            f"{len(checkpoints)} checkpoints. Pass all of them to `alibi-fairseq recall --lengths "
            f"{length}`."
        )
    write_json(measured.model_copy(update={"results": own}), copy)
