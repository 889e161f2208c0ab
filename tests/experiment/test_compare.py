"""Tests of the compare command: runs, resuming, and options."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from commands import ROOT
from fairseq import options
from fakes import TINY, Commands, in_this_process
from figure_texts import figure_texts
from results_documents import cells_of

from alibi_fairseq.cli import main
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.experiment import child_process
from alibi_fairseq.experiment.comparison import Comparison
from alibi_fairseq.experiment.config_files import from_mapping
from alibi_fairseq.experiment.plan import plan_from_folder
from alibi_fairseq.experiment.runner import describe_progress
from alibi_fairseq.experiment.training_flags import check_training_options
from alibi_fairseq.positions import METHODS, plugin_sources
from alibi_fairseq.reporting import figures_by_position
from alibi_fairseq.results.data_folder import DataFolder
from alibi_fairseq.results.file import load
from alibi_fairseq.results.file_names import find_results_files

SMALL = ["--tokens-per-update", "128", "--train-flags", TINY]


@pytest.mark.ci
def test_compare_end_to_end_and_rerun(data_bin, tmp_path, capsys, monkeypatch):
    """Learned positions are evaluated past their table, and completed runs are not repeated."""
    monkeypatch.setattr(child_process, "execute_command", in_this_process)
    monkeypatch.setattr(figures_by_position, "MIN_TOKENS", 10)  # the text is short
    out = tmp_path / "out"
    words = ["compare", data_bin, "--out", out, "--methods", "alibi,learned", *SMALL]
    words += ["--parallel", "1"]
    words = [*map(str, words), "--train-lengths", "16", "--lengths", "16,48", "--updates"]
    assert main([*words, "4"]) == 0
    printed = capsys.readouterr().out
    assert "| ALiBi, L=16" in printed
    assert "| Learned, L=16" in printed
    figures = ("figure.png", "figure.pdf", "loss-by-position.png", "loss-by-position.pdf")
    assert f"{out / 'loss-by-position.png'}\n" in printed
    for name in ("table.md", "comparison.yaml", *figures):
        assert (out / name).stat().st_size > 100
    assert "Loss by position" in figure_texts(out / "loss-by-position.svg")
    results = load(out / "results.json")
    measured = [
        (record.series.method.names[0], record.case.length, record.updates)
        for record in results.results
    ]
    assert measured == [
        ("alibi", 16, 4),
        ("alibi", 48, 4),
        ("learned", 16, 4),
        ("learned", 48, 4),
    ]
    folder = next(out.glob("*/learned-16-seed1"))
    (validation, *_) = load(folder / "training.json").results
    assert validation.series.settings["optimization.max_update"] == 4
    for record in load(folder / "results.json").results:
        assert record.series == validation.series

    assert main(["report", str(out), "--out", str(tmp_path / "report")]) == 0
    assert "4 measurements" in capsys.readouterr().out

    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.pt")}
    assert main([*words, "4"]) == 0
    assert "-16-seed1" not in capsys.readouterr().out  # of "training learned-16-seed1"
    assert load(out / "results.json") == results
    configuration = (out / "comparison.yaml").read_text()
    assert main([*words, "5"]) == 2
    assert "different settings (--max-update: '4' there, '5' now)" in capsys.readouterr().err
    assert (out / "comparison.yaml").read_text() == configuration
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.pt")} == before


@pytest.mark.ci
def test_moved_output_folder_needs_no_text(tmp_path, monkeypatch, capsys):
    """The second call trains only what the first lacks, on the data that the first prepared."""
    commands = Commands()
    monkeypatch.setattr(child_process, "execute_command", commands)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    text = [f"the {number} little words of {number % 7} lines\n" for number in range(900)]
    Path("tales.txt").write_text("".join(text))
    words = ["compare", "tales.txt", "--out", "out", *SMALL, "--updates", "4", "--parallel", "1"]
    words += ["--tokenizer", "words", "--train-lengths", "16", "--lengths", "16", "--methods"]
    assert main([*words, "alibi"]) == 0
    moved = tmp_path / "moved"
    shutil.copytree(here / "out", moved / "out", copy_function=shutil.copyfile)  # other times
    shutil.rmtree(here)
    monkeypatch.chdir(moved)
    commands.trained.clear()
    assert main([*words, "alibi,rotary"]) == 0
    assert [name for name, _, _ in commands.trained] == ["rotary-16-seed1"]
    printed = capsys.readouterr().out
    assert "The text of tales (tales.txt) is missing. Using the prepared data in out" in printed
    words[words.index("words")] = "sentencepiece"
    assert main([*words, "alibi"]) == 2
    assert "was prepared with different settings (tokenizer: " in capsys.readouterr().err


@pytest.mark.ci
def test_console_reports_text_devices_and_progress(tmp_path, monkeypatch, capsys):
    commands = Commands()
    monkeypatch.setattr(child_process, "execute_command", commands)
    monkeypatch.setattr("alibi_fairseq.experiment.slots.cores", lambda: 6)
    monkeypatch.chdir(tmp_path)
    for number in range(4):
        text = [f"the {word} little words of tale {number}\n" for word in range(300)]
        Path(f"tale{number}.txt").write_text("".join(text))
    words = ["compare", *(f"tale{number}.txt" for number in range(4)), "--out", "out", *SMALL]
    words += ["--updates", "4", "--parallel", "1", "--tokenizer", "words", "--train-lengths", "16"]
    words += ["--lengths", "16,32", "--methods"]
    assert main([*words, "alibi"]) == 0
    printed = capsys.readouterr().out
    assert "Text tale0: 4 files (tale0.txt, tale1.txt, tale2.txt, …); tokens: " in printed
    manifest = json.loads(Path("out/tale0/data-bin/manifest.json").read_text())
    assert f"tokens: {manifest['splits']['train']['tokens']:,} in train" in printed
    assert "One run at a time on the CPU, with 6 threads each." in printed
    assert "[1/1] tale0/alibi-16-seed1" in printed
    assert re.search(r"^tale0/alibi-16-seed1: perplexity [\d.]+ at 16, ", printed, re.MULTILINE)

    commands.stop_at = len(commands.ran) + 3  # after one more training and evaluation
    assert main([*words, "alibi,rotary,none"]) == 75
    stopped = capsys.readouterr()
    assert "[2/3] tale0/rotary-16-seed1" in stopped.out
    assert "[3/3] tale0/none-16-seed1" in stopped.out
    assert "2 of 3 runs are complete." in stopped.err

    assert main([*words, "alibi,rotary"]) == 0
    last_line = capsys.readouterr().out.splitlines()[-1]
    assert last_line == "All 2 runs already complete. Nothing was trained or evaluated."


def test_stopped_training_reports_its_update(tmp_path):
    values = {"corpora": [{"name": "text", "data": "x"}], "methods": ["alibi", "none"]}
    plan = plan_from_folder(from_mapping(values), tmp_path)
    runs = plan.runs
    runs[1].folder.mkdir(parents=True)
    state = {"optimizer_history": [{"num_updates": 7}]}
    torch.save(state, runs[1].folder / "checkpoint_last.pt")
    assert describe_progress(plan).splitlines() == [
        "0 of 2 runs are complete.",
        "text/none-128-seed1 saved update 7 of 1,000.",
    ]


@pytest.mark.ci
def test_layer_patterns_and_options_share_one_table(data_bin, tmp_path, monkeypatch):
    monkeypatch.setattr(child_process, "execute_command", in_this_process)
    methods = "rotary/p_rope=0.75,rotary+none/attention_window=8+0"
    words = ["compare", data_bin, "--out", tmp_path / "out", "--methods", methods]
    words += ["--parallel", "1", "--train-lengths", "16", "--lengths", "16,32"]
    words += ["--updates", "2"]
    two_layers = TINY.replace("--decoder-layers 1", "--decoder-layers 2")
    words += ["--tokens-per-update", "128", "--train-flags", two_layers]
    assert main([*map(str, words)]) == 0
    rows = cells_of((tmp_path / "out" / "table.md").read_text(encoding="utf-8"))[1:]
    names = ["Rotary, p-RoPE 0.75", "Rotary (window 8) + No positions"]
    assert [row[0] for row in rows[:2]] == [f"{name}, L=16" for name in names]
    assert all(float(cell.split()[0]) > 0 for row in rows[:2] for cell in row[1:])


EIGHT = "+".join(["1"] * 8)
LONGROPE = f"rotary/rotary_scaling=longrope:4/longrope_short_factors={EIGHT}/longrope_long_factors"


@pytest.mark.parametrize(
    ("methods", "flags", "message"),
    [
        ("rotary+none+none+none", "", "--position-method rotary,none,none,none lists 4 layers"),
        ("alibi,rotary+none", "--decoder-layers 1", "--position-method rotary,none lists 2 layers"),
        ("alibi/attention_window=8+0+0+0", "", "--attention-window 8,0,0,0 lists 4 layers"),
        ("learned+none", "", "acts on all layers at once"),
        ("rotary/p_rope=2", "", "--p-rope must be a fraction"),
        ("alibi/p_rope=0.5", "", "applies only to position method rotary"),
        (
            f"alibi/alibi_slopes={EIGHT}",
            "--decoder-attention-heads 4",
            "8 numbers, but there are 4 heads",
        ),
        (f"{LONGROPE}={EIGHT}", "--decoder-embed-dim 64", "longrope needs 4"),
        ("alibi", "--no-such-option 1", "--no-such-option"),
        ("alibi", "--dropout much", "--dropout"),
    ],
)
def test_wrong_training_options_are_rejected_first(tmp_path, refuse, methods, flags, message):
    """The model has three layers. The text is not read, so it need not exist."""
    words = ["compare", tmp_path / "no-such.txt", "--methods", methods]
    assert message in refuse(*words, "--train-flags", flags, "--out", tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("method", [f"alibi/alibi_slopes={EIGHT}", f"{LONGROPE}={EIGHT}"])
def test_values_for_the_size_of_the_model_are_accepted(method):
    """The model has eight heads of size 16."""
    comparison = from_mapping({"corpora": [{"name": "mine", "data": "x"}], "methods": method})
    check_training_options(comparison)


def test_comparison_without_a_complete_run_at_its_end_says_so(
    data_bin, tmp_path, monkeypatch, capsys
):
    slopes = tmp_path / "slopes.txt"
    slopes.write_text(EIGHT.replace("+", ","))
    commands = Commands()

    def edit_slopes(words, *arguments, **options):
        slopes.write_text(slopes.read_text() + "\n")
        return commands(words, *arguments, **options)

    monkeypatch.setattr(child_process, "execute_command", edit_slopes)
    words = ["compare", data_bin, "--out", tmp_path / "out", "--methods", "alibi"]
    flags = f"--alibi-slopes {slopes}"
    assert main([*map(str, words), "--updates", "4", "--train-flags", flags]) == 2
    assert "but none is complete, because" in capsys.readouterr().err


@pytest.mark.parametrize("parallel", ["1", "2"])
def test_training_that_ends_early_is_rejected(data_bin, tmp_path, monkeypatch, capsys, parallel):
    """fairseq may exit with 0 before the last update."""
    commands = Commands()
    commands.stop_early = 3
    monkeypatch.setattr(child_process, "execute_command", commands)
    words = ["compare", data_bin, "--out", tmp_path, "--methods", "alibi", "--seeds", "1,2"]
    words += ["--train-lengths", "16", "--lengths", "16", *SMALL, "--updates", "1200"]
    command = [*map(str, words), "--parallel", parallel]
    assert main(command) == 2
    lines = capsys.readouterr().err.splitlines()
    assert "alibi-fairseq: error: 2 of 2 runs and trials did not complete:" in lines
    for seed in (1, 2):
        name = f"{data_bin.parent.name}/alibi-16-seed{seed}"
        assert (
            f"  {name}: training {name}: fairseq ended after 1,197 of 1,200 updates. "
            f"See {tmp_path / name / 'train.log'} for the reason."
        ) in lines
    assert commands.ran == ["train", "train"]
    assert not list(tmp_path.rglob("trained-*.json"))

    commands.stop_early = 0
    commands.ran.clear()
    assert main(command) == 0  # the training resumes
    assert sorted(commands.ran) == ["eval", "eval", "train", "train"]


def test_requests_of_runs_are_stable(data_bin, tmp_path, monkeypatch):
    """Changed requests would repeat the runs of earlier versions."""
    monkeypatch.setattr(child_process, "execute_command", Commands())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    words = ["compare", data_bin, "--out", tmp_path, "--methods", "transformer_xl"]
    words += ["--updates", "60"]
    words += ["--train-lengths", "16", "--lengths", "1x", "--tokens-per-update", "128"]
    assert main([*map(str, words), "--strides", "full", "--score-from", "3"]) == 0
    folder = tmp_path / data_bin.parent.name / "transformer_xl-16-seed1"
    request = json.loads((folder / "request.json").read_text())
    assert set(request) == {"options", "train", "dictionary"}
    assert " ".join(request["options"]) == (
        "--task segment_language_modeling --mem-len 16 --arch alibi_lm_tiny --position-method "
        "transformer_xl --tokens-per-sample 16 --sample-break-mode none --max-tokens 128 "
        "--required-batch-size-multiple 1 --max-update 60 --seed 1 --optimizer adam --adam-betas "
        "(0.9, 0.98) --clip-norm 1.0 --lr 0.001 --lr-scheduler inverse_sqrt --warmup-updates 10"
    )
    trained = json.loads((folder / "trained-60.json").read_text())
    assert trained["settings"] == request
    assert [*trained["outputs"]] == ["0 checkpoint_last.pt"]


def test_users_options_come_last(data_bin, tmp_path):
    values = {"corpora": [{"name": "text", "data": str(data_bin)}], "methods": "alibi"}
    flags = "--save-interval-updates 10 --keep-interval-updates 7"
    (run,) = plan_from_folder(from_mapping({**values, "train_flags": flags}), tmp_path).runs
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, [run.data, *run.flags])
    assert (args.save_interval_updates, args.keep_interval_updates) == (10, 7)


@pytest.mark.parametrize(
    ("valid_tokens", "updates_between_saves"),
    [(100, 100), (28_000, 250), (600_000, 2000)],
    ids=["small split", "a tenth of the time", "only at the end"],
)
def test_validations_take_at_most_a_tenth_of_the_time(
    tmp_path, monkeypatch, valid_tokens, updates_between_saves
):
    """A run of 2,000 updates of 384 tokens may validate on 230,400 tokens."""
    described = {"splits": {"valid": {"tokens": valid_tokens}}}
    opened = DataFolder(tmp_path, described, tmp_path / "manifest.json")
    monkeypatch.setattr(DataFolder, "open", lambda data: opened)
    values = {"corpora": [{"name": "text", "data": str(tmp_path)}], "methods": "alibi"}
    comparison = from_mapping({**values, "updates": 2000, "tokens_per_update": 384})
    (run,) = plan_from_folder(comparison, tmp_path).runs
    flags = list(run.flags)
    interval = flags[flags.index("--save-interval-updates") + 1]
    assert int(interval) == updates_between_saves


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--per-document", "--per-document empty-lines finds only one document"),
        ("--score-from 5000", "--score-from 5000"),
    ],
)
def test_text_without_scored_tokens_is_rejected_before_training(
    data_bin, tmp_path, monkeypatch, capsys, flags, message
):
    commands = Commands()
    monkeypatch.setattr(child_process, "execute_command", commands)
    words = ["compare", str(data_bin), "--methods", "alibi", "--out", str(tmp_path / "out")]
    assert main([*words, *flags.split()]) == 2
    assert message in capsys.readouterr().err
    assert commands.ran == []


def test_more_documents_can_be_held_out(tmp_path):
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(16):
        (texts / f"{number}.txt").write_text(f"a text of number {number:02}\n" * 40)
    text = {"name": "text", "text": str(texts), "tokenizer": "words"}
    one = from_mapping({"corpora": [text], "per_document": "empty-lines"})
    with pytest.raises(
        UserInputError, match="one document in 'valid' .* hold out more .*--held-out"
    ):
        Comparison(one, tmp_path / "text").prepare()
    assert not (tmp_path / "text" / "text" / "work").exists()  # found before tokenizing
    four = from_mapping(
        {"corpora": [{**text, "held_out": 20}], "per_document": "empty-lines", "eval_lengths": 64}
    )
    Comparison(four, tmp_path / "text").prepare()
    splits = DataFolder.open(tmp_path / "text" / "text" / "data-bin").manifest["splits"]
    assert [splits[name]["lines"] for name in ("train", "valid", "test")] == [
        8 * 41,
        4 * 41,
        4 * 41,
    ]
    with pytest.raises(UserInputError, match="held_out"):
        Comparison(one, tmp_path / "text").prepare()


def test_dry_run_shows_commands(data_bin, tmp_path, capsys):
    words = ["compare", data_bin, "--methods", "alibi,transformer_xl", "--seeds", "1,2", "--out"]
    words = [*map(str, words), str(tmp_path / "out"), "--updates", "10"]
    assert main([*words, "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert text.count(f"alibi_fairseq train {data_bin} --") == 4
    assert text.count("--task segment_language_modeling --mem-len 128") == 2
    assert "4 runs of 163,840 tokens in total" in text
    assert not (tmp_path / "out").exists()


@pytest.mark.ci
def test_resumed_experiment_keeps_thread_count(data_bin, tmp_path, monkeypatch):
    """Floating-point sums depend on the number of threads."""
    commands = Commands()
    threads = []

    def execute(words, stop_signal=None, log=None, watch=None, slot=None):
        threads.append(slot.environment.get("OMP_NUM_THREADS"))
        return commands(words, stop_signal, log, watch, slot)

    monkeypatch.setattr(child_process, "execute_command", execute)
    monkeypatch.setattr("alibi_fairseq.experiment.slots.cores", lambda: 12)
    words = ["compare", data_bin, "--out", tmp_path, "--methods", "alibi,none", "--lr", "0.1,0.2"]
    words = [*map(str, words), *SMALL, "--train-lengths", "16", "--lengths", "16"]
    for lr in ("0.1", "0.2"):
        assert main([*words, "--job", f"run:{data_bin.parent.name}/alibi-16-seed1-lr{lr}"]) == 0
    threads.clear()
    assert main(words) == 0
    assert len(threads) == 6  # two trials, two trainings, two evaluations
    assert set(threads) == {"2"}  # 12 cores, two runs with two trials each


@pytest.mark.ci
def test_plugin_method_adds_table_row(data_bin, tmp_path, monkeypatch):
    """The row has its name, and another value of its option is another row."""
    monkeypatch.setattr(child_process, "execute_command", in_this_process)
    monkeypatch.setitem(METHODS, "root", None)  # removed again after the test
    del METHODS["root"]
    guide = (ROOT / "docs" / "adding-a-position-method.md").read_text(encoding="utf-8")
    (tmp_path / "a_plugin").mkdir()
    code = re.search(r"```python\n(.*?)```", guide, re.DOTALL)[1]
    (tmp_path / "a_plugin" / "__init__.py").write_text(code, encoding="utf-8")
    words = ["compare", data_bin, "--user-dir", tmp_path / "a_plugin", "--methods"]
    words += ["root,root/exponent=0.75"]
    words += ["--train-lengths", "32", "--lengths", "1x,4x", "--updates", "2"]
    words += ["--probes", "copy", "--out", tmp_path / "out", *SMALL]
    assert main([*map(str, words), "--parallel", "1"]) == 0
    text = (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    rows = cells_of(text)
    header = rows[0]
    row, other = rows[1:3]
    # No model learns to copy in two updates, so the table has no column for copying.
    assert header[1:] == ["32", "128"]
    assert row[0] == "Root distance, exponent 0.5, L=32"  # another row has another exponent
    assert other[0] == "Root distance, exponent 0.75, L=32"
    assert other[1] != row[1]
    assert all(float(cell.split()[0]) > 0 for cell in row[1:])
    accuracies, costs = text.split("## copy")[1].split("Cost of training, ")
    by_length, _, _ = accuracies.partition("Area under")
    probe, other_probe = cells_of(by_length)[1:]
    assert [probe[0], other_probe[0]] == [row[0], other[0]]
    assert probe[1].endswith("%")
    corpora = (data_bin.parent.name, "copy")
    trained = [f"{name} ({corpus})" for corpus in corpora for name in (row[0], other[0])]
    assert sorted(cost[0] for cost in cells_of(costs)[1:]) == sorted(trained)
    probed = (tmp_path / "out" / "copy-results.json").read_text(encoding="utf-8")
    assert '"display_name": "Root distance"' in probed
    (kept,) = tmp_path.glob("out/copy/root-32-*/plugin/a_plugin/__init__.py")
    assert kept.read_text(encoding="utf-8") == code
    names = {path.name for path in find_results_files(tmp_path / "out")}
    assert names == {"copy-results.json", f"{data_bin.parent.name}-results.json"}

    words[3] = f"{tmp_path}/./a_plugin"  # another name of the same folder
    words += ["--parallel", "1"]
    assert main([*map(str, words)]) == 0


class EditedPlugin:
    """Comparison of two methods of a plugin, each in a module, and of one without a plugin."""

    def __init__(self, folder: Path, words: list):
        self.folder = folder
        self.words = [*map(str, words), "--parallel", "1"]
        self.commands = Commands()
        folder.mkdir()
        (folder / "__init__.py").write_text("from . import mine, other\n")
        for name in ("mine", "other"):
            self.edit(name, 1)

    def edit(self, name: str, slope: int) -> None:
        """Write a module of the plugin."""
        (self.folder / f"{name}.py").write_text(
            "from alibi_fairseq.positions import PositionMethod, register_position_method\n\n"
            f"class Method(PositionMethod):\n    slope = {slope}\n\n"
            f"register_position_method('{name}', Method)\n"
        )

    def run(self, *options: str) -> int:
        """Run the comparison as in a new process, and return its exit code."""
        plugin_sources._source.cache_clear()
        self.commands.trained.clear()
        return main([*self.words, *options])

    def trained(self) -> list[str]:
        """Run the comparison, and return the methods that were trained."""
        assert self.run() == 0
        return sorted(Path(name).name.split("-")[0] for name, *_ in self.commands.trained)


@pytest.fixture
def edited_plugin(data_bin, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    for name in ("mine", "other"):
        monkeypatch.setitem(METHODS, name, None)  # removed again after the test
        del METHODS[name]
    folder = tmp_path / "edited_plugin"
    words = ["compare", data_bin, "--user-dir", folder, "--methods", "mine,other,none"]
    words += ["--seeds", "1,2", "--train-lengths", "16", "--lengths", "16", "--updates", "2"]
    words += [*SMALL, "--out", tmp_path / "out"]
    plugin = EditedPlugin(folder, words)
    monkeypatch.setattr(child_process, "execute_command", plugin.commands)
    return plugin


@pytest.mark.ci
def test_only_an_edited_method_is_trained_again(edited_plugin, capsys):
    assert edited_plugin.trained() == ["mine", "mine", "none", "none", "other", "other"]
    assert edited_plugin.trained() == []
    assert "the plugin was edited" not in capsys.readouterr().out
    edited_plugin.edit("mine", 2)
    assert edited_plugin.run("--dry-run") == 0
    planned = capsys.readouterr().out
    edit = r"/mine-16-\w{8}: the plugin was edited, so 2 runs of an earlier version \(\w{8}\) will"
    assert re.search(edit, planned)
    assert planned.count("the plugin was edited") == 1
    assert re.search(r"4 of 6 runs already complete:\n  \S*/other-16-\w+-seed1\n", planned)
    assert edited_plugin.trained() == ["mine", "mine"]
    assert edited_plugin.trained() == []
    edited_plugin.edit("mine", 1)
    assert edited_plugin.trained() == []  # the first version is still there


@pytest.mark.ci
def test_trials_of_an_edited_method_are_repeated(edited_plugin, capsys):
    edited_plugin.words += ["--lr", "0.1,0.2"]
    assert edited_plugin.run() == 0
    edited_plugin.edit("other", 2)
    assert edited_plugin.run() == 0
    # One trial per rate, and two seeds
    edit = r"/other-16-\w{8}: the plugin was edited, so 4 runs of an earlier version"
    assert re.search(edit, capsys.readouterr().out)


@pytest.mark.ci
def test_edit_during_a_comparison_ends_the_runs_of_the_method(edited_plugin, monkeypatch, capsys):
    """A training started after the edit would have another method than its folder says."""

    def edit_after_first_command(words, *arguments, **keywords):
        code = edited_plugin.commands(words, *arguments, **keywords)
        if len(edited_plugin.commands.ran) == 1:
            edited_plugin.edit("mine", 2)
        return code

    monkeypatch.setattr(child_process, "execute_command", edit_after_first_command)
    assert edited_plugin.run() == 2
    error = capsys.readouterr().err
    assert error.count("The plugin of this model was edited since the command started.") == 2
    # The first training was in progress; it is not evaluated.
    assert [name.split("-")[0] for name, *_ in edited_plugin.commands.trained].count("mine") == 1
    assert edited_plugin.trained() == ["mine", "mine"]
    edited_plugin.edit("mine", 1)
    assert edited_plugin.trained() == ["mine"]


@pytest.mark.ci
def test_job_that_waited_while_the_plugin_was_edited_says_so(edited_plugin, data_bin, capsys):
    assert edited_plugin.run("--slurm", "--dry-run") == 0
    job = re.search(r"run:\S+/mine-16-\S+-seed2", capsys.readouterr().out)[0]
    edited_plugin.edit("mine", 2)
    assert edited_plugin.run("--job", job) == 2
    error = capsys.readouterr().err
    assert f"no run {job.removeprefix('run:')}, because its plugin was edited" in error


@pytest.mark.ci
def test_two_plugins(data_bin, tmp_path, edited_plugin):
    """The second one is trained with both."""
    second = tmp_path / "second_plugin"
    second.mkdir()
    (edited_plugin.folder / "other.py").rename(second / "__init__.py")
    (edited_plugin.folder / "__init__.py").write_text("from . import mine\n")
    place = edited_plugin.words.index("--user-dir") + 1
    edited_plugin.words[place] += f",{second}"
    assert edited_plugin.trained() == ["mine", "mine", "none", "none", "other", "other"]
    (second / "__init__.py").write_text((second / "__init__.py").read_text() + "EDITED = 1\n")
    assert edited_plugin.trained() == ["other", "other"]
