"""The commands of docs/ run as typed, at toy size; what is left out of them with … is filled in."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from pydoc_data.topics import topics

import pytest
from commands import PACKAGE, ROOT, SHORT, as_process, in_process, make_data
from test_documented_commands import DOCUMENTS, blocks, commands

from alibi_fairseq import cli
from alibi_fairseq.positions import METHODS

#: Programs that are not run here, and why.
LEFT_OUT = {
    "sbatch": "tests/scripts/test_slurm.py",
    "pip": "changes the environment",
    "python3.12": "makes an environment",
    "./scripts/install.sh": "changes the environment",
    "export": "is for pip",
    "python": "is for pip, or the harness: tests/huggingface/test_harness.py",
    "bash": "tests/scripts/test_bundle.py",
    "scripts/bundle_wheels.sh": "tests/scripts/test_bundle.py",
    "torchrun": "tests/test_distributed.py",
    "lm_eval": "tests/huggingface/test_harness.py",
    "scripts/fetch_checkpoints.sh": "downloads",
    "scripts/gpu_check.sh": "tests/test_gpu_check.py",
    "./scripts/test.sh": "is this",
    "PYTHONPATH=.:tests": "tests/models/test_golden_run.py",
    "import-checkpoint": "tests/checkpoints/test_released.py",
    "study": "tests/experiments/study",
    "import-hf": "tests/huggingface/test_importing.py",
}
TINY = ("--decoder-layers", "1", "--decoder-embed-dim", "32", "--decoder-ffn-embed-dim", "32")
#: Added to every training; the last value of an option counts.
TRAINING = (
    *(*TINY, "--arch", "alibi_lm_tiny", "--decoder-attention-heads", "8", "--dropout", "0"),
    *("--optimizer", "adam", "--lr", "0.001", "--max-update", "2"),
    *("--tokens-per-sample", "16", "--max-tokens", "128"),
    *("--cpu", "--num-workers", "0", "--log-format", "simple"),
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


@pytest.fixture(autouse=True)
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


def run(document: str, words: list[str]) -> None:
    program, *arguments = words
    if program == "echo":
        text, pipe, command, *arguments = arguments
        assert (pipe, command) == ("|", "alibi-fairseq")
        return process(arguments, stdin=text)
    unfinished = "…" in words
    arguments = shell(arguments)
    if program.endswith("reproduce.sh"):
        extra = [] if "--dry-run" in arguments else ["--dry-run"]
        return ours(["reproduce", *arguments, *extra])
    if program.endswith("train.sh"):
        named = any("/alibi-" in word for word in arguments)
        recipe = [] if named else ["cc100-roberta/alibi-1024", "toy"]
        if "cc100-roberta/alibi-1024" in arguments:
            arguments[arguments.index("--save-dir") - 1] = "toy"
        save = [] if "--save-dir" in arguments else ["--save-dir", "runs/launched"]
        return ours(["launch", "--dry-run", *arguments, *recipe, *save])
    if program.startswith("fairseq-"):
        return fairseqs(program.removeprefix("fairseq-"), document, arguments)
    assert program == "alibi-fairseq", f"say in LEFT_OUT why {program} is not run"
    verb, *rest = arguments
    if verb == "hydra-train":
        return hydra(rest)
    if verb in cli.FAIRSEQ_COMMANDS:
        return fairseqs(verb, document, rest)
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


def fairseqs(verb: str, document: str, arguments: list[str]) -> None:
    if "segment_language_modeling" in arguments:
        arguments = [w.replace("checkpoint_best", "checkpoints/checkpoint_best") for w in arguments]
    if verb == "train":
        arguments += (
            TRAINING if "--task" in arguments else ["--task", "language_modeling", *TRAINING]
        )
        shutil.rmtree("checkpoints", ignore_errors=True)
    elif verb == "eval-lm":
        arguments += ["--cpu", "--num-workers", "0"]
    if not any(word.startswith("--user-dir") for word in arguments) and verb != "preprocess":
        arguments += ["--user-dir", "alibi_fairseq"]
    in_process(verb.replace("-", "_"), *arguments)


def pages():
    for path in DOCUMENTS:
        if path.parent.name == "docs":
            found = [
                words
                for words in commands(path)
                if words[0] not in LEFT_OUT and words[1:2] not in [[name] for name in LEFT_OUT]
            ]
            if found:
                yield pytest.param(path.name, found, id=path.name)


@pytest.mark.slow
@pytest.mark.parametrize(("document", "lines"), pages())
def test_every_command_runs(document, lines, monkeypatch):
    if document == "checkpoints.md":
        # No sentencepiece model made the pieces of the toy text.
        nothing = lambda *arguments: {}  # noqa: E731
        monkeypatch.setattr("alibi_fairseq.huggingface.export.find_files", nothing)
    for words in lines:
        print(" ".join(words))
        run(document, words)
