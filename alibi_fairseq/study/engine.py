"""Carrying out a study: data, cells in their order, the page.

Everything that is large stays in the working folder. Of a finished cell the results folder keeps
JSON alone, in ``cells/NAME/``, with the settings it was made with in ``cell.json``. A cell whose
settings are there is done, on whatever machine it was trained.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ..compare import cell as compare_cell
from ..files import atomic_write, sha256_file
from ..results.schema import load_document, save_document
from ..training_record import FILE_NAME as TRAINING
from ..workflow import Command, Stamp, Step, run_chains
from ..workflow.stamp import check_settings
from . import data as study_data
from .description import Key, Study, corpus_with

SETTINGS = "cell.json"
DOCUMENTS = ("evaluation.json", "position_loss.json", TRAINING)


@dataclass(frozen=True)
class StudyCell:
    """One model of a study.

    Attributes:
        key: which one.
        model: its training, as a cell of a comparison.
        tests: what it is evaluated on.
        description: the file of the study.
        results: the folder of its JSON.
    """

    key: Key
    model: compare_cell.Cell
    tests: dict
    description: Path
    results: Path

    @cached_property
    def settings(self) -> dict:
        """What determines the results; the hashes of the data are None before it is there."""
        files = {name: self.model.data / name for name in ("train.bin", "test.bin", "dict.txt")}
        return {
            "options": self.model.options,
            "tests": self.tests,
            "data": {
                name: sha256_file(path) if path.is_file() else None for name, path in files.items()
            },
        }

    @property
    def done(self) -> bool:
        """Whether the results are there.

        Raises:
            BadInput: they were made with other settings.
        """
        path = self.results / SETTINGS
        if not path.is_file():
            return False
        found = json.loads(path.read_text(encoding="utf-8"))["settings"]
        wanted = json.loads(json.dumps(self.settings))
        if None in wanted["data"].values():
            wanted["data"] = found["data"]
        advice = "choose another --results or move that folder away"
        check_settings(found, wanted, f"{self.results} holds a cell that was made", advice)
        return True

    def steps(self) -> list[Step]:
        """Training, evaluation, and keeping the results."""
        made = self.model.folder / "results"
        evaluated = Stamp(
            self.model.folder / "evaluated.json",
            self.tests,
            [self.model.checkpoint, self.model.data / "test.bin"],
            [made / name for name in DOCUMENTS[:2]],
        )
        return [
            self.model.steps[0],
            Step(
                title=f"evaluating {self.key.name}",
                work=self._evaluate(made),
                done=evaluated.holds,
                finish=evaluated.write,
            ),
            Step(
                title=f"keeping the results of {self.key.name}",
                work=lambda: self._keep(made),
                done=lambda: self.done,
            ),
        ]

    def _evaluate(self, out: Path) -> Command:
        # The table of learned positions ends at the training length.
        overrides = {"clamp_learned_positions": True} if self.key.method == "learned" else {}
        words = [
            *(sys.executable, "-m", "alibi_fairseq.study.evaluate", str(self.model.data)),
            *("--path", str(self.model.checkpoint), "--description", str(self.description)),
            *("--out", str(out)),
            *(("--model-overrides", json.dumps(overrides)) if overrides else ()),
        ]
        return Command(words, self.model.folder / "evaluate.log")

    def _keep(self, made: Path) -> None:
        shutil.copyfile(self.model.folder / TRAINING, made / TRAINING)
        for name in DOCUMENTS:
            document = load_document(made / name)
            if name == TRAINING:  # as typed, without the folder of this machine
                document["provenance"]["command"] = self.model.train_command.line
            if name == DOCUMENTS[0]:
                for cell in document["cells"]:
                    cell["train_command"] = self.model.train_command.line
            save_document(document, self.results / name)
        with atomic_write(self.results / SETTINGS) as stream:
            json.dump({"name": self.key.name, "settings": self.settings}, stream, indent=1)
            stream.write("\n")


@dataclass(frozen=True)
class StudyWork:
    """A study in its folders.

    Attributes:
        study: what to do.
        description: its file.
        sources: the text of each corpus; those that are not needed any more may be missing.
        folder: for data and checkpoints.
        results: for the JSON of finished cells and the page.
    """

    study: Study
    description: Path
    sources: dict[str, Path]
    folder: Path
    results: Path

    def cells(self) -> list[StudyCell]:
        """All of them, in the order of importance; those without data cannot be trained yet."""
        found = []
        for key, part in self.study.cells():
            data = self.data.get(key.corpus, self.folder / key.corpus / "unprepared")
            corpus = corpus_with(data, key.corpus)
            model = compare_cell.Cell(
                comparison=replace(part, corpora=(corpus,)),
                corpus=corpus,
                method=key.method,
                train_length=key.train_length,
                seed=key.seed,
                data=data,
                folder=self.folder / key.corpus / key.name,
            )
            tests = self.study.tests.of(key.method, key.train_length)
            results = self.results / "cells" / key.name
            found.append(StudyCell(key, model, tests, self.description, results))
        return found

    @cached_property
    def data(self) -> dict[str, Path]:
        """The data of each corpus whose text is given, prepared."""
        return {
            name: study_data.prepare(self.study.corpora[name], source, self.folder / name)
            for name, source in self.sources.items()
        }

    def given(self) -> list[StudyCell]:
        """Cells whose text is given."""
        return [cell for cell in self.cells() if cell.key.corpus in self.sources]

    def left(self) -> list[StudyCell]:
        """Those of them that are not done.

        Raises:
            BadInput: any cell of the study was made with other settings.
        """
        done = [cell.key for cell in self.cells() if cell.done]
        return [cell for cell in self.given() if cell.key not in done]

    def run(self, cells: Sequence[StudyCell], parallel: int) -> None:
        """Train and evaluate cells; see :func:`alibi_fairseq.workflow.run_chains`."""
        one_thread = [{"OMP_NUM_THREADS": "1"}] * parallel
        run_chains([(cell.key.name, cell.steps()) for cell in cells], parallel, one_thread)
