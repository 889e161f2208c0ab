"""A comparison from binary data to table and figure, resumed, and its report with seeds."""

import json
import subprocess
import sys
import time

import psutil
import pytest
import torch
from commands import ROOT
from results_documents import document, evaluation_cell

from alibi_fairseq.cli import main
from alibi_fairseq.experiments.command import Place
from alibi_fairseq.experiments.compare import Compare, runs_of
from alibi_fairseq.experiments.comparison import from_mapping
from alibi_fairseq.experiments.comparison_report import write_report
from alibi_fairseq.experiments.runner import describe, places_for
from alibi_fairseq.results.provenance import data_sha256, dictionary_sha256
from alibi_fairseq.results.schema import load_document, save_document

TINY = "--decoder-layers 1 --decoder-embed-dim 32 --decoder-ffn-embed-dim 32 --num-workers 0"


def test_from_binary_data_to_figure_and_again(data_bin, tmp_path, capsys):
    """Learned positions are evaluated past their table, and what is done is not done again."""
    out = tmp_path / "out"

    def compare(updates: int) -> int:
        options = ["--methods", "alibi,learned", "--train-lengths", "16", "--eval-lengths", "16,48"]
        options += ["--updates", str(updates), "--tokens-per-update", "128", "--train-flags", TINY]
        return main(["compare", str(data_bin), "--out", str(out), *options])

    assert compare(updates=4) == 0
    printed = capsys.readouterr().out
    assert "| ALiBi, L=16" in printed and "| Learned, L=16" in printed
    for name in ("table.md", "figure.png", "figure.pdf", "results.csv", "comparison.yaml"):
        assert (out / name).stat().st_size > 100
    results = load_document(out / "results.json")
    measured = [(c["position_method"], c["length"], c["updates"]) for c in results["cells"]]
    assert measured == [("alibi", 16, 4), ("alibi", 48, 4), ("learned", 16, 4), ("learned", 48, 4)]
    folder = next(out.glob("*/learned-16-seed1"))
    for each in load_document(folder / "results.json")["cells"]:
        assert "--position-method learned" in each["train_command"]
        assert each["train_command"].startswith("alibi-fairseq train ")

    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.pt")}
    assert compare(updates=4) == 0
    assert "training" not in capsys.readouterr().out
    assert load_document(out / "results.json") == results
    assert compare(updates=5) == 2
    said = capsys.readouterr().err
    assert "holds a training with other settings (options differs)" in said
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.pt")} == before


@pytest.mark.slow
def test_a_killed_comparison_leaves_no_training_behind(data_bin, tmp_path):
    words = ["compare", data_bin, "--out", tmp_path, "--methods", "alibi", "--train-lengths", "16"]
    words += ["--updates", "1000000", "--tokens-per-update", "128", "--train-flags", TINY]
    command = [sys.executable, "-m", "alibi_fairseq", *map(str, words)]
    parent = subprocess.Popen(command, cwd=ROOT)
    folder = tmp_path / data_bin.parent.name / "alibi-16-seed1"
    log = folder / "train.log"
    while not log.is_file() or '"num_updates"' not in log.read_text():
        assert parent.poll() is None
        time.sleep(0.2)
    (training,) = psutil.Process(parent.pid).children()
    parent.kill()
    parent.wait()
    assert training.wait(60) == 75 or not training.is_running()
    assert (folder / "checkpoint_last.pt").is_file()


def comparison(**changes):
    corpus = {"name": "mine", "data": "data-bin"}
    return from_mapping({"corpora": [corpus], "methods": "alibi", "train_lengths": 64, **changes})


def test_seeds_are_averaged_and_their_spread_is_shown(data_bin, tmp_path):
    what = comparison(
        seeds=[1, 2], eval_lengths=[64], corpora=[{"name": "mine", "data": str(data_bin)}]
    )
    runs = runs_of(what, tmp_path)
    for run, (seed, perplexity) in zip(runs, ((1, 20.0), (2, 24.0))):
        measured = evaluation_cell(perplexity, length=64, stride=64, train_length=64, seed=seed)
        other_length = {**measured, "length": 128, "stride": 128}  # of an earlier request
        provenance = {
            "data_sha256": data_sha256(data_bin, ["valid"]),
            "dictionary_sha256": dictionary_sha256(data_bin),
        }
        save_document(document(measured, other_length, **provenance), run.folder / "results.json")
    text, files = write_report(what, runs, tmp_path / "report", ["compare"])
    assert "22.00 ± 2.83 (2 seeds)" in text
    assert f"on {what.updates * what.tokens_per_update:,} tokens" in text and "seeds 1, 2." in text
    assert "| 128" not in text
    assert all(path.is_file() for path in files)
    merged = json.loads((tmp_path / "report" / "results.json").read_text())
    assert [c["seed"] for c in merged["cells"]] == [1, 2]
    assert merged["provenance"]["command"] == "compare"


def test_the_commands_of_each_cell_are_shown(tmp_path):
    what = comparison(methods=["alibi", "transformer_xl"], seeds=[1, 2])
    text = describe(Compare(what, tmp_path))
    assert text.count("alibi_fairseq train data-bin --task ") == 4
    assert text.count("--task segment_language_modeling --mem-len 64") == 2
    assert f"4 runs of {what.tokens:,} tokens, {4 * what.tokens:,} in all" in text


def test_an_unknown_model_is_refused(data_bin, tmp_path, capsys):
    words = ["compare", str(data_bin), "--arch", "alibi_lm_huge", "--out", str(tmp_path / "out")]
    assert main(words) == 2
    assert "no model 'alibi_lm_huge'; choose alibi_lm" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_each_run_gets_gpus_or_a_share_of_the_cores(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr("alibi_fairseq.experiments.runner.cores", lambda: 8)
    assert places_for(3, 1) == [Place({"OMP_NUM_THREADS": "2"})] * 3
    assert places_for(2, 1, threads=1) == [Place({"OMP_NUM_THREADS": "1"})] * 2
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [e.environment["CUDA_VISIBLE_DEVICES"] for e in places_for(2, 2)] == ["0,1", "2,3"]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert [e.environment["CUDA_VISIBLE_DEVICES"] for e in places_for(3, 1)] == ["5", "7", "5"]
