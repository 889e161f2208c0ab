"""README's commands run as typed, at toy size, and the options in all documents exist."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from pathlib import Path
from pydoc_data.topics import topics

import pytest
from commands import ROOT
from fairseq import checkpoint_utils, options

from alibi_fairseq import cli

DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

#: What makes a training of the README a matter of seconds; the last value of an option counts.
TOY_TRAINING = (
    *("--decoder-layers", "1", "--decoder-embed-dim", "32", "--decoder-ffn-embed-dim", "32"),
    *("--decoder-attention-heads", "4", "--max-update", "2", "--warmup-updates", "1"),
    *("--cpu", "--num-workers", "0"),
)


def blocks(path: Path, language: str) -> list[str]:
    """Return the code blocks of a document, without line continuations."""
    found = []
    block = None
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            if block is not None:
                found.append("\n".join(block).replace("\\\n", " "))
                block = None
            elif line == f"```{language}":
                block = []
        elif block is not None:
            block.append(line)
    return found


def commands(path: Path) -> list[list[str]]:
    """Commands of the shell blocks as words, without comments."""
    lines = [line for block in blocks(path, "bash") for line in block.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def documented(*programs: str):
    """(document, command) of all documents whose program is one of these."""
    return [
        pytest.param(words, id=f"{path.name}: {' '.join(words[:3])}")
        for path in DOCUMENTS
        for words in commands(path)
        if words[0] in programs
    ]


def test_readme_commands_run(tmp_path, monkeypatch, capsys, caplog):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    (tmp_path / "texts").mkdir()
    for number, name in enumerate(sorted(topics)):
        (tmp_path / "texts" / f"{number}.txt").write_text(topics[name], encoding="utf-8")
    ran = []
    for words in commands(ROOT / "README.md"):
        program, *arguments = words
        if program != "alibi-fairseq":
            continue
        command = arguments[0]
        if command == "train":
            arguments += TOY_TRAINING
            vars(checkpoint_utils.save_checkpoint).pop("best", None)  # left by an earlier training
        if command == "eval-lm":
            arguments += ["--cpu", "--num-workers", "0"]
        if command == "compare":
            arguments.append("--dry-run")  # tests/compare runs the whole of it
        caplog.clear()
        with caplog.at_level("INFO"):
            assert cli.main(arguments) == 0, capsys.readouterr().err
        if command == "eval-lm":
            window = int(arguments[arguments.index("--tokens-per-sample") + 1])
            check_both_evaluators_agree(caplog.text, tmp_path / "runs" / "alibi-512.json", window)
        ran.append(command)
    assert ran == ["compare", "prepare", "train", "eval", "report", "eval-lm"]
    assert (tmp_path / "runs" / "report" / "report.md").is_file()
    (code,) = blocks(ROOT / "README.md", "python")
    variables: dict = {}
    exec(code.replace("beam=5", "beam=2, max_len_b=8"), variables)
    model = variables["model"]
    tokens = model.encode("The history of")  # text, not pieces
    assert model.src_dict.unk() not in tokens
    assert model.decode(tokens) == "The history of"


def check_both_evaluators_agree(log: str, results: Path, window: int) -> None:
    """Compare fairseq's printed loss with ``alibi-fairseq eval`` at the same length."""
    cells = json.loads(results.read_text(encoding="utf-8"))["cells"]
    (ours,) = [cell["loss_bits"] for cell in cells if cell["length"] == window]
    (theirs,) = re.findall(r"Loss \(base 2\): ([\d.]+)", log)
    assert ours == pytest.approx(float(theirs), abs=1e-4)


@pytest.mark.parametrize("words", documented("alibi-fairseq"))
def test_documented_options_exist(words):
    if ">" in words:
        words = words[: words.index(">")]  # the output goes to a file
    verb, *arguments = words[1:]
    if verb in cli.FAIRSEQ_COMMANDS:
        if verb in ("train", "eval-lm"):
            check_fairseq_options(verb, arguments)
        return
    parser = cli.make_parser([verb])
    (verbs,) = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for action in verbs.choices[verb]._actions:
        action.required = False  # the document may leave it out
        if not action.option_strings and not isinstance(action, argparse._SubParsersAction):
            action.nargs = "*"
    parser.parse_args([verb, *(w for w in arguments if not w.startswith(("…", "RESULTS…")))])


@pytest.mark.parametrize("words", documented("fairseq-train", "fairseq-eval-lm"))
def test_documented_fairseq_options_exist(words):
    check_fairseq_options(words[0].removeprefix("fairseq-"), words[1:])


def check_fairseq_options(verb: str, arguments: list[str]) -> None:
    """Check that fairseq's parser knows every option, with our model and tasks."""
    from fairseq.models import ARCH_MODEL_REGISTRY
    from fairseq.tasks import TASK_REGISTRY

    parser = {"train": options.get_training_parser, "eval-lm": options.get_eval_lm_parser}[verb]()
    if verb == "train":
        ARCH_MODEL_REGISTRY["alibi_lm"].add_args(parser)
    known = {flag for action in parser._actions for flag in action.option_strings}
    for task in ("language_modeling", "segment_language_modeling"):
        other = argparse.ArgumentParser()
        TASK_REGISTRY[task].add_args(other)
        known |= {flag for action in other._actions for flag in action.option_strings}
    given = {word.partition("=")[0] for word in arguments if re.match("--[a-z]", word)}
    # Optimizer and schedule have separate options.
    assert given - known <= {"--warmup-updates", "--adam-betas"}
