"""Carrying out a comparison: prepare texts, train and evaluate cells, write table and figure."""

from __future__ import annotations

import os
from pathlib import Path

import torch
import yaml

from ..dataprep import own_text
from ..dataprep.parallel import cores
from ..errors import BadInput
from ..files import atomic_write
from ..workflow import exit_code, locked, run_chains
from .cell import Cell
from .description import Comparison, Corpus, as_mapping
from .report import Report, write_report


def run(
    comparison: Comparison,
    out: Path,
    parallel: int | None = None,
    results: Path | None = None,
    command: list[str] | None = None,
) -> int:
    """Do what is not done yet, then print the table.

    Args:
        out: the folder for everything.
        parallel: how many cells at a time. Default: one per GPU, or one per core without a GPU.
        results: the folder for table and figure; ``out`` by default.
        command: the command to name in the results; this program's own by default.

    Returns:
        0; 75 if it was asked to stop: the same call resumes.

    Raises:
        BadInput: something is wrong with the texts, the data or the folder.
    """
    check_model(comparison)

    def work() -> None:
        with locked(out, "--out"):
            with atomic_write(out / "comparison.yaml") as file:
                yaml.safe_dump(as_mapping(comparison), file, sort_keys=False, allow_unicode=True)
            cells = cells_of(comparison, out, prepare=True)
            at_once = parallel or min(len(cells), torch.cuda.device_count() or cores())
            chains = [(f"{cell.corpus.name}/{cell.name}", cell.steps) for cell in cells]
            run_chains(chains, at_once, environments(at_once))
            report = write_report(comparison, cells, results or out, command)
            print_report(report)

    return exit_code(work)


def cells_of(comparison: Comparison, out: Path, prepare: bool = False) -> list[Cell]:
    """The cells in their order.

    Args:
        prepare: make the binary data of texts that are not prepared yet.
    """
    data = {
        corpus: prepare_data(corpus, out) if prepare else data_folder(corpus, out)
        for corpus in comparison.corpora
    }
    return [
        Cell(
            *(comparison, corpus, method, train_length, seed, data[corpus]),
            out / corpus.name / f"{method}-{train_length}-seed{seed}",
        )
        for corpus, method, train_length, seed in comparison.cells()
    ]


def data_folder(corpus: Corpus, out: Path) -> Path:
    return Path(corpus.data) if corpus.data else out / corpus.name / "data-bin"


def prepare_data(corpus: Corpus, out: Path) -> Path:
    """The binary data of a corpus; made from its text if need be."""
    data = data_folder(corpus, out)
    if not corpus.data:
        own_text.prepare(
            corpus.text,
            data.parent,
            tokenizer=corpus.tokenizer,
            vocabulary=corpus.vocabulary,
            workers=cores(),
        )
    for name in ("dict.txt", "train.bin"):
        if not (data / name).is_file():
            raise BadInput(f"{data} has no {name}; prepare the data again.")
    return data


def environments(at_once: int) -> list[dict[str, str]]:
    """Variables for the cells that run at the same time: a GPU each, or a share of the cores."""
    gpus = torch.cuda.device_count()
    if not gpus:
        return [{"OMP_NUM_THREADS": str(max(1, cores() // at_once))}] * at_once
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(number) for number in range(gpus)]
    return [{"CUDA_VISIBLE_DEVICES": names[number % gpus]} for number in range(at_once)]


def check_model(comparison: Comparison) -> None:
    """Raises BadInput if there is no model of that name."""
    from fairseq.models import ARCH_MODEL_REGISTRY

    ours = sorted(name for name in ARCH_MODEL_REGISTRY if name.startswith("alibi_lm"))
    if comparison.arch not in ours:
        raise BadInput(f"--arch: there is no model '{comparison.arch}'; choose {', '.join(ours)}.")


def describe(comparison: Comparison, out: Path) -> str:
    """The commands of all cells in their order, and what they cost."""
    cells = cells_of(comparison, out)
    lines = [f"{cell.train_command.line}\n{cell.evaluate_command.line}\n" for cell in cells]
    total = len(cells) * comparison.tokens
    return "\n".join(
        [*lines, f"{len(cells)} runs of {comparison.tokens:,} tokens, {total:,} in all"]
    )


def print_report(report: Report) -> None:
    print(f"\n{report.text}\n")
    for path in report.files:
        print(path)
