"""``alibi-fairseq study``: comparisons in the order of what they decide, and the JSON that is kept of them.

Everything that is large stays in the working folder. Of a finished run the results folder keeps JSON
only, in ``cells/NAME/``, with the settings it was made with in ``cell.json``. A run whose settings are
there is done, on whatever machine it was trained.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pydantic.dataclasses

from ...errors import BadInput
from ...files import atomic_write
from ...results.points import Point, document_points
from ...results.schema import TRAINING_FILE, load_document, merge_documents, save_document
from ...results.stamps import check_settings, read_stamp
from ..command import HERE, Place
from ..compare import runs_of, sha256_if_there
from ..comparison import STRICT, Cell, Comparison, Corpus, from_mapping, read_yaml, validated
from ..comparison_report import trained
from ..corpora import is_prepared, prepare
from ..run import Run, trials_of
from ..runner import Experiment
from .bootstrap import Losses
from .claims import Evaluation, Results
from .page import Curves, write_page

SETTINGS, EVALUATION, SPEEDS = "cell.json", "evaluation.json", "speeds.json"


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Description:
    """A study as YAML describes it."""

    title: str
    corpora: list[dict]  # as in a comparison, some without their text
    parts: list[dict]  # comparisons of them, the most important first
    training: dict = field(default_factory=dict)  # what all parts share
    evaluation: dict = field(default_factory=dict)  # likewise
    note: str = ""  # in Markdown

    def __post_init__(self):
        self.comparisons({})

    def comparisons(self, texts: Mapping[str, Path]) -> tuple[Comparison, ...]:
        """The parts, with texts that the description does not name; in place of none stands a name."""
        corpora = []
        for corpus in self.corpora:
            name = str(corpus.get("name"))
            text = texts.get(name, Path(name.upper()))
            key = "data" if (text / "dict.txt").is_file() else "text"
            told = name not in texts and {"text", "data"} & corpus.keys()
            corpora.append(corpus if told else {**corpus, key: str(text)})
        shared = {**self.training, **self.evaluation, "corpora": corpora}
        return tuple(from_mapping({**shared, **part}) for part in self.parts)


def load(path: Path) -> Description:
    return read_yaml(path, lambda values: validated(Description, values))


def name_of(cell: Cell) -> str:
    return "-".join(map(str, cell[:3])) + f"-seed{cell.seed}"


@dataclass(frozen=True)
class KeptRun(Run):
    """A run that is done where its results are kept, wherever it was trained."""

    corpus: str = ""
    cell: dict = field(default_factory=dict)  # what determines the results, see settings_of
    kept: Path = Path()  # the folder of the JSON

    @property
    def done(self) -> bool:
        """Whether the results are there."""
        found = read_stamp(self.kept / SETTINGS)
        if found is None:
            return False
        wanted, advice = dict(self.cell), "choose another --results or move that folder away"
        if None in wanted["data"].values():
            wanted["data"] = found["settings"]["data"]
        there = f"{self.kept} holds a cell that was made"
        check_settings(found["settings"], wanted, there, advice)
        return True

    def evaluate(self, place: Place = HERE) -> None:
        """Measure what is not measured yet, and keep the results."""
        if self.done:  # refuses those of other settings
            return
        super().evaluate(place)
        line, rate = self.command().line, float(self.flags[self.flags.index("--lr") + 1])
        record = load_document(self.folder / TRAINING_FILE)
        record["provenance"]["command"] = line  # as typed, without this machine's interpreter
        documents: dict[str, list[dict]] = {}
        for each in self.evaluations:
            tested_on = each.name.removeprefix("on ") if each.data else self.corpus
            facts = {"corpus": tested_on, "lr": rate, "train_command": line}
            facts |= {"label": each.name} if each.name and not each.data else {}
            document = load_document(each.results)
            cells = [cell | facts for cell in document["cells"] if each.has(cell)]
            file = f"evaluation-on-{tested_on}.json" if each.data else EVALUATION
            documents.setdefault(file, []).append({**document, "cells": cells})
        for name, found in documents.items():
            save_document(merge_documents(found), self.kept / name)
        save_document(record, self.kept / TRAINING_FILE)
        with atomic_write(self.kept / SETTINGS) as stream:
            outcome = self.tuning and self.tuning.outcome
            kept = {"name": self.name, "settings": self.cell, "tuning": outcome}
            json.dump(kept, stream, indent=1)
            stream.write("\n")


@dataclass(frozen=True)
class Study(Experiment):
    """A study as an :class:`..runner.Experiment`."""

    description: Description
    texts: Mapping[str, Path]  # by corpus, where the description does not name them
    folder: Path  # for data and checkpoints
    results: Path  # for the JSON of finished runs and the page
    pattern: str = "*"  # of the names of runs, as a shell matches file names

    threads = 1
    partial = True

    @cached_property
    def parts(self) -> tuple[Comparison, ...]:
        return self.description.comparisons(self.texts)

    @property
    def corpora(self) -> list[Corpus]:
        """Those whose text is there."""
        told = (each["name"] for each in self.description.corpora if {"text", "data"} & each.keys())
        there = {*self.texts, *told}
        return [each for each in self.parts[0].corpora if each.name in there]

    @property
    def prepared(self) -> bool:
        return all(is_prepared(corpus, (), self.folder) for corpus in self.corpora)

    def prepare(self) -> None:
        """Make the data; refuses results that were made with other settings."""
        first, there = self.parts[0], self.corpora
        missing = [each.name for each in first.corpora if each not in there]
        if missing and there and first.shared_vocabulary:
            flags = " ".join(f"--corpus {name}=PATH" for name in missing)
            raise BadInput(f"The dictionary is learned from all texts; give {flags} as well.")
        prepare(there, (), first.shared_vocabulary, self.folder)
        for run in self.runs:
            run.done  # noqa: B018

    def cells(self) -> dict[Cell, Comparison]:
        """Each model once, in the order of importance, with the first comparison that has it."""
        found: dict[Cell, Comparison] = {}
        for part in self.parts:
            for cell in part.cells():
                found.setdefault(cell, part)
        return found

    @property
    def runs(self) -> list[KeptRun]:
        """Those whose text is there, in the order of their importance."""
        found: dict[str, KeptRun] = {}
        there = [corpus.name for corpus in self.corpora]
        for part in self.parts:
            tuned = self.results / "tuning"
            for cell, run in zip(part.cells(), runs_of(part, self.folder, tuned)):
                name = name_of(cell)
                if name in found or cell.corpus not in there:
                    continue
                if fnmatch.fnmatch(name, self.pattern):
                    fields = {**vars(run), "name": name, "corpus": cell.corpus}
                    kept = self.results / "cells" / name
                    found[name] = KeptRun(**fields, cell=settings_of(part, run), kept=kept)
        return list(found.values())

    def report(self) -> None:
        """Write the page."""
        described, folder = self.description, self.results / "cells"
        finished: list[Cell] = []
        missing: dict[str, list[int]] = {}
        for cell in self.cells():
            if (folder / name_of(cell) / SETTINGS).is_file():
                finished.append(cell)
            else:
                missing.setdefault("-".join(map(str, cell[:3])), []).append(cell.seed)
        results = Results(load_losses(folder, finished), load_speeds(self.results))
        points = load_points(folder, finished)
        note = " ".join([described.note, *dict.fromkeys(map(trained, self.parts))])
        curves = load_curves(folder, finished)
        page = write_page(described.title, note, results, points, curves, missing, self.results)
        print(f"\n{page}")

    def cost(self) -> str:
        runs, trials = self.runs, trials_of(self.runs)
        sizes = {name_of(cell): part.tokens for cell, part in self.cells().items()}
        tokens = sum(sizes[run.name] for run in runs)
        return f"{len(runs)} runs of {tokens:,} tokens together, {len(trials)} trials before them"


def settings_of(part: Comparison, run: Run) -> dict:
    """What determines a run's results: the hashes of data are None before it is there.

    Of a rate that is chosen: among which, and how.
    """
    options = list(run.settings["options"])
    if len(part.lr) > 1:
        rates = ",".join(map(str, part.lr))
        options[options.index("--lr") + 1] = f"{rates} for {part.tune_share}"
    data = {"train.bin": run.settings["train"], "dict.txt": run.settings["dictionary"]}
    for each in run.evaluations:
        file = Path(each.data or run.data) / f"{each.subset}.bin"
        data[f"{each.name if each.data else ''} {file.name}".strip()] = sha256_if_there(file)
    evaluations = [
        {"name": each.name, "points": sorted(each.points), **each.settings}
        for each in run.evaluations
    ]
    return {"options": options, "evaluations": evaluations, "data": data}


def load_losses(folder: Path, cells: list[Cell]) -> dict[Evaluation, Losses]:
    """The losses of documents in finished cells, the seeds of a model together."""
    found: dict[Evaluation, dict[int, dict]] = {}
    for key in cells:
        for path in sorted((folder / name_of(key)).glob("evaluation*.json")):
            for cell in load_document(path)["cells"]:
                case = (cell["corpus"], cell["length"], cell["stride"], cell.get("label", ""))
                if "document_bits" in cell:
                    found.setdefault(Evaluation(*key[:3], *case), {})[key.seed] = cell
    losses = {}
    for evaluation, seeds in found.items():
        tokens = [np.array(cell["document_tokens"]) for cell in seeds.values()]
        if any(not np.array_equal(each, tokens[0]) for each in tokens):
            raise BadInput(f"{folder}: the seeds of {evaluation} were tested on other documents.")
        model = (evaluation.corpus, evaluation.method, evaluation.train_length)
        bits = np.array([cell["document_bits"] for cell in seeds.values()])
        losses[evaluation] = Losses(model, tuple(seeds), bits, tokens[0])
    return losses


def load_points(folder: Path, cells: list[Cell]) -> list[Point]:
    """Perplexities of non-overlapping windows on the models' own corpora."""
    documents = (load_document(folder / name_of(cell) / EVALUATION) for cell in cells)
    points = [point for document in documents for point in document_points(document)]
    return [point for point in points if point.nonoverlapping and not point.label]


def load_curves(folder: Path, cells: list[Cell]) -> Curves:
    """Validation losses in training, at the lengths at which models without positions were trained."""
    without = {cell[:3:2] for cell in cells if cell.method == "none"}  # corpus and length
    found: Curves = {}
    for cell in cells:
        if cell[:3:2] in without:
            curve = found.setdefault(cell[1:3], {})
            for each in load_document(folder / name_of(cell) / TRAINING_FILE)["cells"]:
                curve.setdefault(each["updates"], []).append(each["loss_bits"])
    return found


def load_speeds(results: Path) -> dict[tuple[str, str, int], list[float]]:
    """Seconds of the rounds by phase, method and length, of ``compare --speeds``."""
    path = results / SPEEDS
    measured = load_document(path)["cells"] if path.is_file() else []
    return {
        (cell["phase"], cell["position_method"], cell["train_length"]): cell["round_seconds"]
        for cell in measured
    }
