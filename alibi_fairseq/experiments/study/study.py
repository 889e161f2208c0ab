"""``alibi-fairseq study``: comparisons in the order of what they decide, and the JSON that is kept of them.

Everything that is large stays in the working folder. Of a finished run the results folder keeps JSON
only, in ``cells/NAME/``, with the settings it was made with in ``cell.json``. A run whose settings are
there is done, on whatever machine it was trained.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...errors import BadInput
from ...files import atomic_write
from ...results.points import Point, document_points
from ...results.schema import TRAINING_FILE, load_document, merge_documents, save_document
from ...results.stamps import check_settings
from ..command import HERE, Place
from ..compare import runs_of, sha256_if_there
from ..comparison import Comparison, Corpus, from_mapping, read_yaml
from ..corpora import is_prepared, prepare
from ..run import Run, trials_of
from ..runner import Experiment
from .bootstrap import Losses
from .claims import Evaluation, Results
from .page import write_page

SETTINGS, EVALUATION, SPEEDS = "cell.json", "evaluation.json", "speeds.json"


class Key(NamedTuple):
    """A model of a study."""

    corpus: str
    method: str
    train_length: int
    seed: int

    @property
    def name(self) -> str:
        return "-".join(map(str, self[:3])) + f"-seed{self.seed}"


@dataclass(frozen=True)
class Description:
    """What a study trains and evaluates.

    Attributes:
        title: of the page.
        note: for the page, in Markdown.
        parts: comparisons of the same corpora, the most important first.
        given: names of the corpora whose text is there.
    """

    title: str
    note: str
    parts: tuple[Comparison, ...]
    given: frozenset[str]

    def cells(self) -> Iterator[tuple[Key, Comparison]]:
        """Each model once, in the order of importance, with the first comparison that has it."""
        found: dict[Key, Comparison] = {}
        for part in self.parts:
            for corpus, method, length, seed in part.cells():
                found.setdefault(Key(corpus.name, method, length, seed), part)
        yield from found.items()


def load(path: Path, texts: Mapping[str, Path] | None = None) -> Description:
    """A study from YAML: ``corpora``, ``parts``, and in ``training`` and ``evaluation`` what parts share.

    Args:
        texts: by corpus, where the file does not name them.
    """

    def make(values: dict) -> Description:
        known = {"title", "note", "corpora", "parts", "training", "evaluation"}
        if wrong := sorted(values.keys() - known):
            raise BadInput(
                f"there is no key '{wrong[0]}'; the keys are {', '.join(sorted(known))}."
            )
        try:
            given = {name: str(text) for name, text in (texts or {}).items()}
            corpora = [_corpus(each, given) for each in values["corpora"]]
            shared = {**values.get("training", {}), **values.get("evaluation", {})}
            parts = [{**shared, **part, "corpora": corpora} for part in values["parts"]]
            title = values["title"]
        except (AttributeError, KeyError, TypeError) as error:
            raise BadInput(f"this is not the description of a study ({error!r}).") from error
        if strange := sorted(given.keys() - {each["name"] for each in corpora}):
            raise BadInput(f"--corpus: there is no corpus '{strange[0]}'.")
        there = {each["name"] for each in values["corpora"] if {"text", "data"} & each.keys()}
        compared = tuple(map(from_mapping, parts))
        return Description(title, values.get("note", ""), compared, frozenset({*there, *given}))

    return read_yaml(path, make)


def _corpus(described: dict, given: Mapping[str, str]) -> dict:
    name = described["name"]
    if name in given:
        there = (Path(given[name]) / "dict.txt").is_file()
        return {**described, "data" if there else "text": given[name]}
    return described if {"text", "data"} & described.keys() else {**described, "text": name.upper()}


@dataclass(frozen=True)
class KeptRun(Run):
    """A run that is done where its results are kept, wherever it was trained.

    Attributes:
        key: of its model.
        cell: what determines the results; the hashes of data are None before it is there.
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
            tested_on = each.name.removeprefix("on ") if each.data else self.key.corpus
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
            kept = {
                "name": self.key.name,
                "settings": self.cell,
                "tuning": self.tuning and self.tuning.outcome,
            }
            json.dump(kept, stream, indent=1)
            stream.write("\n")


