"""``alibi-fairseq compare``: a comparison carried out, with its tables, figures and results documents."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import yaml

from ..files import atomic_write
from ..reporting.perplexity_by_length import draw_lengths, length_table
from ..reporting.probes import accuracy_table, draw_heat_maps, probe_columns
from ..results.measurements import measurements_of
from ..results.provenance import collect_provenance
from ..results.schema import load_results_file, new_results_file, save_results_file
from ..runs.run import EvalStep
from ..runs.runner import Experiment
from ..runs.tuning import TunedRun, tuning_table
from .comparison_config import ComparisonConfig, as_mapping
from .comparison_runs import runs_of
from .corpus_preparation import is_prepared, prepare
from .timing import budget_of, speed_columns


@dataclass(frozen=True)
class ComparisonExperiment(Experiment):
    """A comparison as an :class:`.runner.Experiment`."""

    comparison: ComparisonConfig
    folder: Path
    parallel: int | None = None  # for which hours are planned
    speeds: bool = False

    folder_option = "--out"

    @property
    def prepared(self) -> bool:
        what = self.comparison
        return all(is_prepared(corpus, what.train_lengths, self.folder) for corpus in what.corpora)

    def prepare(self) -> None:
        """Write down what is compared, prepare the texts, and measure the machine for ``hours``."""
        with atomic_write(self.folder / "comparison.yaml") as file:
            yaml.safe_dump(as_mapping(self.comparison), file, sort_keys=False, allow_unicode=True)
        what = self.comparison
        prepare(what.corpora, what.train_lengths, what.shared_vocabulary, self.folder)
        if self.budget:
            print(self.budget["said"], flush=True)

    @property
    def runs(self) -> list[TunedRun]:
        return runs_of(self.resolved, self.folder)

    @property
    def resolved(self) -> ComparisonConfig:
        """The comparison, once the data is there with the updates that fit into its hours."""
        if not self.budget:
            return self.comparison
        return replace(self.comparison, hours=None, updates=self.budget["updates"])

    @cached_property
    def budget(self) -> dict | None:
        """The updates that fit into the hours, once the data is there."""
        if self.comparison.hours is None or not self.prepared:
            return None
        return budget_of(self, self.comparison, self.parallel)

    def report(self) -> None:
        """Write ``table.md``, and per corpus ``results.json`` and a figure.

        With several corpora the names of the latter begin with that of the corpus. Accuracies of
        probes also stand beside the perplexities of the other corpora.
        """
        what, runs, several = self.resolved, self.runs, len(self.comparison.corpora) > 1
        sections, files = [f"# {what.title}", trained(what)], [self.folder / "table.md"]
        documents: dict[str, tuple[Path, dict]] = {}
        columns = dict(speed_columns(what, self.folder)) if self.speeds else {}
        for corpus, evaluations in evaluations_of(runs).items():
            name = f"{corpus.replace(' ', '-')}-results.json" if several else "results.json"
            path, document = self.folder / name, document_of(what, evaluations)
            if path.is_file() and (kept := load_results_file(path))["cells"] == document["cells"]:
                document = kept  # nothing was measured again
            save_results_file(document, path)
            documents[corpus] = path, document
            if document["kind"] == "probe":
                columns |= probe_columns(corpus, document["cells"])
        for corpus, (path, document) in documents.items():
            name = path.name.replace("results.json", "figure")
            figures = [self.folder / f"{name}.{kind}" for kind in ("png", "svg", "pdf")]
            files += [*figures, path]
            sections += [f"## {corpus}"] if several else []
            if document["kind"] == "probe":
                sections.append(accuracy_table(document["cells"]).rstrip())
                draw_heat_maps(document["cells"], f"Accuracy of the probe: {corpus}", *figures)
                continue
            points = measurements_of(document)
            sections.append(length_table(points, columns).rstrip())
            draw_lengths(points, f"{what.title}: {corpus}" if several else what.title, *figures)
        sections += [self.budget["said"]] if self.budget else []
        sections += filter(None, [tuning_table(runs)])
        with atomic_write(self.folder / "table.md") as file:
            file.write("\n\n".join(sections) + "\n")
        print("", *sections, sep="\n\n", end="\n\n")
        print(*files, sep="\n")

    def notes(self) -> list[str]:
        hours = self.resolved.hours
        if hours is None:
            return []
        return [f"# --hours {hours:g} will set --max-update once the data is prepared.", ""]


def trained(comparison: ComparisonConfig) -> str:
    """The training of each model in a sentence."""
    plural = "s" if len(comparison.seeds) > 1 else ""
    return (
        f"Each model ({comparison.arch}) was trained on {comparison.tokens:,} tokens: {comparison.updates:,} "
        f"updates of {comparison.tokens_per_update:,}; seed{plural} "
        f"{', '.join(map(str, comparison.seeds))}."
    )


def evaluations_of(runs: list[TunedRun]) -> dict[str, list[tuple[TunedRun, EvalStep]]]:
    """The evaluations by what was trained on, and where it was another, tested on."""
    found: dict[str, list[tuple[TunedRun, EvalStep]]] = {}
    for run in runs:
        for each in run.evaluations:
            other = f" {each.name}" if each.data else ""
            found.setdefault(f"{run.name.partition('/')[0]}{other}", []).append((run, each))
    return found


def document_of(comparison: ComparisonConfig, evaluations: list[tuple[TunedRun, EvalStep]]) -> dict:
    """The results of evaluations on the same data as one document."""
    documents = [each.load_results() for _, each in evaluations]
    kind = documents[0]["kind"]
    run, first = evaluations[0]
    provenance = collect_provenance(
        seconds=math.fsum(document["provenance"]["seconds"] for document in documents),
        seed=comparison.seeds[0] if len(comparison.seeds) == 1 else None,
        data=first.data or run.data,
        subsets=["train"] if kind == "probe" else ["train", comparison.subset],
    )
    cells = [cell for document in documents for cell in document["cells"]]
    return new_results_file(kind, documents[0]["corpus"], provenance, cells)
