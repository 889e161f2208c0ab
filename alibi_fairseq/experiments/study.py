"""``alibi-fairseq study``: comparisons in the order of what they decide, the JSON that is kept of them, and
its page: the claims with their verdicts, the figures, and the comparisons behind each claim.

Everything that is large stays in the working folder. Of a finished run the results folder keeps JSON
only, in ``cells/NAME/``, with the settings it was made with in ``cell.json``. A run whose settings are
there is done, on whatever machine it was trained.
"""

from __future__ import annotations

import fnmatch
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pydantic.dataclasses

from ..errors import BadInput
from ..files import atomic_write
from ..reporting import markdown
from ..reporting.own_results import draw_lengths, length_table
from ..reporting.plots import Line, Panel, draw, method_look
from ..results.points import document_points, method_name
from ..results.schema import TRAINING_FILE, load_document, merge_documents, save_document
from ..results.stamps import check_settings, read_stamp
from .bootstrap import LEVEL, Losses
from .claims import CLAIMS, Claim, Evaluation, Finding, Results, worst
from .command import HERE, Place
from .compare import trained
from .comparison import STRICT, Cell, Comparison, Corpus, from_mapping
from .comparison_runs import runs_of, sha256_if_there
from .corpora import is_prepared, prepare
from .run import Run
from .runner import Experiment

SETTINGS, EVALUATION, SPEEDS = "cell.json", "evaluation.json", "speeds.json"


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class Description:
    """A study as YAML describes it."""

    title: str
    corpora: list[dict]  # as in a comparison, without their texts
    parts: list[dict]  # comparisons of them, the most important first
    training: dict = field(default_factory=dict)  # what all parts share
    evaluation: dict = field(default_factory=dict)  # likewise
    note: str = ""  # in Markdown

    def __post_init__(self):
        self.comparisons({})

    def comparisons(self, texts: Mapping[str, Path]) -> tuple[Comparison, ...]:
        """The parts, with the texts of their corpora; in place of none stands a name."""
        corpora = []
        for corpus in self.corpora:
            name = str(corpus.get("name"))
            text = texts.get(name, Path(name.upper()))
            key = "data" if (text / "dict.txt").is_file() else "text"
            corpora.append({**corpus, key: str(text)})
        shared = {**self.training, **self.evaluation, "corpora": corpora}
        return tuple(from_mapping({**shared, **part}) for part in self.parts)


def name_of(cell: Cell) -> str:
    return "-".join(map(str, cell[:3])) + f"-seed{cell.seed}"


@dataclass(frozen=True, kw_only=True)
class KeptRun(Run):
    """A run that is done where its results are kept, wherever it was trained."""

    part: Comparison
    corpus: str
    kept: Path  # the folder of the JSON

    @property
    def made_of(self) -> dict:
        """What determines the results: the hashes of data are None before it is there.

        Of a rate that is chosen: among which, and how.
        """
        options = list(self.settings["options"])
        if len(self.part.lr) > 1:
            rates = ",".join(map(str, self.part.lr))
            options[options.index("--lr") + 1] = f"{rates} for {self.part.tune_share}"
        data = {"train.bin": self.settings["train"], "dict.txt": self.settings["dictionary"]}
        for each in self.evaluations:
            file = Path(each.data or self.data) / f"{each.subset}.bin"
            data[f"{each.name if each.data else ''} {file.name}".strip()] = sha256_if_there(file)
        evaluations = [
            {"name": each.name, "points": sorted(each.points), **each.settings}
            for each in self.evaluations
        ]
        return {"options": options, "evaluations": evaluations, "data": data}

    @property
    def done(self) -> bool:
        """Whether the results are there."""
        found = read_stamp(self.kept / SETTINGS)
        if found is None:
            return False
        wanted = dict(self.made_of)
        if None in wanted["data"].values():
            wanted["data"] = found["settings"]["data"]
        advice = "choose another --results or move that folder away"
        check_settings(found["settings"], wanted, f"{self.kept} holds a cell that was made", advice)
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
            document = each.document()
            cells = [cell | facts for cell in document["cells"]]
            file = f"evaluation-on-{tested_on}.json" if each.data else EVALUATION
            documents.setdefault(file, []).append({**document, "cells": cells})
        for name, found in documents.items():
            save_document(merge_documents(found), self.kept / name)
        save_document(record, self.kept / TRAINING_FILE)
        with atomic_write(self.kept / SETTINGS) as stream:
            outcome = self.tuning and self.tuning.outcome
            kept = {"name": self.name, "settings": self.made_of, "tuning": outcome}
            json.dump(kept, stream, indent=1)
            stream.write("\n")


