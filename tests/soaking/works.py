"""What is interrupted: commands at toy size, and what must be left of them in the end."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from data.preparations import sentences
from fairseq_runs import write_corpus
from soaking import states

from alibi_fairseq.checkpoints.loading import updates_of
from alibi_fairseq.experiments.run import has_reached

INTERVAL = 5  # updates between two checkpoints
UPDATES = 60
MODEL = (
    *("--decoder-layers", "2", "--decoder-embed-dim", "16", "--decoder-ffn-embed-dim", "32"),
    *("--decoder-attention-heads", "2", "--num-workers", "0"),
)
TRAINING = (
    *("--task", "language_modeling", "--arch", "alibi_lm", *MODEL, "--dropout", "0.1"),
    *("--tokens-per-sample", "16", "--max-tokens", "64", "--max-update", UPDATES, "--cpu"),
    *("--optimizer", "adam", "--lr", "0.003", "--seed", "5", "--save-interval-updates", INTERVAL),
    *("--keep-interval-updates", "2", "--no-epoch-checkpoints", "--log-interval", "1"),
    *("--log-format", "simple", "--required-batch-size-multiple", "1"),
)


@dataclass(frozen=True)
class Work:
    """A command that can be interrupted and given again.

    Attributes:
        words: of ``alibi-fairseq``, for an empty or a half-filled folder.
        begun: whether it has come to its work, by what it has printed and the folder.
        state: its final state as text.
        phase: where it was, by what it had printed and the folder.
        done: whether there is nothing left to do.
        kept: what must not be lost when it is interrupted: a later value must begin with this one.
        processes: that train together.
    """

    words: Callable[[Path], list]
    begun: Callable[[str, Path], bool]
    state: Callable[[Path], str]
    phase: Callable[[str, Path], str]
    done: Callable[[Path], bool] = lambda folder: False
    kept: Callable[[Path], list] = lambda folder: []
    processes: int = 1


def works(inputs: Path) -> dict[str, Work]:
    """By name; the inputs are written to a folder."""
    data = write_corpus(_new(inputs / "data"), train=1500, valid=3000)
    text, wikitext = _texts(inputs)
    return {
        "training": _training(data, 1),
        "training with two processes": _training(data, 2),
        "eval": _evaluation(data, inputs / "checkpoint.pt"),
        "prepare": _preparation(text),
        "compare": _comparison(text),
        "reproduce": _reproduction(wikitext),
    }


def _new(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def _texts(inputs: Path) -> tuple[Path, Path]:
    """A file of documents, and a folder in the layout of WikiText-103 with 900 different words."""
    text, wikitext = inputs / "text.txt", _new(inputs / "wikitext")
    text.write_text("".join(line + ".\n\n" for line in sentences(1, 1000)))
    for split, seeds in (("train", range(30)), ("valid", [1]), ("test", [2])):
        lines = [
            f" {line} . \n"
            for seed in seeds
            for line in sentences(seed, 40)[: 40 if split == "train" else 15]
        ]
        (wikitext / f"wiki.{split}.tokens").write_text("".join([" \n", " = Title = \n", *lines]))
    return text, wikitext


def _training(data: Path, processes: int) -> Work:
    return Work(
        words=lambda folder: ["train", data, *TRAINING, "--save-dir", folder],
        begun=lambda said, folder: "begin training epoch" in said,
        state=lambda folder: " ".join(
            states.of_checkpoint(folder / f"checkpoint_{name}.pt") for name in ("last", "best")
        ),
        phase=_phase_of_training,
        done=lambda folder: has_reached(folder, UPDATES),
        processes=processes,
    )


def _phase_of_training(said: str, folder: Path) -> str:
    if "begin training epoch" not in said:
        return "start-up"
    phases = {
        "begin training epoch": "update",
        "num_updates ": "update",
        "num_updates=": "update",
        "begin validation on": "validation",
        "valid on 'valid' subset": "validation",
        "Preparing to save checkpoint": "checkpoint",
        "Saved checkpoint": "update",
        "saving after update": "checkpoint",
    }
    last = max(phases, key=said.rfind)
    return phases[last]


def updates_in(said: str) -> int:
    """The last update that a training has printed."""
    return max(map(int, re.findall(r"num_updates[= ](\d+)", said)), default=0)


def updates_of_last(folder: Path) -> int:
    """Updates of ``checkpoint_last.pt``, which must be whole if it is there."""
    path = folder / "checkpoint_last.pt"
    return updates_of(path) if path.exists() else 0


def _evaluation(data: Path, checkpoint: Path) -> Work:
    def cells(folder: Path) -> list:
        path = folder / "results.json"
        return json.loads(path.read_text())["cells"] if path.exists() else []

    return Work(
        words=lambda folder: [
            *("eval", data, "--path", checkpoint, "--subset", "train,valid", "--device", "cpu"),
            *("--lengths", "8,16,24,32,48,64", "--stride", "full,2", "--memory-gb", "0.001"),
            *("--out", folder / "results.json"),
        ],
        begun=lambda said, folder: "L=" in said,
        state=lambda folder: states.of_results(folder / "results.json"),
        phase=lambda said, folder: "measuring" if "L=" in said else "start-up",
        kept=cells,
        done=lambda folder: len(cells(folder)) == 24,
    )


def _preparation(text: Path) -> Work:
    return Work(
        words=lambda folder: [
            *("prepare", "cc100-roberta", text, "--out", folder / "out", "--vocab-size", 350),
            *("--valid-tokens", 3000, "--workers", 1, "--shards", 3),
        ],
        begun=lambda said, folder: (folder / "out").exists(),
        state=lambda folder: states.of_data(folder / "out" / "data-bin"),
        phase=lambda said, folder: _stage(folder / "out"),
        done=lambda folder: (folder / "out" / "data-bin" / "manifest.json").exists(),
    )


def _stage(out: Path) -> str:
    """How far a preparation is, by what it has left."""
    if not out.exists():
        return "start-up"
    stages = ("data-bin", "work/data-bin", "work/parts", "work/sentencepiece.model")
    names = ("end", "joining", "tokenising", "validation")
    reached = (name for name, stage in zip(names, stages) if (out / stage).exists())
    return next(reached, "tokeniser")


def _comparison(text: Path) -> Work:
    return Work(
        words=lambda folder: [
            *("compare", text, "--methods", "alibi", "--train-lengths", "16", "--parallel", 1),
            *("--eval-lengths", "16,32", "--updates", 300, "--tokens-per-update", 64),
            *("--tokenizer", "words", "--vocab-size", 60, "--train-flags", " ".join(MODEL)),
            *("--out", folder / "out"),
        ],
        begun=lambda said, folder: (folder / "out").exists(),
        state=lambda folder: _cells_and_checkpoints(folder / "out"),
        phase=_step,
        done=lambda folder: (folder / "out" / "results.json").exists(),
    )


def _reproduction(wikitext: Path) -> Work:
    return Work(
        words=lambda folder: [
            *("reproduce", "table15", "--scale", "smoke", "--cpu", 1, "--allow-other-text"),
            *("--corpus", f"wikitext-103={wikitext}", "--work-dir", folder / "work"),
        ],
        begun=lambda said, folder: (folder / "work").exists(),
        state=lambda folder: _cells_and_checkpoints(folder / "work"),
        phase=_step,
        done=lambda folder: any(folder.glob("work/*/report*/report.md")),
    )


def _step(said: str, folder: Path) -> str:
    """The step that was announced last."""
    steps = re.findall(r"^(preparing|training|evaluating|reporting|excerpt)", said, re.MULTILINE)
    return steps[-1] if steps else "start-up"


def _cells_and_checkpoints(folder: Path) -> str:
    """Every result and the last checkpoint of every run."""
    results = {*folder.rglob("results*.json"), *folder.rglob("results/**/*.json")}
    found = [*results, *folder.rglob("checkpoint_last.pt")]
    assert results, f"no results in {folder}"
    states_of = {
        path.relative_to(folder).as_posix(): states.of_results(path)
        if path.suffix == ".json"
        else states.of_checkpoint(path)
        for path in sorted(found)
    }
    return json.dumps(states_of)
