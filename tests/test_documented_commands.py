"""The documents' commands: README's as typed, the options of all, and (slow) each page of docs/, all at toy size."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import sys
from pathlib import Path
from pydoc_data.topics import topics

import pytest
from commands import PACKAGE, ROOT, SHORT, as_process, in_process, make_data
from fairseq import options

from alibi_fairseq import cli
from alibi_fairseq.positions import METHODS

DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

#: What makes a training of the README a matter of seconds; the last value of an option counts.
TOY_TRAINING = (
    *("--decoder-layers", "1", "--decoder-embed-dim", "32", "--decoder-ffn-embed-dim", "32"),
    *("--decoder-attention-heads", "4", "--max-update", "2", "--warmup-updates", "1"),
    *("--cpu", "--num-workers", "0"),
)


def blocks(path: Path, language: str) -> list[str]:
    """The code blocks of a document, without line continuations."""
    found, block = [], None
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


def test_the_readme_runs_as_typed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    (tmp_path / "texts").mkdir()
    for number, name in enumerate(sorted(topics)):
        (tmp_path / "texts" / f"{number}.txt").write_text(topics[name], encoding="utf-8")
    (tmp_path / "alibi_fairseq").symlink_to(PACKAGE)
    ran = []
    for words in commands(ROOT / "README.md"):
        program, *arguments = words
        if program == "alibi-fairseq":
            # The whole of compare is in tests/experiments.
            more = ["--dry-run"] if arguments[0] == "compare" else []
            assert cli.main([*arguments, *more]) == 0, capsys.readouterr().err
        elif program == "fairseq-train":
            in_process("train", *arguments, *TOY_TRAINING)
        elif program == "fairseq-eval-lm":
            in_process("eval_lm", *arguments, "--cpu", "--num-workers", "0")
        else:
            continue
        ran.append(arguments[0] if program == "alibi-fairseq" else program)
    assert ran == ["compare", "prepare", "fairseq-train", "eval", "report", "fairseq-eval-lm"]
    assert (tmp_path / "runs" / "report" / "report.md").is_file()
    (code,) = blocks(ROOT / "README.md", "python")
    variables: dict = {}
    exec(code.replace("beam=5", "beam=2, max_len_b=8"), variables)
    model = variables["model"]
    tokens = model.encode("The history of")  # text, not pieces
    assert model.src_dict.unk() not in tokens and model.decode(tokens) == "The history of"


@pytest.mark.parametrize("words", documented("alibi-fairseq"))
def test_options_of_our_verbs_exist(words):
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
def test_options_of_fairseqs_commands_exist(words):
    check_fairseq_options(words[0].removeprefix("fairseq-"), words[1:])


def check_fairseq_options(verb: str, arguments: list[str]) -> None:
    """Every option is one of fairseq's parser with those of our model and tasks."""
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
    # Optimizer and schedule have options of their own.
    assert given - known <= {"--warmup-updates", "--adam-betas"}