@dataclass(frozen=True)
class Study(Experiment):
    """A study as an :class:`..runner.Experiment`."""

    description: Description
    texts: Mapping[str, Path]  # by corpus
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
        return [corpus for corpus in self.parts[0].corpora if corpus.name in self.texts]

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

    def cells(self) -> list[Cell]:
        """Each model once, in the order of importance."""
        return list(dict.fromkeys(cell for part in self.parts for cell in part.cells()))

    @property
    def runs(self) -> list[KeptRun]:
        """Those whose text is there, in the order of their importance."""
        found: dict[str, KeptRun] = {}
        there, kept = {corpus.name for corpus in self.corpora}, self.results / "cells"
        for part in self.parts:
            runs = runs_of(part, self.folder, self.results / "tuning")
            for cell, run in zip(part.cells(), runs):
                name = name_of(cell)
                if cell.corpus in there and fnmatch.fnmatch(name, self.pattern):
                    of_cell = {"part": part, "corpus": cell.corpus, "kept": kept / name}
                    found.setdefault(name, KeptRun(**vars(run) | {"name": name} | of_cell))
        return list(found.values())

    def report(self) -> None:
        """Write the page."""
        finished: dict[Cell, Path] = {}
        missing: dict[str, list[int]] = {}
        for cell in self.cells():
            folder = self.results / "cells" / name_of(cell)
            if (folder / SETTINGS).is_file():
                finished[cell] = folder
            else:
                missing.setdefault("-".join(map(str, cell[:3])), []).append(cell.seed)
        note = " ".join([self.description.note, *dict.fromkeys(map(trained, self.parts))])
        title, results = self.description.title, load_results(finished, self.results / SPEEDS)
        print(f"\n{write_page(title, note, results, missing, self.results)}")


def load_results(finished: Mapping[Cell, Path], speeds: Path) -> Results:
    """What the page is made of: of finished models in their folders, and of ``compare --speeds``."""
    results, found = Results(), dict[Evaluation, dict[int, dict]]()
    without = {key[:3:2] for key in finished if key.method == "none"}  # corpus and length
    for key, folder in finished.items():
        for path in sorted(folder.glob("evaluation*.json")):
            document = load_document(path)
            if path.name == EVALUATION:
                points = document_points(document)
                results.points += [
                    each for each in points if each.nonoverlapping and not each.label
                ]
            for cell in document["cells"]:
                case = (cell["corpus"], cell["length"], cell["stride"], cell.get("label", ""))
                if "document_bits" in cell:
                    found.setdefault(Evaluation(*key[:3], *case), {})[key.seed] = cell
        if key[:3:2] in without:
            curve = results.curves.setdefault(key[1:3], {})
            for cell in load_document(folder / TRAINING_FILE)["cells"]:
                curve.setdefault(cell["updates"], []).append(cell["loss_bits"])
    for evaluation, seeds in found.items():
        tokens = [np.array(cell["document_tokens"]) for cell in seeds.values()]
        if any(not np.array_equal(each, tokens[0]) for each in tokens):
            raise BadInput(f"The seeds of {evaluation} were tested on other documents.")
        model = (evaluation.corpus, evaluation.method, evaluation.train_length)
        bits = np.array([cell["document_bits"] for cell in seeds.values()])
        results.losses[evaluation] = Losses(model, tuple(seeds), bits, tokens[0])
    for cell in load_document(speeds)["cells"] if speeds.is_file() else ():
        timed = (cell["phase"], cell["position_method"], cell["train_length"])
        results.speeds[timed] = cell["round_seconds"]
    return results


