"""Record: one mutation for each rule, entries from comparisons and studies, and the page."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import ROOT
from fakes import TINY, in_this_process
from results_documents import PROVENANCE, cells_of

from alibi_fairseq import cli
from alibi_fairseq.evaluation.recall import distance_ranges
from alibi_fairseq.experiment import child_process
from alibi_fairseq.files import read_json
from alibi_fairseq.plugin import training_record
from alibi_fairseq.positions import METHODS
from alibi_fairseq.record.entry import file_hashes, read_entry, read_track
from alibi_fairseq.record.page import cost_sentence, write_page
from alibi_fairseq.record.rules import EXCEPTABLE, RULES, find_problems
from alibi_fairseq.results import provenance
from alibi_fairseq.results.file import Results, load, save
from alibi_fairseq.results.values import TextValues
from studies.analysis.estimates import estimate_change
from studies.analysis.evaluation_key import method_notation
from studies.analysis.study_results import StudyResults

CLEAN = {"git_commit": "0" * 40, "git_clean": True}
TRACK = ROOT / "results" / "record" / "wikipedia-3M-128"
STUDY = ROOT / "results" / "small_models"


@pytest.fixture
def record(tmp_path) -> Path:
    """Return a record with a copy of two entries of the committed one."""
    track = tmp_path / "record" / TRACK.name
    for name in ("alibi", "rotary"):
        shutil.copytree(TRACK / name, track / name)
    shutil.copy(TRACK / "track.json", track)
    return tmp_path / "record"


def rewrite(entry: Path, change) -> None:
    """Change the results of an entry, and record their hash as if it had been written so."""
    path = entry / "results.json"
    save(change(load(path)), path)
    record_hashes(entry)


def record_hashes(entry: Path) -> None:
    """Record the hashes of the files of an entry as they are."""
    edit(entry, files=file_hashes(entry))


def edit(entry: Path, **values) -> None:
    """Change values of ``entry.json``."""
    path = entry / "entry.json"
    content = {**read_json(path), **values}
    path.write_text(json.dumps(content), encoding="utf-8")


def with_results(change):
    """Return a function that changes each result of a file, or leaves it out."""

    def changed(file: Results) -> Results:
        results = [change(result) for result in file.results]
        return replace(file, results=[result for result in results if result is not None])

    return changed


def change_settings(**values):
    """Return a function that changes settings of the training of a result."""

    def change(result):
        settings = {**result.series.settings}
        for name, value in values.items():
            settings[name.replace("__", ".")] = value
        return replace(result, series=replace(result.series, settings=settings))

    return change


def with_settings(**values):
    """Return a function that changes settings of the training in all results of a file."""
    return with_results(change_settings(**values))


def other_text(result):
    return replace(result, case=replace(result.case, text="f" * 64))


def in_my_books(result):
    return replace(result, case=replace(result.case, corpus="my-books"))


def unclean(file: Results) -> Results:
    file.provenance.parts[-1].git_clean = False
    return file


def on_validation_split(result):
    """Return a better result of the same seed and length on another split."""
    values = replace(result.values, loss_bits=0.9 * result.values.loss_bits)
    return replace(result, case=replace(result.case, split="valid", text="e" * 64), values=values)


def with_validation_split(file: Results) -> Results:
    """Return a file that also has results of an earlier configuration."""
    texts = [result for result in file.results if result.case.kind == "text"]
    return replace(file, results=[*file.results, *map(on_validation_split, texts)])


def write_recall(
    entry: Path, split: str = "test", plugin: str | None = None, **values
) -> np.ndarray:
    """Write measurements of recall, and return the number of tokens of each range and its loss."""
    case = read_entry(entry).row.points[-1].case
    provenance = {**PROVENANCE, "data_sha256": case.text, **values}
    ranges = []
    for number, (first, last) in enumerate(distance_ranges(2048), start=1):
        measured = {"first": first, "last": last, "tokens": 10 * number, "loss_bits": number / 2}
        ranges.append(measured)
    result = {"checkpoint_sha256": "d" * 64, "length": 2048, "ranges": ranges}
    if plugin is not None:
        result["plugin_sha256"] = plugin
    content = {"format": "alibi_fairseq/recall", "split": split, "provenance": provenance}
    path = entry / "recall.json"
    path.write_text(json.dumps({**content, "results": [result]}), encoding="utf-8")
    record_hashes(entry)
    return np.array([(found["tokens"], found["loss_bits"]) for found in ranges])


def drop_highest_rate(entry: Path) -> None:
    path = entry / "trials.json"
    content = read_json(path)
    content["trials"].pop()
    path.write_text(json.dumps(content), encoding="utf-8")
    record_hashes(entry)


def diverge(entry: Path) -> None:
    path = entry / "trials.json"
    content = read_json(path)
    for trial in content["trials"]:
        trial["loss_bits"] = None
    path.write_text(json.dumps(content), encoding="utf-8")
    record_hashes(entry)


def remove_trials(entry: Path) -> None:
    (entry / "trials.json").unlink()
    record_hashes(entry)


def improve_trial(entry: Path) -> None:
    """Change the trials without their hash."""
    path = entry / "trials.json"
    content = path.read_text(encoding="utf-8")
    path.write_text(content.replace("0.016", "0.032"), encoding="utf-8")


def passkey_of_seed(seed: int) -> Results:
    """Return accuracies on the passkey probe, which are the same for all seeds."""
    probed = load(ROOT / "results" / "examples" / "recall" / "results.json")
    return with_results(
        lambda result: replace(result, seed=seed, case=replace(result.case, corpus="passkey"))
    )(probed)


def add_passkey(entry: Path, change=lambda result: result) -> None:
    """Add results of the passkey probe with three seeds to an entry, after a change."""
    passkey = []
    for seed in (1, 2, 3):
        passkey += with_results(change)(passkey_of_seed(seed)).results
    rewrite(entry, lambda file: replace(file, results=[*file.results, *passkey]))


def add_two_passkeys(entry: Path, change) -> None:
    """Add two probes to an entry, one of them changed."""
    add_passkey(entry)
    add_passkey(entry, change)


def add_passkey_to_both(entry: Path, change) -> None:
    """Add the probe to the reference, and a changed one to an entry."""
    add_passkey(entry.parent / "alibi")
    add_passkey(entry, change)


def trained_longer(result):
    return replace(result, reading=replace(result.reading, at=20000))


#: Rule, change of the entry, and a part of the sentence.
MUTATIONS = {
    "an edited file": (
        "files",
        lambda entry: save(load(entry / "results.json"), entry / "copy.json"),
        "copy.json changed after the entry was written",
    ),
    "an edited trial": ("files", improve_trial, "trials.json changed after the entry was written"),
    "two seeds": (
        "seeds",
        lambda entry: rewrite(
            entry, with_results(lambda result: result if result.seed != 3 else None)
        ),
        "it has 2 seeds, fewer than 3",
    ),
    "a seed without its longest evaluation": (
        "seeds",
        lambda entry: rewrite(
            entry,
            with_results(
                lambda result: None if (result.seed, result.case.length) == (3, 2048) else result
            ),
        ),
        "only 2 of its 3 seeds have a result at length 2048",
    ),
    "a seed without any evaluation": (
        "seeds",
        lambda entry: rewrite(
            entry,
            with_results(
                lambda result: None if (result.seed, result.case.kind) == (3, "text") else result
            ),
        ),
        "only 2 of its 3 seeds have a result at length 128",
    ),
    "a seed without its last validation": (
        "seeds",
        lambda entry: rewrite(
            entry,
            with_results(
                lambda result: (
                    None if (result.seed, result.case.kind) == (3, "validation") else result
                )
            ),
        ),
        "only 2 of its 3 seeds have the last validation of their training",
    ),
    "a seed trained in another way": (
        "seeds",
        lambda entry: rewrite(
            entry,
            lambda file: with_results(
                lambda result: (
                    replace(result, series=replace(result.series, start="e" * 64))
                    if result.seed == 3
                    else result
                )
            )(file),
        ),
        "its results are of 2 models",
    ),
    "passkey probes in two texts": (
        "seeds",
        lambda entry: add_two_passkeys(entry, other_text),
        "its passkey results are of several models or texts",
    ),
    "passkey probes of two models": (
        "seeds",
        lambda entry: add_two_passkeys(entry, trained_longer),
        "its passkey results are of several models or texts",
    ),
    "a passkey probe of one seed": (
        "seeds",
        lambda entry: add_passkey(entry, lambda one: one if one.seed == 1 else None),
        "only 1 of its 3 seeds have a passkey result at length 64",
    ),
    "a passkey probe that was interrupted": (
        "seeds",
        lambda entry: add_passkey(
            entry,
            lambda one: None if (one.seed, one.case.length, one.case.depth) == (3, 512, 1) else one,
        ),
        "only 2 of its 3 seeds have a passkey result at length 512 and depth 1;",
    ),
    "another training text": (
        "data",
        lambda entry: rewrite(entry, with_settings(data__train="f" * 64)),
        "it was trained on other data (data.train)",
    ),
    "another test text": (
        "data",
        lambda entry: rewrite(entry, with_results(other_text)),
        "no result on the track's test text at length 128",
    ),
    "no result at the training length": (
        "data",
        lambda entry: rewrite(
            entry,
            with_results(
                lambda result: (
                    None if (result.case.length, result.case.kind) == (128, "text") else result
                )
            ),
        ),
        "it has no result at its training length",
    ),
    "two evaluations at a length": (
        "data",
        lambda entry: rewrite(entry, with_validation_split),
        "several evaluations at length 128: test (tokens 2,048 to 4,096 of each document) and "
        "valid (tokens 2,048 to 4,096 of each document)",
    ),
    "recall on another split": (
        "data",
        lambda entry: write_recall(entry, "valid"),
        "its recall was measured on valid, but its perplexity on test",
    ),
    "recall on another text": (
        "data",
        lambda entry: write_recall(entry, data_sha256="f" * 64),
        "its recall was measured on another text than its perplexity",
    ),
    "recall in another precision": (
        "data",
        lambda entry: write_recall(entry, precision="bf16"),
        "its recall was measured in bf16, but its perplexity in fp32",
    ),
    "recall with an edited plugin": (
        "data",
        lambda entry: write_recall(entry, plugin="f" * 64),
        "its recall was measured with another version of the plugin than its training",
    ),
    "an evaluation with an edited plugin": (
        "data",
        lambda entry: rewrite(
            entry,
            with_results(
                lambda result: replace(
                    result, reading=replace(result.reading, overrides={"plugin": "f" * 64})
                )
            ),
        ),
        "it was evaluated with another version of the plugin than its training",
    ),
    "another setting": (
        "training",
        lambda entry: rewrite(entry, with_settings(model__dropout=0.1)),
        "its training differs: model.dropout",
    ),
    "twice the tokens": (
        "training",
        lambda entry: rewrite(entry, with_settings(dataset__max_tokens=8192)),
        "its training differs: sequences_per_update",
    ),
    "more updates": (
        "training",
        lambda entry: rewrite(
            entry,
            with_results(lambda result: replace(result, reading=replace(result.reading, at=1500))),
        ),
        "updates 1500 instead of 750",
    ),
    "more updates on the passkey probe": (
        "training",
        lambda entry: add_passkey_to_both(entry, trained_longer),
        "its passkey probe differs: updates 20000 instead of 1500",
    ),
    "another setting on the passkey probe": (
        "training",
        lambda entry: add_passkey_to_both(entry, change_settings(model__dropout=0.3)),
        "its passkey probe differs: model.dropout",
    ),
    "a passkey probe in another text": (
        "training",
        lambda entry: add_passkey_to_both(entry, other_text),
        "its passkey probe differs: data",
    ),
    "a passkey probe without its longest evaluation": (
        "training",
        lambda entry: add_passkey_to_both(
            entry, lambda result: None if result.case.length == 1024 else result
        ),
        "its passkey probe differs: lengths",
    ),
    "a rate at the edge": ("rate", drop_highest_rate, "0.008, is at the edge of the grid"),
    "a rate that is not the best": (
        "rate",
        lambda entry: rewrite(entry, with_settings(optimization__lr=0.004)),
        "it was trained at 0.004, but the best trial is that at 0.008",
    ),
    "no trials": (
        "rate",
        remove_trials,
        "its learning rate was not chosen by trials",
    ),
    "only trials that diverged": ("rate", diverge, "all of its trials diverged"),
    "uncommitted changes": (
        "commit",
        lambda entry: rewrite(entry, unclean),
        "its code had uncommitted changes",
    ),
}


def test_every_rule_has_a_mutation():
    assert {rule for rule, _, _ in MUTATIONS.values()} == set(RULES)


@pytest.mark.parametrize("name", MUTATIONS)
def test_entry_that_breaks_a_rule_is_found(record, capsys, refuse, name):
    rule, mutate, expected = MUTATIONS[name]
    track = record / TRACK.name
    assert find_problems(read_entry(track / "rotary"), read_track(track).reference) == []
    mutate(track / "rotary")
    (problem,) = find_problems(read_entry(track / "rotary"), read_track(track).reference)
    assert expected in problem
    assert f"(rule '{rule}')" in problem
    assert cli.main(["record", "check", "--record", str(record)]) == 1
    assert problem in capsys.readouterr().out
    assert expected in refuse("record", "table", "--record", str(record))


@pytest.mark.parametrize("kind", ["text", "validation"])
def test_problems_of_the_reference_come_before_comparisons_with_it(record, capsys, kind):
    """Neither the other entries nor the cost of an entry can be computed without its results."""
    track = record / TRACK.name
    rewrite(track / "alibi", with_results(lambda one: None if one.case.kind == kind else one))
    assert cli.main(["record", "check", "--record", str(record)]) == 1
    count, problem = capsys.readouterr().out.splitlines()
    assert count == f"{TRACK.name}: 2 entries."
    assert f"{track / 'alibi'}: " in problem
    assert "(rule 'seeds')" in problem


@pytest.mark.parametrize("rule", EXCEPTABLE)
def test_exceptions_need_a_reason_to_exist(record, rule):
    entry = record / TRACK.name / "rotary"
    edit(entry, exceptions={rule: "none"})
    (problem,) = find_problems(read_entry(entry), read_track(entry.parent).reference)
    assert f"the exception from '{rule}' is not needed" in problem


@pytest.mark.parametrize("rule", ["files", "sedes"])
def test_exceptions_are_from_rules_that_allow_them(record, rule):
    """An edited entry does not become valid by an exception that the command refuses."""
    entry = record / TRACK.name / "rotary"
    edit(entry, exceptions={rule: "none"})
    improve_trial(entry)
    exception, edited = find_problems(read_entry(entry), read_track(entry.parent).reference)
    assert f"no entry may have an exception from '{rule}'" in exception
    assert "trials.json changed after the entry was written" in edited


def test_edited_page_and_lost_reference_are_found(record, capsys, refuse):
    command = ["record", "check", "--record", str(record)]
    assert cli.main(["record", "table", "--record", str(record)]) == 0
    assert cli.main(command) == 0
    (record / "README.md").write_text("better numbers\n", encoding="utf-8")
    assert cli.main(command) == 1
    assert "is out of date" in capsys.readouterr().out
    (record / "README.md").unlink()
    assert cli.main(command) == 1
    assert "is out of date" in capsys.readouterr().out
    shutil.rmtree(record / TRACK.name / "alibi")
    assert "the reference 'alibi' is no entry" in refuse(*command)


def test_page_compares_the_cases_of_the_reference(record):
    """Results on another split, at the same lengths, change no number."""
    track = record / TRACK.name
    expected = write_page([read_track(track)])
    rewrite(track / "rotary", with_validation_split)
    assert write_page([read_track(track)]) == expected


def test_column_of_recall_states_its_smallest_distance(record):
    """No range begins at 128, which is no power of 4."""
    entry = record / TRACK.name / "rotary"
    tokens, bits = write_recall(entry).T
    track = read_track(entry.parent)
    assert find_problems(read_entry(entry), track.reference) == []
    header, *rows = cells_of(write_page([track]).partition("<details")[0])
    rotary = next(row for row in rows if row[0] == "Rotary")
    beyond = [first >= 256 for first, _ in distance_ranges(2048)]
    expected = np.average(bits[beyond], weights=tokens[beyond])
    assert (header[6], rotary[6]) == ("recall from 256", f"{expected:.2f}")


def test_differences_and_losses_are_those_of_the_study():
    """The study finds the models and pairs their documents with code of its own."""
    losses = StudyResults.load(STUDY / "secondary").losses
    track = read_track(TRACK)
    keys = {}
    for key in losses:
        is_plain = key.stride == key.length and not key.variant and key.tested_on == "wikipedia"
        if (key.corpus, key.train_length, key.length) == ("wikipedia", 128, 2048) and is_plain:
            keys[key.method] = key
    _, *rows = cells_of(write_page([track]).partition("<details")[0])
    shown = {row[0]: row for row in rows}
    assert len(track.entries) == len(keys)
    for entry in track.entries.values():
        method = method_notation(entry.series.method)
        row = shown[track.label(entry)]
        nats = losses[keys[method]].nats.mean(axis=1)
        assert row[4].split()[0] == f"{np.exp(nats).mean():.2f}"
        if method != "alibi":
            estimate = estimate_change(losses[keys[method]], losses[keys["alibi"]])
            value, low, high = 100 * np.expm1([estimate.value, *estimate.interval()])
            assert row[5] == f"{value:+.1f}% ({low:+.1f} … {high:+.1f})"


@pytest.mark.parametrize(
    ("track", "part"), [("wikipedia-24M-128", "primary"), ("wikipedia-3M-128", "secondary")]
)
def test_trials_of_committed_entries_are_those_of_the_study(track, part):
    entries = read_track(TRACK.parent / track).entries.values()
    for entry in entries:
        method = method_notation(entry.series.method).replace("/", "-")
        path = STUDY / part / "tuning" / "wikipedia" / f"{method}-128-tuning.json"
        if not path.is_file():
            assert entry.trials is None
            continue
        choice = read_json(path)["result"]
        expected = [(trial["lr"], trial["loss_bits"]) for trial in choice["trials"]]
        assert [(trial.lr, trial.loss_bits) for trial in entry.trials.trials] == expected
        assert entry.trials.updates == choice["updates"]


def test_study_is_added_with_its_trials(tmp_path, capsys, refuse):
    """Methods without trials of their own need an exception."""
    words = ["record", "add", STUDY / "primary", "--track", "new", "--author", "Someone"]
    words += ["--record", tmp_path]
    alibi = [*words, "--models", "*alibi-128", "--title", "A track"]
    assert "no track 'new'" in refuse(*alibi[:-2])
    assert "at the edge of the grid (rule 'rate')" in refuse(*alibi)
    assert "--exception takes RULE=REASON" in refuse(*alibi, "--exception", "seeds=few")
    assert not (tmp_path / "new" / "alibi").exists()
    assert cli.main([*map(str, alibi), "--exception", "rate=the grid ended"]) == 0
    assert "another entry of the track is named 'alibi'" in refuse(*alibi[:-2])
    both = [*words, "--models", "*-[rs]*-128"]  # the second is refused, so neither is written
    assert "sinusoidal-128: its learning rate was not" in refuse(*both)
    assert [path.name for path in (tmp_path / "new").iterdir() if path.is_dir()] == ["alibi"]
    capsys.readouterr()
    rotary = [*words, "--models", "*rotary-128", "--year", "2021", "--note", "It *fails*."]
    assert cli.main([*map(str, rotary)]) == 0
    entry = read_entry(tmp_path / "new" / "rotary")
    assert [trial.lr for trial in entry.trials.trials][-3:] == [0.0057, 0.008, 0.0113]
    assert {result.reading.variant for result in entry.results} == {""}
    committed = read_entry(TRACK.parent / "wikipedia-24M-128" / "rotary")
    assert entry.results == committed.results
    assert entry.trials == committed.trials
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "- Higher perplexity than ALiBi at 16 L: Rotary\n" in page
    assert "- Rotary: It \\*fails\\*.\n" in page
    assert "The guide (`docs/record.md` of alibi_fairseq)" in " ".join(page.split())
    assert "../docs" not in page  # which is not there
    assert "**rate** (ALiBi): the grid ended\n" in page
    assert "no finished model" in refuse(*words, "--models", "fox")
    assert "was not chosen by trials" in refuse(
        *words, "--models", "*sinusoidal-128", "--name", "a"
    )


#: File of trials in the folder of a study, by the hash of the plugin.
TRIALS_OF_PLUGINS = {
    "a" * 64: "my-books/rotary-128-aaaaaaaa-tuning.json",
    "b" * 64: "my-books/rotary-128-bbbbbbbb-tuning.json",
    None: "my-books/rotary-128-tuning.json",
    "of the corpus my": "my/books-rotary-128-tuning.json",
}


@pytest.mark.parametrize("plugin", ["a" * 64, "b" * 64, None], ids=["a", "b", "none"])
def test_trials_are_those_of_the_corpus_and_the_version_of_the_plugin(tmp_path, plugin):
    """Each file of trials in the study has another number of updates."""
    change = change_settings(**({"plugin": plugin} if plugin else {}))
    for seed in (1, 2, 3):
        of_study = STUDY / "primary" / "cells" / f"wikipedia-rotary-128-seed{seed}"
        run = tmp_path / "study" / "cells" / f"my-books-rotary-128-seed{seed}"
        run.mkdir(parents=True)
        for name in ("evaluation.json", "training.json"):
            changed = with_results(lambda result: in_my_books(change(result)))
            save(changed(load(of_study / name)), run / name)
    trials = read_json(STUDY / "primary" / "tuning" / "wikipedia" / "rotary-128-tuning.json")
    for updates, name in enumerate(TRIALS_OF_PLUGINS.values(), start=1):
        path = tmp_path / "study" / "tuning" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        trials["result"]["updates"] = updates
        path.write_text(json.dumps(trials), encoding="utf-8")
    words = ["record", "add", tmp_path / "study", "--track", "new", "--author", "Someone"]
    words += ["--record", tmp_path, "--title", "A track"]
    assert cli.main([*map(str, words)]) == 0
    entry = read_entry(tmp_path / "new" / "rotary")
    assert entry.trials.updates == 1 + [*TRIALS_OF_PLUGINS].index(plugin)


def test_passkey_is_the_area_of_the_probe_beyond_the_training_length(record):
    """The table of the probe has the same area, computed from the same accuracies."""
    folder = ROOT / "results" / "examples" / "recall"
    track = record / TRACK.name
    add_passkey(track / "rotary")
    assert "passkey" not in write_page([read_track(track)])  # the reference has none to compare
    add_passkey(track / "alibi")
    page = write_page([read_track(track)])
    row = next(row for row in cells_of(page) if row[0] == "Rotary")
    area = (folder / "table.md").read_text(encoding="utf-8").strip().split()[-2]
    assert area == "0.28"
    assert row[6] == "0.28 ± 0.00"
    assert "**passkey:** area under the accuracy curve beyond L" in " ".join(page.split())


@pytest.fixture
def comparison(tmp_path) -> Path:
    """Return a comparison whose runs also have what an earlier configuration evaluated."""
    folder = tmp_path / "out"
    shown = []
    for name in ("alibi", "rotary"):
        for seed in (1, 2, 3):
            run = folder / "texts" / f"{name}-128-seed{seed}"
            of_study = STUDY / "secondary" / "cells" / f"wikipedia-{run.name}"
            shutil.copytree(of_study, run)
            evaluated = load(run / "evaluation.json")
            shown += evaluated.results
            save(with_validation_split(evaluated), run / "evaluation.json")
        trials = STUDY / "secondary" / "tuning" / "wikipedia" / f"{name}-128-tuning.json"
        shutil.copy(trials, folder / "texts")
    (folder / "comparison.yaml").touch()
    save(replace(evaluated, results=shown), folder / "results.json")
    return folder


def test_entries_have_the_cases_of_their_track(comparison, tmp_path, capsys, refuse):
    """A track is on the split of the last configuration, whatever the runs were evaluated on."""
    words = ["record", "add", comparison, "--record", tmp_path / "record", "--track", "new"]
    words += ["--author", "Someone", "--exception", "commit=old code"]
    alibi = [*words, "--models", "*/alibi-128", "--title", "New"]
    (comparison / "comparison.yaml").rename(comparison / "set-aside.yaml")
    assert "several evaluations at length 128" in refuse(*alibi)
    (comparison / "set-aside.yaml").rename(comparison / "comparison.yaml")
    assert cli.main([*map(str, alibi)]) == 0
    shown = load(comparison / "results.json")
    save(with_results(on_validation_split)(shown), comparison / "results.json")
    rotary = [*words[:-2], "--models", "*/rotary-128"]
    assert cli.main([*map(str, rotary)]) == 0
    capsys.readouterr()
    for name in ("alibi", "rotary"):
        entry = read_entry(tmp_path / "record" / "new" / name)
        assert {result.case for result in entry.row.results} == {
            point.case for point in read_entry(TRACK / name).row.points
        }

    for run in (comparison / "texts").glob("rotary-128-seed?"):
        evaluated = load(run / "evaluation.json")
        only_valid = with_results(lambda one: one if one.case.split == "valid" else None)
        save(only_valid(evaluated), run / "evaluation.json")
    again = [*rotary, "--name", "again"]
    assert "texts/rotary-128: it was not evaluated as the track is, on test" in refuse(*again)


def test_probes_of_the_same_model_belong_to_its_entry(tmp_path, refuse):
    runs = tmp_path / "out"
    for seed in (1, 2, 3):
        of_study = STUDY / "secondary" / "cells" / f"wikipedia-rotary-128-seed{seed}"
        shutil.copytree(of_study, runs / "texts" / f"rotary-128-seed{seed}")
    trials = STUDY / "secondary" / "tuning" / "wikipedia" / "rotary-128-tuning.json"
    shutil.copy(trials, runs / "texts")
    for name in ("rotary-128-seed1", "rotary-128-seed2", "rotary-128-seed3", "alibi-128-seed1"):
        probe = runs / "passkey" / name
        probe.mkdir(parents=True)
        shutil.copy(of_study / "training.json", probe)
        save(passkey_of_seed(int(name[-1])), probe / "results.json")
    command = ["record", "add", runs, "--track", "new", "--title", "New", "--author", "Someone"]
    command += ["--record", tmp_path / "record"]
    shutil.copytree(runs / "passkey", runs / "probes")
    for path in (runs / "probes").glob("*/results.json"):
        save(with_results(other_text)(load(path)), path)
    assert "several models or texts instead of seeds of one model" in refuse(*command)
    assert not (tmp_path / "record").exists()
    shutil.rmtree(runs / "probes")
    unfinished = runs / "passkey" / "rotary-128-seed3" / "results.json"
    unfinished.rename(runs / "set-aside.json")
    assert "only 2 of its 3 seeds have a passkey result" in refuse(*command)
    (runs / "set-aside.json").rename(unfinished)
    assert cli.main([*map(str, command)]) == 0
    entry = read_entry(tmp_path / "record" / "new" / "rotary")
    probed = [result.case.corpus for result in entry.results if result.case.kind == "probe"]
    assert probed == 75 * ["passkey"]
    assert len(entry.trainings) == 3


def test_two_entries_of_one_method_are_told_apart(record):
    track = record / TRACK.name
    shutil.copytree(track / "rotary", track / "rotary-again")
    _, *rows = cells_of(write_page([read_track(track)]).partition("<details")[0])
    names = [row[0] for row in rows]
    assert names == ["ALiBi", "Rotary (rotary)", "Rotary (rotary-again)"]


def test_only_tracks_with_a_command_can_be_joined():
    track = read_track(TRACK)
    assert track.file.run is None
    assert "How to join this track" not in write_page([track])
    open_file = track.file.model_copy(update={"run": "train"})
    page = write_page([replace(track, file=open_file)])
    assert "How to join this track" in page
    assert f"train\nalibi-fairseq record add runs/mine --track {TRACK.name} " in page


def test_cost_counts_runs_and_trials():
    sentence = cost_sentence(read_track(TRACK))
    tokens = 3 * 3_070_821 + 4 * 188 * 4096
    assert "train 3 models on 3.1M tokens each, plus 4 learning-rate trials" in sentence
    assert f"{tokens / 1e6:.1f}M tokens in all" in sentence


@pytest.mark.ci
def test_comparison_with_a_plugin_is_added(data_bin, tmp_path, monkeypatch, capsys, refuse):
    """The entry has the plugin, the configuration, the trials, and the recall."""
    monkeypatch.setattr(child_process, "execute_command", in_this_process)
    for module in (provenance, training_record):
        monkeypatch.setattr(module, "git_state", lambda: CLEAN)  # whatever the checkout is like
    monkeypatch.setitem(METHODS, "root", None)  # removed again after the test
    del METHODS["root"]
    guide = (ROOT / "docs" / "adding-a-position-method.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", guide, re.DOTALL)[1]
    (tmp_path / "root_plugin").mkdir()
    (tmp_path / "root_plugin" / "__init__.py").write_text(code, encoding="utf-8")
    out = tmp_path / "out"
    words = ["compare", data_bin, "--user-dir", tmp_path / "root_plugin", "--methods", "root"]
    words += ["--train-lengths", "16", "--lengths", "1x,4x,16x", "--seeds", "1,2,3"]
    words += ["--updates", "4", "--tokens-per-update", "128", "--lr", "0.0001,0.01,100"]
    words += ["--tune-share", "1"]
    words += ["--train-flags", TINY, "--subset", "test", "--out", out, "--parallel", "1"]
    assert cli.main([*map(str, words)]) == 0
    runs = out / data_bin.parent.name
    checkpoints = [str(path) for path in sorted(runs.glob("root-16-*-seed?/checkpoint_last.pt"))]
    recall = tmp_path / "recall.json"
    command = ["recall", data_bin, "--lengths", "256", "--subset", "test", "--out", recall]
    command += ["--user-dir", tmp_path / "root_plugin", "--path", *checkpoints]
    assert cli.main([*map(str, command)]) == 0
    assert "-seed3/checkpoint_last.pt)" in capsys.readouterr().out  # a row per seed

    add = ["record", "add", out, "--record", tmp_path / "record", "--track", "words"]
    add += ["--author", "Someone"]
    add += ["--title", "Random words", "--recall", recall]
    incomplete = read_json(recall)
    incomplete["results"].pop()
    (tmp_path / "two.json").write_text(json.dumps(incomplete), encoding="utf-8")
    assert "at length 256 of 2 of the 3 checkpoints" in refuse(*add[:-1], tmp_path / "two.json")
    on_valid = {**read_json(recall), "split": "valid"}
    (tmp_path / "valid.json").write_text(json.dumps(on_valid), encoding="utf-8")
    assert "recall was measured on valid" in refuse(*add[:-1], tmp_path / "valid.json")
    assert not (tmp_path / "record").exists()
    assert cli.main([*map(str, add)]) == 0
    entry = read_entry(tmp_path / "record" / "words" / "root-distance")
    assert (entry.folder / "plugin" / "root_plugin" / "__init__.py").read_text() == code
    assert (entry.folder / "comparison.yaml").read_text() == (out / "comparison.yaml").read_text()
    plugin = entry.series.settings["plugin"]
    assert len(plugin) == 64
    assert {result.plugin_sha256 for result in entry.recall.results} == {plugin}
    assert entry.learning_rate == 0.01
    assert [trial.lr for trial in entry.trials.trials] == [0.0001, 0.01, 100]
    assert sorted(entry.file.files) == [
        "comparison.yaml",
        "plugin/root_plugin/__init__.py",
        "recall.json",
        "results.json",
        "trials.json",
    ]
    losses = [result.values.loss_bits for result in load(out / "results.json").results]
    for result in entry.results:
        if isinstance(result.values, TextValues) and result.case.kind == "text":
            assert result.values.loss_bits in losses
    page = (tmp_path / "record" / "README.md").read_text(encoding="utf-8")
    header, *rows = cells_of(page.partition("<details")[0])
    assert header[6] == "recall from 16"
    row = next(row for row in rows if row[0] == "Root distance")
    measured = read_json(recall)["results"]
    of_seeds = []
    for result in measured:
        beyond = [found for found in result["ranges"] if found["first"] >= 16]
        tokens = np.array([found["tokens"] for found in beyond])
        bits = np.array([found["loss_bits"] for found in beyond], dtype=float)
        of_seeds.append(np.average(bits, weights=tokens))
    assert row[6] == f"{np.mean(of_seeds):.2f}"
    assert (
        f"cp {tmp_path / 'record' / 'words' / 'root-distance' / 'comparison.yaml'} mine.yaml"
        in page
    )
