"""Commands of the README at toy size, and options in all documents."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from pathlib import Path
from pydoc_data.topics import topics

import pytest
from commands import ROOT
from fairseq import checkpoint_utils, options

from alibi_fairseq import cli
from alibi_fairseq.cli import train_recipe
from alibi_fairseq.paper.recipe import RECIPES
from alibi_fairseq.results.file import load

DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

#: Pages whose commands the test runs.
TUTORIAL = ROOT / "docs" / "tutorial.md"
EVALUATOR = ROOT / "docs" / "evaluation.md"

#: Flags that shorten a training of the tutorial to seconds. The last value of an option counts.
TOY_TRAINING = (
    *("--decoder-layers", "1", "--decoder-embed-dim", "32", "--decoder-ffn-embed-dim", "32"),
    *("--decoder-attention-heads", "4", "--max-update", "2", "--warmup-updates", "1"),
    *("--cpu", "--num-workers", "0"),
)


def code_blocks(path: Path, language: str) -> list[str]:
    """Return the code blocks of a document, without line continuations."""
    blocks = []
    lines = None  # of the current block
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            if lines is not None:
                blocks.append("\n".join(lines).replace("\\\n", " "))
                lines = None
            elif line == f"```{language}":
                lines = []
        elif lines is not None:
            lines.append(line)
    return blocks


def unrolled(block: str) -> str:
    """Return the commands of a shell block with each loop over words as its passes."""

    def passes(loop: re.Match) -> str:
        name, words, body = loop.groups()
        return "".join(body.replace(f"${name}", word) for word in words.split())

    return re.sub(r"^for (\w+) in (.+); do\n(.*?)^done$", passes, block, flags=re.M | re.S)


def shell_commands(path: Path) -> list[list[str]]:
    """Return the words of each command in the shell blocks, without comments."""
    commands = []
    for block in code_blocks(path, "bash"):
        for line in unrolled(block).splitlines():
            words = shlex.split(line, comments=True)
            if words:
                commands.append(words)
    return commands


def documented(*programs: str) -> list:
    """Return the commands of all documents that run one of these programs."""
    commands = []
    for path in DOCUMENTS:
        for words in shell_commands(path):
            if words[0] in programs:
                commands.append(pytest.param(words, id=f"{path.name}: {' '.join(words[:3])}"))
    return commands


def test_tutorial_commands_run(tmp_path, monkeypatch, capsys, caplog):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    (tmp_path / "texts").mkdir()
    for number, name in enumerate(sorted(topics)):
        (tmp_path / "texts" / f"{number}.txt").write_text(topics[name], encoding="utf-8")
    ran = []
    for _, *arguments in shell_commands(TUTORIAL):
        if arguments[0] == "train":
            arguments += TOY_TRAINING
            vars(checkpoint_utils.save_checkpoint).pop("best", None)  # left by an earlier training
        assert cli.main(arguments) == 0, capsys.readouterr().err
        ran.append(arguments[0])
    assert ran == ["prepare", "train", "eval", "train", "eval", "report"]
    (listing,) = code_blocks(TUTORIAL, "text")
    for line in listing.splitlines():
        folder = "runs/report" if line.startswith(" ") else ""
        names, _, _ = line.strip().partition("  ")
        for name in names.split(", "):
            assert (tmp_path / folder / name).exists(), name
    (evaluation,) = [words for words in shell_commands(EVALUATOR) if words[1] == "eval-lm"]
    caplog.clear()
    with caplog.at_level("INFO"):
        assert cli.main([*evaluation[1:], "--cpu", "--num-workers", "0"]) == 0
    window = int(evaluation[evaluation.index("--tokens-per-sample") + 1])
    compare_evaluators(caplog.text, tmp_path / "runs" / "alibi-128.json", window)
    (code,) = code_blocks(TUTORIAL, "python")
    variables: dict = {}
    exec(code.replace("beam=5", "beam=2, max_len_b=8"), variables)
    model = variables["model"]
    tokens = model.encode("The history of")  # text, not pieces
    assert model.src_dict.unk() not in tokens
    assert model.decode(tokens) == "The history of"


def compare_evaluators(log: str, results: Path, window: int) -> None:
    """Compare fairseq's printed loss with ``alibi-fairseq eval`` at the same length."""
    in_windows = [result for result in load(results).results if result.case.length == window]
    (loss,) = [result.values.loss_bits for result in in_windows]
    (fairseq_loss,) = re.findall(r"Loss \(base 2\): ([\d.]+)", log)
    assert loss == pytest.approx(float(fairseq_loss), abs=1e-4)


@pytest.mark.parametrize("words", documented("alibi-fairseq"))
def test_documented_options_exist(words):
    if ">" in words:
        words = words[: words.index(">")]  # the output goes to a file
    command, *arguments = words[1:]
    if "--recipe" in arguments:
        args, arguments = train_recipe.make_parser().parse_known_args(arguments)
        assert args.recipe in (*RECIPES, "…")
    if command in cli.FAIRSEQ_COMMANDS:
        if command in ("train", "eval-lm"):
            check_fairseq_options(command, arguments)
        return
    parser = cli.make_parser([command])
    subparsers = [action for action in parser._actions if is_subparsers(action)]
    assert len(subparsers) == 1
    for action in subparsers[0].choices[command]._actions:
        action.required = False  # the document may omit it
        if not action.option_strings and not is_subparsers(action):
            action.nargs = "*"
    given = [word for word in arguments if not word.startswith(("…", "RESULTS…"))]
    parser.parse_args([command, *given])


def is_subparsers(action: argparse.Action) -> bool:
    return isinstance(action, argparse._SubParsersAction)


@pytest.mark.parametrize("words", documented("fairseq-train", "fairseq-eval-lm"))
def test_documented_fairseq_options_exist(words):
    check_fairseq_options(words[0].removeprefix("fairseq-"), words[1:])


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    """Return the options of a parser, such as ``--lr``."""
    strings = set()
    for action in parser._actions:
        strings.update(action.option_strings)
    return strings


def check_fairseq_options(command: str, arguments: list[str]) -> None:
    """Check that every option exists in fairseq, our model, or our tasks."""
    from fairseq.models import ARCH_MODEL_REGISTRY
    from fairseq.tasks import TASK_REGISTRY

    if command == "train":
        parser = options.get_training_parser()
        ARCH_MODEL_REGISTRY["alibi_lm"].add_args(parser)
    else:
        parser = options.get_eval_lm_parser()
    known = options_of(parser)
    for task in ("language_modeling", "segment_language_modeling"):
        task_parser = argparse.ArgumentParser()
        TASK_REGISTRY[task].add_args(task_parser)
        known |= options_of(task_parser)
    given = {word.partition("=")[0] for word in arguments if re.match("--[a-z]", word)}
    # fairseq adds the options of optimizers and schedules after it has parsed their names.
    cosine = {"--t-mult", "--lr-period-updates", "--lr-shrink", "--warmup-init-lr", "--min-lr"}
    assert given - known <= {"--warmup-updates", "--adam-betas", *cosine}
