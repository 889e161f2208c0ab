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
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from ...files import atomic_write
from ...results.schema import TRAINING_FILE, load_document, save_document
from ...results.stamps import Stamp, check_settings
from ..command import Command
from ..compare import run_of, sha256_if_there, training_options
from ..run import Run
from ..runner import Step
from . import data as study_data
from .description import Key, Study

SETTINGS = "cell.json"
DOCUMENTS = ("evaluation.json", "position_loss.json", TRAINING_FILE)


@dataclass(frozen=True)
class StudyEvaluation:
    """All evaluations of a run, as an :class:`..run.Evaluation`.

    Attributes:
        key: which run.
        tests: what it is evaluated on, see :meth:`.description.Tests.of`.
        description: the file of the study.
        data: the folder of the study's data.
    """

    key: Key
    tests: dict
    description: Path
    data: Path

    def step(self, run: Run) -> Step:
        out = run.folder / "results"
        stamp = Stamp(
            run.folder / "evaluated.json",
            self.tests,
            [run.model(), self.data / "test.bin"],
            [out / name for name in DOCUMENTS[:2]],
        )
        # The table of learned positions ends at the training length.
        overrides = {"clamp_learned_positions": True} if self.key.method == "learned" else {}
        argv = [
            *(sys.executable, "-m", "alibi_fairseq.experiments.study.evaluate", str(self.data)),
            *("--path", str(run.model()), "--description", str(self.description)),
            *("--out", str(out)),
            *(("--model-overrides", json.dumps(overrides)) if overrides else ()),
        ]
        return Step(
            title=f"evaluating {run.name}",
            work=Command(argv, run.folder / "evaluate.log"),
            done=stamp.holds,
            finish=stamp.write,
        )

    def inputs(self, run: Run) -> Iterator[tuple[int, int]]:
        tokens = (self.data / "test.bin").stat().st_size // 2
        for length in self.tests["lengths"]:
            yield length, tokens * (2 if self.tests["variant"] else 1)
        slides = len(study_data.document_starts(self.data)) * self.tests["sliding_tokens"]
        for length in self.tests["sliding"]:
            yield length, slides * length


@dataclass(frozen=True)
class KeptResults:
    """The JSON of a run in the results folder; the last of its evaluations.

    Attributes:
        key: which run.
        settings: what determines the results; the hashes of the data are None before it is there.
        folder: of the JSON.
    """

    key: Key
    settings: dict
    folder: Path

    @property
    def done(self) -> bool:
        """Whether the results are there.

        Raises:
            BadInput: they were made with other settings.
        """
        path = self.folder / SETTINGS
        if not path.is_file():
            return False
        found = json.loads(path.read_text(encoding="utf-8"))["settings"]
        wanted = json.loads(json.dumps(self.settings))
        if None in wanted["data"].values():
            wanted["data"] = found["data"]
        advice = "choose another --results or move that folder away"
        check_settings(found, wanted, f"{self.folder} holds a cell that was made", advice)
        return True

    def step(self, run: Run) -> Step:
        return Step(
            title=f"keeping the results of {run.name}",
            work=lambda: self._keep(run),
            done=lambda: self.done,
        )

    def inputs(self, run: Run) -> Iterator[tuple[int, int]]:
        yield from ()

    def _keep(self, run: Run) -> None:
        made = run.folder / "results"
        shutil.copyfile(run.folder / TRAINING_FILE, made / TRAINING_FILE)
        for name in DOCUMENTS:
            document = load_document(made / name)
            if name == TRAINING_FILE:  # as typed, without the folder of this machine
                document["provenance"]["command"] = run.command().line
            if name == DOCUMENTS[0]:
                for cell in document["cells"]:
                    cell["train_command"] = run.command().line
            save_document(document, self.folder / name)
        with atomic_write(self.folder / SETTINGS) as stream:
            json.dump({"name": self.key.name, "settings": self.settings}, stream, indent=1)
            stream.write("\n")


class StudyRun(Run):
    """A run that is done where its results are kept, wherever it was trained."""

    @property
    def done(self) -> bool:
        kept = self.evaluations[-1]
        assert isinstance(kept, KeptResults)
        return kept.done


@dataclass(frozen=True)
class StudyExperiment:
    """A study as an :class:`..runner.Experiment`.

    Attributes:
        study: what to do.
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

    option = "--work-dir"
    gpus = 1
    threads = 1
    partial = True

    @property
    def prepared(self) -> bool:
        return all(self._data(name) is not None for name in self.sources)

    def prepare(self) -> None:
        for name, source in self.sources.items():
            study_data.prepare(self.study.corpora[name], source, self.folder / name)
        self._check_kept()

    @cached_property
    def runs(self) -> list[Run]:
        """Those whose text is given, in the order of their importance."""
        return [
            run
            for run, key in zip(self._all_runs(), self.keys)
            if key.corpus in self.sources and fnmatch.fnmatch(key.name, self.pattern)
        ]

    @property
    def keys(self) -> list[Key]:
        return [key for key, _ in self.study.cells()]

    def report(self) -> None:
        """Write the page; runs may be trained where no figures can be drawn."""
        if find_spec("matplotlib"):
            from .page import write_page

            print(f"\n{write_page(self.study, self.description, self.results)}")
        else:
            print("matplotlib is not installed: write the page elsewhere, from the same --results.")

    def cost(self) -> str:
        tokens = sum(part.tokens for key, part in self.study.cells() if key.corpus in self.sources)
        return f"{len(self.runs)} runs of the given texts, {tokens:,} tokens"

    def _all_runs(self) -> Iterator[Run]:
        for key, part in self.study.cells():
            data = self._data(key.corpus) or self.folder / key.corpus / "unprepared"
            folder = self.folder / key.corpus / key.name
            run = run_of(part, key.name, key.method, key.train_length, key.seed, data, folder)
            tests = self.study.tests.of(key.method, key.train_length)
            settings = {
                "options": training_options(part, key.method, key.train_length, key.seed),
                "tests": tests,
                "data": {
                    name: sha256_if_there(data / name)
                    for name in ("train.bin", "test.bin", "dict.txt")
                },
            }
            evaluation = StudyEvaluation(key, tests, self.description, data)
            kept = KeptResults(key, settings, self.results / "cells" / key.name)
            yield StudyRun(**{**vars(run), "evaluations": (evaluation, kept)})

    def _check_kept(self) -> None:
        """Raises BadInput if any run of the study was made with other settings."""
        for run in self._all_runs():
            run.done  # noqa: B018

    def _data(self, corpus: str) -> Path | None:
        source = self.sources.get(corpus)
        if source is None:
            return None
        return study_data.prepared(self.study.corpora[corpus], source, self.folder / corpus)
