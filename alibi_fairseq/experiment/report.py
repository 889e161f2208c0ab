"""Report of a comparison: tables, figures, and results files."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..files import atomic_write
from ..reporting import markdown
from ..reporting.differences import difference_sections
from ..reporting.figures_by_length import draw_lengths
from ..reporting.figures_by_position import draw_positions, drawable
from ..reporting.figures_of_probes import draw_heat_maps
from ..reporting.perplexity_by_length import length_table
from ..reporting.probes import accuracy_table, area_table
from ..reporting.table import Column, Table
from ..reporting.training_costs import cost_table, read_training_cost
from ..results.file import Results, load, load_training, results_json, save
from ..results.file_names import REPORT_FILES, RESULTS_FILE, read_report_files
from ..results.provenance import merge_provenance, own_command
from ..results.result import Result, distinct
from ..results.values import ProbeValues
from .plan import Plan, label_of_model
from .rate_choice import Choice
from .run import Run
from .schema import DEFAULT_TITLE, ExperimentConfig, Model


@dataclass(frozen=True)
class ComparisonReport:
    """Report of a comparison on its complete runs, of which there is one at least.

    Attributes:
        config: what is compared.
        folder: output folder.
        plan: runs of the comparison.
    """

    config: ExperimentConfig
    folder: Path
    plan: Plan

    def write(self) -> list[Path]:
        """Write ``table.md``, and a results file and figures per corpus. Return their paths.

        The figures are perplexity by evaluation length and loss by position, or heat maps of a
        probe. With several corpora, file names start with the corpus. Models whose runs are not
        complete are listed.
        """
        results_by_corpus = {}
        for corpus, runs in self._runs_by_corpus().items():
            results_by_corpus[corpus] = self._save_results(corpus, runs).results
        seeds = dict.fromkeys(self._model(run).seed for run in self.plan.complete)
        sections = [f"# {self.config.title}", training_summary(self.plan.complete, list(seeds))]
        if self.plan.unfinished:
            sections.append(self._describe_incomplete())
        files = [self.folder / "table.md"]
        for corpus, results in results_by_corpus.items():
            if self._has_several_corpora:
                sections.append(f"## {corpus}")
            sections += build_tables(results)
            files += self._draw_figures(corpus, results)
        choices = self.plan.choices
        for choice in choices:
            choice.record()  # also of runs that were trained before their trials
        if choices:
            sections.append(choice_table(choices))
        costs = []
        for run in self.plan.complete:
            costs.append(read_training_cost(self._label(run), run.folder))
        sections.append(cost_table(costs))
        with atomic_write(self.folder / "table.md") as file:
            file.write("\n\n".join(sections) + "\n")
        self._record_files(files)
        return files

    def _record_files(self, files: Iterable[Path]) -> None:
        """Record the files of the report, after deleting files that only an earlier report had."""
        names = sorted(file.name for file in files)
        for name in read_report_files(self.folder):
            if name not in names:
                (self.folder / name).unlink(missing_ok=True)
        with atomic_write(self.folder / REPORT_FILES) as file:
            json.dump(names, file, indent=1)

    def _draw_figures(self, corpus: str, results: Sequence[Result]) -> list[Path]:
        """Draw the figures of a corpus.

        Returns:
            The paths of the figures and of the results file, to be printed.
        """
        figures = self._figure_paths(corpus, "figure")
        files = [*figures, self._path(corpus, RESULTS_FILE)]
        if is_probe(results):
            draw_heat_maps(results, f"Accuracy of the probe: {corpus}", *figures)
            return files
        title = self.config.title
        if self._has_several_corpora:
            title += f": {corpus}"
        draw_lengths(results, title, *figures)
        if drawable(results):
            position_figures = self._figure_paths(corpus, "loss-by-position")
            # The default title names the other figure.
            position_title = title.replace(DEFAULT_TITLE, "Loss by position")
            if position_title == title:
                position_title = f"{title}: loss by position"
            draw_positions(results, position_title, *position_figures)
            files += position_figures
        return files

    def _describe_incomplete(self) -> str:
        """Return a list of the models that the tables lack, with the reasons."""
        lines = ["**Not in the tables,** because these runs failed:\n"]
        for run in self.plan.unfinished:
            label = self._label(run)
            if len(self.config.seeds) > 1:
                label += f", seed {self._model(run).seed}"
            first = self.plan.find(run.after[0]) if run.after else run  # a trial that failed
            lines.append(f"- {label}: {first.why_incomplete()}")
        return "\n".join(lines)

    def _runs_by_corpus(self) -> dict[str, list[Run]]:
        """Group runs by the corpus that they are trained on."""
        runs: dict[str, list[Run]] = {}
        for run in self.plan.complete:
            runs.setdefault(self._model(run).corpus.name, []).append(run)
        return runs

    def _model(self, run: Run) -> Model:
        """Return the model that a run trains."""
        return self.plan.models[run.name]

    def _label(self, run: Run) -> str:
        """Return the name of a run's model in tables."""
        return label_of_model(self.config, self._model(run))

    @property
    def _has_several_corpora(self) -> bool:
        return len(self.config.corpora) > 1

    def _path(self, corpus: str, name: str) -> Path:
        """Return the path of a file of the report."""
        if self._has_several_corpora:
            name = f"{corpus.replace(' ', '-')}-{name}"
        return self.folder / name

    def _figure_paths(self, corpus: str, name: str) -> list[Path]:
        """Return the paths of a figure, one per format."""
        formats = ("png", "svg", "pdf")
        return [self._path(corpus, f"{name}.{suffix}") for suffix in formats]

    def _save_results(self, corpus: str, runs: Iterable[Run]) -> Results:
        """Write the results file of a corpus, and return its contents."""
        path = self._path(corpus, RESULTS_FILE)
        results = merge_results(self.config, runs)
        if path.is_file():
            existing = load(path)
            if results_json(existing.results) == results_json(results.results):
                results = existing  # keep the provenance of the measurements
        save(results, path)
        return results


