"""Carrying out a comparison: prepare texts, train and evaluate cells, write table and figure."""

from __future__ import annotations

import os
from collections.abc import Sized
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
import yaml

from ..dataprep import own_text
from ..dataprep.parallel import cores
from ..errors import BadInput
from ..files import atomic_write
from ..workflow import Step, exit_code, locked, run_chains
from .budget import Budget, budget
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
    work = ComparisonWork(comparison, out, parallel, results, command)

    def everything() -> None:
        with locked(out, "--out"):
            work.prepare()
            places = work.environments
            chains = [(name, work.steps(name)) for name in work.names]
            run_chains(chains, len(places), places)
            work.report()

    return exit_code(everything)


@dataclass(frozen=True)
class ComparisonWork:
    """A comparison as :class:`alibi_fairseq.workflow.Work`; see :func:`run` for the arguments."""

    comparison: Comparison
    folder: Path
    parallel: int | None = None
    results: Path | None = None
    command: list[str] | None = None

    def prepare(self) -> None:
        """Write down what is compared, prepare the texts, and measure the machine for ``hours``."""
        with atomic_write(self.folder / "comparison.yaml") as file:
            yaml.safe_dump(as_mapping(self.comparison), file, sort_keys=False, allow_unicode=True)
        for corpus in self.comparison.corpora:
            prepare_data(corpus, self.folder)
        if self.budget:
            print(*self.budget.sentences(), sep="\n", flush=True)

    @property
    def prepared(self) -> bool:
        """Whether all data is there."""
        folders = [data_folder(corpus, self.folder) for corpus in self.comparison.corpora]
        return all((folder / "train.bin").is_file() for folder in folders)

    @property
    def names(self) -> list[str]:
        """Of the cells, in their order."""
        return list(self.cells)

    def steps(self, name: str) -> list[Step]:
        """Training and evaluation of a cell; its data must be prepared."""
        return self.cells[name].steps

    def report(self) -> None:
        """Write and print table and figure."""
        notes = self.budget.sentences() if self.budget else []
        cells = list(self.cells.values())
        folder = self.results or self.folder
        report = write_report(self.comparison, cells, folder, self.command, notes)
        print_report(report)

    @cached_property
    def cells(self) -> dict[str, Cell]:
        """By name."""
        cells = cells_of(self.comparison, self.folder)
        if self.budget:
            settled = replace(self.comparison, hours=None, updates=self.budget.updates)
            cells = [replace(c, comparison=settled) for c in cells if self.budget.keeps(c)]
        return {f"{cell.corpus.name}/{cell.name}": cell for cell in cells}

    @cached_property
    def budget(self) -> Budget | None:
        """What fits into the hours, measured the first time; None if the updates were given."""
        if self.comparison.hours is None:
            return None
        cells = cells_of(self.comparison, self.folder)
        places = environments(self._at_once(cells))
        return budget(self.comparison, self.comparison.hours, cells, self.folder, places)

    @property
    def environments(self) -> list[dict[str, str]]:
        """Of the cells that run at the same time."""
        return environments(self._at_once(self.cells))

    def _at_once(self, cells: Sized) -> int:
        return self.parallel or min(len(cells), torch.cuda.device_count() or cores())


def cells_of(comparison: Comparison, out: Path) -> list[Cell]:
    """The cells in their order."""
    return [
        Cell(
            *(comparison, corpus, method, train_length, seed, data_folder(corpus, out)),
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
    if comparison.hours is not None:
        lines.append("--hours will set --max-update, the same for all, once the data is prepared.")
        return "\n".join([*lines, f"{len(cells)} runs at most, in {comparison.hours:g} hours"])
    total = len(cells) * comparison.tokens
    return "\n".join(
        [*lines, f"{len(cells)} runs of {comparison.tokens:,} tokens, {total:,} in all"]
    )


def print_report(report: Report) -> None:
    print(f"\n{report.text}\n")
    for path in report.files:
        print(path)