@dataclass(frozen=True)
class Study(Experiment):
    """A study as an :class:`..runner.Experiment`.

    Attributes:
        folder: for data and checkpoints.
        results: for the JSON of finished runs and the page.
        pattern: only runs with such names, as a shell matches file names.
    """

    description: Description
    folder: Path
    results: Path
    pattern: str = "*"

    threads = 1
    partial = True

    @property
    def corpora(self) -> list[Corpus]:
        """Those whose text is there."""
        described = self.description
        return [each for each in described.parts[0].corpora if each.name in described.given]

    @property
    def prepared(self) -> bool:
        return all(is_prepared(corpus, (), self.folder) for corpus in self.corpora)

    def prepare(self) -> None:
        """Make the data; refuses results that were made with other settings."""
        first = self.description.parts[0]
        missing = [each.name for each in first.corpora if each not in self.corpora]
        if missing and self.corpora and first.shared_vocabulary:
            flags = " ".join(f"--corpus {name}=PATH" for name in missing)
            raise BadInput(f"The dictionary is learned from all texts; give {flags} as well.")
        prepare(self.corpora, (), first.shared_vocabulary, self.folder)
        for run in self.runs:
            run.done  # noqa: B018

    @property
    def runs(self) -> list[KeptRun]:
        """Those whose text is there, in the order of their importance."""
        found: dict[Key, KeptRun] = {}
        for part in self.description.parts:
            tuned = self.results / "tuning"
            for cell, run in zip(part.cells(), runs_of(part, self.folder, tuned)):
                corpus, method, length, seed = cell
                key = Key(corpus.name, method, length, seed)
                chosen = fnmatch.fnmatch(key.name, self.pattern)
                if key not in found and chosen and corpus.name in self.description.given:
                    settings, kept = self._settings(part, run), self.results / "cells" / key.name
                    fields = {**vars(run), "name": key.name}
                    found[key] = KeptRun(**fields, key=key, cell=settings, kept=kept)
        return list(found.values())

    def _settings(self, part: Comparison, run: Run) -> dict:
        """What determines a run's results. Of a rate that is chosen: among which, and how."""
        options = list(run.settings["options"])
        if len(part.lr) > 1:
            rates = ",".join(map(str, part.lr))
            options[options.index("--lr") + 1] = f"{rates} for {part.tune_share}"
        sweeps = run.evaluations
        data = {"train.bin": run.settings["train"], "dict.txt": run.settings["dictionary"]}
        for each in sweeps:
            file = Path(each.data or run.data) / f"{each.subset}.bin"
            data[f"{each.name if each.data else ''} {file.name}".strip()] = sha256_if_there(file)
        evaluations = [
            {"name": each.name, "points": sorted(each.points), **each.settings} for each in sweeps
        ]
        return {"options": options, "evaluations": evaluations, "data": data}

    def report(self) -> None:
        """Write the page; runs may be trained where no figures can be drawn."""
        if not find_spec("matplotlib"):
            print("matplotlib is not installed: write the page elsewhere, from the same --results.")
            return
        described, cells = self.description, self.results / "cells"
        keys = [key for key, _ in described.cells()]
        finished = [key for key in keys if (cells / key.name / SETTINGS).is_file()]
        missing = [key.name for key in keys if key not in finished]
        results = Results(load_losses(cells, finished), load_speeds(self.results))
        points = load_points(cells, finished)
        page = write_page(described.title, described.note, results, points, missing, self.results)
        print(f"\n{page}")

    def cost(self) -> str:
        runs, sizes = self.runs, dict(self.description.cells())
        trials = trials_of(runs)
        tokens = sum(sizes[run.key].tokens for run in runs)
        return f"{len(runs)} runs of {tokens:,} tokens together, {len(trials)} trials before them"


def load_losses(cells: Path, keys: list[Key]) -> dict[Evaluation, Losses]:
    """The losses of documents in finished cells, the seeds of a model together."""
    found: dict[Evaluation, dict[int, dict]] = {}
    for key in keys:
        for path in sorted((cells / key.name).glob("evaluation*.json")):
            for cell in load_document(path)["cells"]:
                case = (cell["corpus"], cell["length"], cell["stride"], cell.get("label", ""))
                if "document_bits" in cell:
                    found.setdefault(Evaluation(*key[:3], *case), {})[key.seed] = cell
    losses = {}
    for evaluation, seeds in found.items():
        tokens = [np.array(cell["document_tokens"]) for cell in seeds.values()]
        if any(not np.array_equal(each, tokens[0]) for each in tokens):
            raise BadInput(f"{cells}: the seeds of {evaluation} were tested on other documents.")
        model = (evaluation.corpus, evaluation.method, evaluation.train_length)
        bits = np.array([cell["document_bits"] for cell in seeds.values()])
        losses[evaluation] = Losses(model, tuple(seeds), bits, tokens[0])
    return losses


def load_points(cells: Path, keys: list[Key]) -> list[Point]:
    """Perplexities of non-overlapping windows on the models' own corpora."""
    documents = (load_document(cells / key.name / EVALUATION) for key in keys)
    points = [point for document in documents for point in document_points(document)]
    return [point for point in points if point.nonoverlapping and not point.label]


def load_speeds(results: Path) -> dict[tuple[str, str, int], list[float]]:
    """Seconds of the rounds by phase, method and length, of ``compare --speeds``."""
    path = results / SPEEDS
    measured = load_document(path)["cells"] if path.is_file() else []
    return {
        (cell["phase"], cell["position_method"], cell["train_length"]): cell["round_seconds"]
        for cell in measured
    }
