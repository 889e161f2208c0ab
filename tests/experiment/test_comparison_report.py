"""Tables, figures, and results files of a comparison."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from fakes import Commands, value
from results_documents import (
    PROVENANCE,
    changed,
    document,
    evaluation_record,
    validation_result,
)

from alibi_fairseq.cli import main
from alibi_fairseq.experiment import child_process
from alibi_fairseq.experiment.comparison import Comparison
from alibi_fairseq.experiment.config_files import from_mapping
from alibi_fairseq.experiment.plan import plan_from_folder
from alibi_fairseq.files import sha256_file
from alibi_fairseq.results.data_hashes import data_sha256, dictionary_sha256
from alibi_fairseq.results.file import Results, load, save
from alibi_fairseq.results.file_names import find_results_files
from alibi_fairseq.results.provenance import Provenance


@pytest.fixture
def sliding_comparison(data_bin, tmp_path):
    """Return a comparison whose windows with and without overlap are two steps with one file."""
    config = {
        "corpora": [{"name": "text", "data": str(data_bin)}],
        "methods": ["alibi", "none"],
        "train_lengths": 16,
        "eval_lengths": [16, 32],
        "sliding": {4: [16]},
        "subset": "test",
        "updates": 4,
        "tokens_per_update": 128,
    }
    path = tmp_path / "comparison.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.mark.ci
def test_files_of_earlier_report_are_deleted(sliding_comparison, tmp_path, monkeypatch):
    """Names of files begin with the corpus if there are several."""
    monkeypatch.setattr(child_process, "execute_command", Commands())
    out = tmp_path / "out"
    command = ["compare", str(sliding_comparison), "--out", str(out), "--parallel", "1"]
    assert main(command) == 0
    (out / "my-results.json").touch()  # not a file of the report
    assert find_results_files(out) == [out / "results.json"]
    config = yaml.safe_load(sliding_comparison.read_text())
    (corpus,) = config["corpora"]
    config["corpora"] = [corpus, {**corpus, "name": "other"}]
    sliding_comparison.write_text(yaml.safe_dump(config))
    assert main(command) == 0
    assert find_results_files(out) == [out / "other-results.json", out / "text-results.json"]
    assert not (out / "results.json").exists()
    assert not (out / "figure.png").exists()
    assert (out / "text-figure.png").exists()
    assert (out / "my-results.json").exists()


def test_seconds_of_shared_results_file_count_once(sliding_comparison, tmp_path, monkeypatch):
    monkeypatch.setattr(child_process, "execute_command", Commands())
    out = tmp_path / "out"
    assert main(["compare", str(sliding_comparison), "--out", str(out), "--parallel", "1"]) == 0
    results = load(out / "results.json")
    assert len(results.results) == 6
    assert results.provenance.seconds == 2 * PROVENANCE["seconds"]


def test_results_have_provenance_of_evaluations(sliding_comparison, tmp_path, monkeypatch):
    """The report can be written later, at another commit, and on another machine."""
    monkeypatch.setattr(child_process, "execute_command", Commands())
    out = tmp_path / "out"
    assert main(["compare", str(sliding_comparison), "--out", str(out), "--parallel", "1"]) == 0
    provenance = load(out / "results.json").provenance
    for key in ("git_commit", "hardware", "versions", "threads", "date"):
        assert provenance.model_dump(exclude_unset=True)[key] == PROVENANCE[key]
    assert provenance.command != PROVENANCE["command"]
    assert len(provenance.parts) == 2


@pytest.mark.ci
def test_summary_states_tokens_of_short_updates(data_bin, tmp_path, monkeypatch):
    commands = Commands()
    monkeypatch.setattr(child_process, "execute_command", commands)
    words = ["compare", data_bin, "--methods", "alibi,none", "--train-lengths", "16"]
    words += ["--lengths", "16", "--updates", "4", "--tokens-per-update", "128", "--parallel", "1"]
    assert main([*map(str, words), "--out", str(tmp_path / "whole")]) == 0
    whole = (tmp_path / "whole" / "table.md").read_text()
    assert "Each model was trained on 512 tokens; seed 1.\n" in whole

    train = commands.train

    def short_updates(words, log, watch):
        code = train(words, log, watch)
        path = Path(value(words, "--save-dir")) / "training.json"
        training = load(path)
        *earlier, last = training.results
        last = replace(last, cost=replace(last.cost, trained_tokens=300))
        save(replace(training, results=[*earlier, last]), path)
        return code

    monkeypatch.setattr(commands, "train", short_updates)
    assert main([*map(str, words), "--out", str(tmp_path / "short")]) == 0
    short = (tmp_path / "short" / "table.md").read_text()
    assert "Each model was trained on 300 tokens; seed 1.\n" in short


@pytest.mark.ci
def test_changed_score_range_repeats_all_steps(sliding_comparison, tmp_path, monkeypatch):
    commands = Commands()
    monkeypatch.setattr(child_process, "execute_command", commands)
    out = tmp_path / "out"
    command = ["compare", str(sliding_comparison), "--out", str(out), "--parallel", "1"]
    assert main(command) == 0
    first = load(out / "results.json").results
    config = yaml.safe_load(sliding_comparison.read_text())
    sliding_comparison.write_text(yaml.safe_dump({**config, "score_from": 8}))
    commands.ran.clear()
    assert main(command) == 0
    assert commands.ran == ["eval"] * 4
    in_range = [replace(result, case=replace(result.case, score_from=8)) for result in first]
    assert load(out / "results.json").results == in_range
    commands.ran.clear()
    assert main(command) == 0
    assert commands.ran == []


@pytest.mark.ci
def test_each_evaluation_has_a_table(sliding_comparison, tmp_path, monkeypatch):
    commands = Commands()
    monkeypatch.setattr(child_process, "execute_command", commands)
    out = tmp_path / "out"
    config = yaml.safe_load(sliding_comparison.read_text())
    same = {"methods": "none", "eval_lengths": 32, "sliding": {}}
    config["evaluations"] = [{}, {"subset": "valid", "eval_lengths": 64, "sliding": {}}, same]
    sliding_comparison.write_text(yaml.safe_dump(config))
    command = ["compare", str(sliding_comparison), "--out", str(out), "--parallel", "1"]
    assert main(command) == 0
    table = (out / "table.md").read_text()
    captions = re.findall("^Perplexity on (.*):$", table, re.MULTILINE)
    assert captions == ["valid, non-overlapping", "test, non-overlapping", "test, S=4"]
    measured = Counter()
    for result in load(out / "results.json").results:
        method = ",".join(result.series.method.names)
        measured[method, result.case.split, result.case.length, result.case.stride] += 1
    cases = [("valid", 64, 64), ("test", 16, 4), ("test", 16, 16), ("test", 32, 32)]
    assert measured == {(method, *case): 1 for method in ("alibi", "none") for case in cases}
    commands.ran.clear()
    assert main(command) == 0
    assert commands.ran == []


def test_table_averages_seeds_with_spread(data_bin, tmp_path, capsys):
    config = from_mapping(
        {
            "corpora": [{"name": "mine", "data": str(data_bin)}],
            "methods": "alibi",
            "seeds": [1, 2],
            "train_lengths": 64,
            "eval_lengths": [64, 128],
        }
    )
    runs = plan_from_folder(config, tmp_path).runs
    for run, (seed, perplexity) in zip(runs, ((1, 20.0), (2, 24.0))):
        path = run.checkpoint_path(run.updates)
        path.parent.mkdir(parents=True)
        path.write_text(f"weights of seed {seed}")
        run.training_marker(run.updates).write()
        trained = {"seed": seed, "checkpoint_sha256": sha256_file(path)}
        checkpoint = str(path)
        measured = evaluation_record(perplexity, length=64, checkpoint=checkpoint, **trained)
        # From an earlier request, before the folder was moved
        moved = f"elsewhere/seed{seed}/checkpoint_last.pt"
        longer = evaluation_record(perplexity, checkpoint=moved, **trained)
        not_requested = changed(longer, length=256, stride=256)
        provenance = {
            "data_sha256": data_sha256(data_bin, ["valid"]),
            "dictionary_sha256": dictionary_sha256(data_bin),
        }
        save(
            document(longer, not_requested, measured, **provenance),
            run.folder / "results.json",
        )
        last = validation_result(perplexity, updates=run.updates, trained_tokens=run.tokens)
        save(Results([last], Provenance(**PROVENANCE)), run.folder / "training.json")
    Comparison(config, tmp_path).report()
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "| 22.00 ± 2.83 | 22.00 ± 2.83 |" in text
    assert text in capsys.readouterr().out
    assert f"on {1000 * 4096:,} tokens" in text
    assert "seeds 1, 2." in text
    assert "| 256" not in text
    results = load(tmp_path / "results.json")
    assert [result.seed for result in results.results] == [1, 1, 2, 2]
    # The text is that of an evaluation of the split on its own.
    assert results.provenance.data_sha256 == data_sha256(data_bin, ["valid"])