def write_page(
    title: str, note: str, results: Results, missing: Mapping[str, Sequence[int]], folder: Path
) -> Path:
    """Write ``README.md`` and its figures into the results folder.

    Args:
        note: Markdown under the title.
        missing: models that are not finished, the most important first, and their seeds.
    """
    found = {claim.title: [*claim.findings(results)] for claim in CLAIMS}
    verdicts = [[c.title, c.source, tally(found[c.title])] for c in CLAIMS if not c.later]
    parts = [f"# {title}", note, markdown.table(["claim", "the paper", "here"], verdicts, left=3)]
    main = [point for point in results.points if point.corpus == results.corpora[0]]
    if main:
        draw_lengths(main, title, folder / "study.png", folder / "study.svg")
        parts.append("![Perplexity by evaluation length](study.png)")
    if results.curves:
        draw_training(results.curves, folder / "training.png")
        parts.append("![Validation perplexity in training](training.png)")
    parts.append(
        f"Changes are of perplexity in per cent, with {LEVEL:.0%} intervals over seeds and documents; "
        "[the rules](../../docs/experiments.md#the-papers-claims-with-small-models) were fixed before "
        "the models were trained; the one that was changed since says so. In the table, a claim has the "
        "worst verdict of its comparisons that apply."
    )
    for claim in CLAIMS:
        if claim.later and "## Later papers" not in parts:
            parts.append("## Later papers")
        parts += section(claim, found[claim.title])
    if main:
        lengths: dict[int, set[int]] = {}
        for each in main:
            lengths.setdefault(each.train_length, set()).add(each.length)
        shared = set.intersection(*lengths.values())  # not those 50 tokens further
        parts.append("## Perplexity and bits per byte")
        parts.append(length_table(each for each in main if each.length in shared))
    if missing:
        left = [
            f"`{name}` (seed{'s' if len(of) > 1 else ''} {', '.join(map(str, of))})"
            for name, of in missing.items()
        ]
        parts += ["## Left out so far", ", ".join(left) + "."]
    path = folder / "README.md"
    with atomic_write(path) as stream:
        stream.write("\n\n".join(part.rstrip() for part in parts if part) + "\n")
    return path


def tally(findings: Sequence[Finding]) -> str:
    """The verdict on a claim, and how many of its comparisons have it."""
    verdict, found = worst(findings), [each.verdict for each in findings if each.verdict]
    return f"{verdict} ({found.count(verdict)} of {len(found)})" if found else verdict


def section(claim: Claim, findings: Sequence[Finding]) -> list[str]:
    """A claim's comparisons; nothing where there are none yet."""
    rows = []
    for finding in findings:
        found, paper, seeds = finding.number, finding.paper, dict.fromkeys(finding.seeds)
        printed = markdown.NOTHING if math.isnan(paper) else percent(paper)
        interval = f"{percent(found.low)} … {percent(found.high)}"
        trained = " and ".join(map(str, seeds)) if any(seeds) else ""
        row = [finding.what, printed, percent(found.value), interval, trained, finding.verdict]
        rows.append(row)
    if not rows:
        return []
    verdict = worst(findings)
    said = f"{claim.source} {claim.note}".rstrip() + (f" Here: **{verdict}**." if verdict else "")
    headers = ["comparison", "paper", "here", "interval", "seeds", ""]
    title = f"{'###' if claim.later else '##'} {claim.title}"
    return [title, said, markdown.table(headers, rows, left=1)]


def percent(value: float) -> str:
    """One decimal; two where it is small, none where it is large."""
    digits = 0 if abs(value) >= 1 else 1 if abs(value) >= 0.01 else 2
    return f"{100 * value:+,.{digits}f} %"


def draw_training(curves: Mapping, path: Path) -> None:
    """Validation perplexity by updates, a panel for each training length."""
    lines: dict[int, list[Line]] = {}
    for (method, length), curve in curves.items():
        updates = sorted(curve)
        perplexities = [2 ** statistics.fmean(curve[each]) for each in updates]
        line = Line(method_name(method), updates, perplexities, method_look(method))
        lines.setdefault(length, []).append(line)
    panels = [
        Panel(f"trained at {length}", found, "Updates", over_length=False)
        for length, found in sorted(lines.items())
    ]
    title = "Validation perplexity in training, mean over the seeds"
    draw(title, panels, path, path.with_suffix(".svg"))
