"""The runs of a study, and the JSON that is kept of each.

Everything that is large stays in the working folder. Of a finished run the results folder keeps JSON
only, in ``cells/NAME/``, with the settings it was made with in ``cell.json``. A run whose settings are
there is done, on whatever machine it was trained.
"""

from __future__ import annotations

import fnmatch
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from ...files import atomic_write
from ...results.schema import TRAINING_FILE, load_document, save_document
from ...results.stamps import Stamp, check_settings
from ..command import Command, StopRequest
from ..compare import overrides_of, run_of, sha256_if_there
from ..run import Environment, Run
from ..runner import Experiment
from . import data as study_data
from .description import Key, Study

SETTINGS = "cell.json"
DOCUMENTS = ("evaluation.json", "position_loss.json", TRAINING_FILE)


@dataclass(frozen=True)
class StudyEvaluation:
    """All evaluations of a run, as an :class:`..run.Evaluation`.

    Attributes:
        tests: what it is evaluated on, see :meth:`.description.Tests.of`.
        description: the file of the study.
        data: the folder of the study's data.
        overrides: options of the model.
    """

    tests: dict
    description: Path
    data: Path
    overrides: dict

    def command(self, run: Run) -> Command:
        argv = [
            *(sys.executable, "-m", "alibi_fairseq.experiments.study.evaluate", str(self.data)),
            *("--path", str(run.model()), "--description", str(self.description)),
            *("--out", str(run.folder / "results")),
            *(("--model-overrides", json.dumps(self.overrides)) if self.overrides else ()),
        ]
        return Command(f"evaluating {run.name}", argv, run.folder / "evaluate.log")

    def done(self, run: Run) -> bool:
        return self._stamp(run).holds()

    def measure(self, run: Run, stop: StopRequest | None, environment: Environment) -> None:
        self.command(run).run(stop, environment)
        self._stamp(run).write()

    def _stamp(self, run: Run) -> Stamp:
        made_of = [run.model(), self.data / "test.bin"]
        outputs = [run.folder / "results" / name for name in DOCUMENTS[:2]]
        return Stamp(run.folder / "evaluated.json", self.tests, made_of, outputs)

    def inputs(self, run: Run) -> Iterator[tuple[int, int]]:
        tokens = (self.data / "test.bin").stat().st_size // 2
        for length in self.tests["lengths"]:
            yield length, tokens * (2 if self.tests["variant"] else 1)
        slides = len(study_data.document_starts(self.data)) * self.tests["sliding_tokens"]
        for length in self.tests["sliding"]:
            yield length, slides * length


@dataclass(frozen=True)
class StudyRun(Run):
    """A run that is done where its results are kept, wherever it was trained.

    Attributes:
        key: which cell it is.
        cell: what determines the results; the hashes of the data are None before it is there.
        kept: the folder of the JSON.
    """

    key: Key = Key("", "", 0, 0)
    cell: dict | None = None
    kept: Path = Path()

    @property
    def done(self) -> bool:
        """Whether the results are there."""
        path = self.kept / SETTINGS
        if not path.is_file():
            return False
        found = json.loads(path.read_text(encoding="utf-8"))["settings"]
        wanted = json.loads(json.dumps(self.cell))
        if None in wanted["data"].values():
            wanted["data"] = found["data"]
        advice = "choose another --results or move that folder away"
        check_settings(found, wanted, f"{self.kept} holds a cell that was made", advice)
        return True

    def evaluate(self, stop: StopRequest | None = None, environment: Environment = None) -> None:
        """Measure what is not measured yet, and keep the results."""
        if self.done:  # refuses those of other settings
            return
        super().evaluate(stop, environment)
        made, trained_by = self.folder / "results", self.command().line
        shutil.copyfile(self.folder / TRAINING_FILE, made / TRAINING_FILE)
        for name in DOCUMENTS:
            document = load_document(made / name)
            if name == TRAINING_FILE:  # as typed, without the folder of this machine
                document["provenance"]["command"] = trained_by
            if name == DOCUMENTS[0]:
                for cell in document["cells"]:
                    cell["train_command"] = trained_by
            save_document(document, self.kept / name)
        with atomic_write(self.kept / SETTINGS) as stream:
            json.dump({"name": self.key.name, "settings": self.cell}, stream, indent=1)
            stream.write("\n")


@dataclass(frozen=True)
class StudyExperiment(Experiment):
    """A study as an :class:`..runner.Experiment`.

    Attributes:
        description: its file.
        sources: the text of each corpus; those that are not needed any more may be missing.
        folder: for data and checkpoints.
        results: for the JSON of finished runs and the page.
        pattern: only runs with such names, as a shell matches file names.
    """

    study: Study
    description: Path
    sources: dict[str, Path]
    folder: Path
    results: Path
    pattern: str = "*"

    threads = 1
    partial = True

    @property
    def prepared(self) -> bool:
        return all(self._data(name) is not None for name in self.sources)

    def prepare(self) -> None:
        """Make the data; refuses results that were made with other settings."""
        for name, source in self.sources.items():
            study_data.prepare(self.study.corpora[name], source, self.folder / name)
        for run in self._all_runs():
            run.done  # noqa: B018

    @cached_property
    def runs(self) -> list[StudyRun]:
        """Those whose text is given, in the order of their importance."""
        return [
            run
            for run in self._all_runs()
            if run.key.corpus in self.sources and fnmatch.fnmatch(run.key.name, self.pattern)
        ]

    def report(self) -> None:
        """Write the page; runs may be trained where no figures can be drawn."""
        if not find_spec("matplotlib"):
            print("matplotlib is not installed: write the page elsewhere, from the same --results.")
            return
        from .page import write_page

        print(f"\n{write_page(self.study, self.description, self.results)}")

    def cost(self) -> str:
        tokens = sum(part.tokens for key, part in self.study.cells() if key.corpus in self.sources)
        return f"{len(self.runs)} runs of the given texts, {tokens:,} tokens"

    def _all_runs(self) -> Iterator[StudyRun]:
        for key, part in self.study.cells():
            data = self._data(key.corpus) or self.folder / key.corpus / "unprepared"
            folder = self.folder / key.corpus / key.name
            run = run_of(
                part, key.name, key.method, key.train_length, key.seed, data, folder, part.lr[0]
            )
            tests = self.study.tests.of(key.method, key.train_length)
            evaluation = StudyEvaluation(tests, self.description, data, overrides_of(key.method))
            files = ("train.bin", "test.bin", "dict.txt")
            hashes = {name: sha256_if_there(data / name) for name in files}
            cell = {"options": run.settings["options"], "tests": tests, "data": hashes}
            kept = self.results / "cells" / key.name
            yield StudyRun(
                **vars(replace(run, evaluations=(evaluation,))), key=key, cell=cell, kept=kept
            )

    def _data(self, corpus: str) -> Path | None:
        source = self.sources.get(corpus)
        if source is None:
            return None
        return study_data.prepared(self.study.corpora[corpus], source, self.folder / corpus)