#: Programs and verbs that are not run here: they change the environment, download, or have tests.
LEFT_OUT = {
    *("pip", "python3.12", "python", "export", "./scripts/install.sh", "./scripts/test.sh", "bash"),
    *("scripts/bundle_wheels.sh", "scripts/fetch_checkpoints.sh", "scripts/gpu_check.sh"),
    *("sbatch", "torchrun", "lm_eval", "PYTHONPATH=.:tests"),
    *("import-checkpoint", "import-hf", "study"),
}
#: Added to every training; the last value of an option counts.
TRAINING = (
    *SHORT,
    *("--decoder-attention-heads", "8", "--lr", "0.001", "--max-update", "2"),
)
#: The same for hydra-train.
HYDRA = (
    "+run_config=cpu_smoke",
    *(f"model.adaptive_{n}_cutoff='10,20'" for n in ("input", "softmax")),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A clone's folder with what a reader has by then: data, a trained model, texts, results."""
    place = tmp_path_factory.mktemp("clone")
    data = make_data(place)
    shutil.copytree(data, place / "toy")
    for name in ("data-bin/wikitext-103", "DATA_BIN", "train-data-bin"):
        (place / name).symlink_to(place / "toy")
    (place / "configs").symlink_to(ROOT / "configs")
    (place / "alibi_fairseq").symlink_to(PACKAGE)
    (place / "texts").mkdir()
    for name in ("assignment", "lambda"):
        (place / "texts" / f"{name}.txt").write_text(topics[name], encoding="utf-8")
    run = place / "runs" / "alibi-512"
    in_process("train", data, *SHORT, "--save-dir", run)
    for name in ("checkpoint_best.pt", "CKPT"):
        shutil.copyfile(run / "checkpoint_best.pt", place / name)
    sweep = ["eval", str(data), "--path", str(run / "checkpoint_best.pt"), "--lengths", "16"]
    assert cli.main([*sweep, "--out", str(place / "mine.json")]) == 0
    for number in (1, 2):
        out = str(place / f"shard-{number}.json")
        assert cli.main([*sweep, "--shard", f"{number}/2", "--out", out]) == 0
    (plugin,) = blocks(ROOT / "docs" / "adding-a-position-method.md", "python")[:1]
    (place / "my_plugin").mkdir()
    (place / "my_plugin" / "__init__.py").write_text(plugin)
    (study,) = blocks(ROOT / "docs" / "experiments.md", "yaml")
    (place / "study.yaml").write_text(study)
    (place / "wikitext-103-v1.zip").touch()
    (place / "runs" / "bloom-560m").mkdir()
    shutil.copyfile(data / "dict.txt", place / "runs" / "bloom-560m" / "dict.txt")
    shutil.copyfile(place / "test.txt", place / "train.pieces")
    return place


@pytest.fixture
def here(place, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    yield
    METHODS.pop("root", None)  # of the plugin


def shell(words: list[str]) -> list[str]:
    """As the shell would: variables of the page, files by pattern, and … filled in."""
    words = [{"L": "32", "$((L": "16", "RESULTS…": "mine.json"}.get(word, word) for word in words]
    found: list[str] = []
    for word in words:
        if word in ("-", "S))", "…"):
            continue  # of $((L - S)), which is 16 here
        found += sorted(map(str, Path().glob(word))) if "*" in word else [word]
    return found


def run(words: list[str]) -> None:
    program, *arguments = words
    if program == "echo":
        text, pipe, command, *arguments = arguments
        assert (pipe, command) == ("|", "alibi-fairseq")
        return process(arguments, stdin=text)
    unfinished = "…" in words
    arguments = shell(arguments)
    if program.endswith("reproduce.sh"):
        return ours([*([] if "study" in arguments else ["reproduce"]), *arguments, "--dry-run"])
    if program.endswith("train.sh"):
        named = any("/alibi-" in word for word in arguments)
        recipe = [] if named else ["cc100-roberta/alibi-1024", "toy"]
        if "cc100-roberta/alibi-1024" in arguments:
            arguments[arguments.index("--save-dir") - 1] = "toy"
        save = [] if "--save-dir" in arguments else ["--save-dir", "runs/launched"]
        return ours(["launch", "--dry-run", *arguments, *recipe, *save])
    if program.startswith("fairseq-"):
        return fairseqs(program.removeprefix("fairseq-"), arguments)
    assert program == "alibi-fairseq", f"{program} is neither run nor in LEFT_OUT"
    verb, *rest = arguments
    if verb == "hydra-train":
        return hydra(rest)
    if verb in cli.FAIRSEQ_COMMANDS:
        return fairseqs(verb, rest)
    if verb == "compare":
        rest += [] if "--out" in rest else ["--out", "runs/compared"]
        return ours([verb, *rest, "--dry-run"])
    if unfinished and verb in ("eval", "position-loss"):
        missing = {"--path": "checkpoint_best.pt", "--lengths": "16", "--out": "unfinished.json"}
        rest += [w for flag, value in missing.items() if flag not in rest for w in (flag, value)]
        rest = rest if rest[0] == "data-bin" else ["data-bin", *rest]
    if "--slurm" in rest:
        rest.append("--dry-run")
    return ours([verb, *rest])


def ours(arguments: list[str]) -> None:
    assert cli.main(arguments) == 0, arguments


def hydra(arguments: list[str]) -> None:
    """In a process of its own: Hydra can be started once only."""
    name = arguments[arguments.index("--config-name") + 1]
    toy = [*HYDRA, f"checkpoint.save_dir=runs/hydra-{name}"]
    if any(word.startswith("checkpoint.finetune_from_model=") for word in arguments):
        first = Path("runs/hydra-alibi-512/checkpoint_last.pt")
        if not first.is_file():
            (words,) = (w for w in commands(ROOT / "docs" / "experiments.md") if "hydra-train" in w)
            hydra(words[2:])
        toy.append(f"checkpoint.finetune_from_model={first}")
    process(["hydra-train", *arguments, *toy])


def process(arguments: list[str], stdin: str | None = None) -> None:
    command = ["-m", "alibi_fairseq", *arguments]
    done = as_process(*command, cwd=Path.cwd(), stdin=stdin, PYTHONPATH=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]


def fairseqs(verb: str, arguments: list[str]) -> None:
    if "segment_language_modeling" in arguments:
        arguments = [w.replace("checkpoint_best", "checkpoints/checkpoint_best") for w in arguments]
    if verb == "train":
        task = [arguments[arguments.index("--task") + 1]] if "--task" in arguments else []
        arguments += [*TRAINING, *(["--task", *task] if task else [])]
        shutil.rmtree("checkpoints", ignore_errors=True)
    elif verb == "eval-lm":
        arguments += ["--cpu", "--num-workers", "0"]
    if not any(word.startswith("--user-dir") for word in arguments) and verb != "preprocess":
        arguments += ["--user-dir", "alibi_fairseq"]
    in_process(verb.replace("-", "_"), *arguments)


@pytest.mark.slow
@pytest.mark.parametrize("document", [path.name for path in sorted((ROOT / "docs").glob("*.md"))])
def test_every_command_runs(document, here, monkeypatch):
    if document == "checkpoints.md":
        # No sentencepiece model made the pieces of the toy text.
        nothing = lambda *arguments: {}  # noqa: E731
        monkeypatch.setattr("alibi_fairseq.huggingface.export.find_files", nothing)
    for words in commands(ROOT / "docs" / document):
        if not LEFT_OUT & set(words[:2]):
            print(" ".join(words))
            run(words)