def is_probe(results: Sequence[Result]) -> bool:
    """Return True if results are accuracies of a probe."""
    return isinstance(results[0].values, ProbeValues)


def build_tables(results: Sequence[Result]) -> list[str]:
    """Return the tables of all models on a text or a probe."""
    if is_probe(results):
        accuracies = markdown.to_markdown([accuracy_table(results)])
        areas = markdown.to_markdown([area_table(results)])
        return [accuracies.rstrip(), areas.rstrip()]
    return [length_table(results).rstrip(), *difference_sections(results)]


def choice_table(choices: Iterable[Choice]) -> str:
    """Return validation perplexity by learning rate as Markdown."""
    by_path = {choice.marker.path: choice for choice in choices}  # all seeds of a model have one
    rates: set[float] = set()
    update_counts: dict[str, None] = {}
    at_edge = []
    for choice in by_path.values():
        rates.update(choice.results)
        update_counts[f"{choice.updates:,}"] = None
        if choice.is_at_edge:
            at_edge.append(choice.label)
    updates = " or ".join(update_counts)
    columns = [Column[Choice]("", lambda choice: choice.label)]
    for rate in sorted(rates):
        columns.append(Column(f"{rate:g}", partial(_perplexity_at, rate)))
    columns.append(Column("chosen", lambda choice: f"{choice.lr:g}"))
    paragraphs = [
        f"Learning rates, chosen by validation perplexity after {updates} updates:",
        markdown.to_markdown([Table(columns, list(by_path.values()))]).rstrip(),
    ]
    if at_edge:
        models = ", ".join(at_edge)
        paragraphs.append(f"Best at the edge of the grid, so others may be better: {models}.")
    return "\n\n".join(paragraphs)


def _perplexity_at(rate: float, choice: Choice) -> str:
    """Return the perplexity of the trial at a rate."""
    losses = {lr: result.loss_bits for lr, result in choice.results.items()}
    return trial_cell(losses, rate)


def trial_cell(losses: Mapping[float, float | None], rate: float) -> str:
    """Return the perplexity of the trial at a rate; a dash if it was not tried.

    Args:
        losses: lowest loss by rate, in bits per token; None if the trial diverged.
    """
    if rate not in losses:
        return markdown.NOTHING
    loss = losses[rate]
    return "diverged" if loss is None else markdown.perplexity(2**loss)


def training_summary(runs: Iterable[Run], seeds: Sequence[int]) -> str:
    """Return a sentence about the training that the conditions of the tables do not state.

    It says how many tokens were read. The last update of each pass over the text has fewer.
    """
    read_tokens = [trained_tokens(run) for run in runs]
    fewest = min(read_tokens)
    most = max(read_tokens)
    tokens = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
    unit = "seeds" if len(seeds) > 1 else "seed"
    return f"Each model was trained on {tokens} tokens; {unit} {', '.join(map(str, seeds))}."


def trained_tokens(run: Run) -> int:
    """Return the number of tokens that a finished training has read."""
    return load_training(run.folder).results[-1].cost.trained_tokens or 0


def merge_results(config: ExperimentConfig, runs: Iterable[Run]) -> Results:
    """Return the results of runs on the same data.

    It has the provenance of the evaluations, but the command of this process.
    """
    results: list[Result] = []
    origins = []
    for run in runs:
        for step in run.eval_steps:
            of_step = step.load_results()
            results += of_step.results
            assert of_step.provenance is not None, "the evaluation recorded it"
            origins.append(of_step.provenance)
    provenance = merge_provenance(origins)
    seed = config.seeds[0] if len(config.seeds) == 1 else None
    changes = {"command": shlex.join(own_command()), "seed": seed}
    provenance = provenance.model_copy(update=changes)
    return Results(distinct(results), provenance)
