"""Experiment of ``alibi-fairseq compare``: the data, the plan, and the report."""

from __future__ import annotations

import glob
import itertools
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from ..results.data_folder import DataFolder
from ..results.file_names import COMPARISON_FILE, TRAINING_FILE
from .config_files import save_config
from .corpora import (
    check_same_dictionary,
    check_split,
    describe_corpus,
    is_prepared,
    prepare_corpora,
    text_folder,
)
from .plan import Plan, model_name, plan_from_folder
from .run import Run
from .runner import Experiment
from .schema import Corpus, Evaluation, ExperimentConfig


@dataclass(frozen=True)
class Comparison(Experiment):
    """Comparison as an :class:`.runner.Experiment`.

    Attributes:
        config: what is compared.
        folder: output folder.
    """

    config: ExperimentConfig
    folder: Path

    @property
    def prepared(self) -> bool:
        lengths = self.config.train_lengths
        return all(is_prepared(corpus, lengths, self.folder) for corpus in self.config.corpora)

    def prepare(self) -> None:
        """Prepare the data, and write the configuration.

        Raises:
            UserInputError: a text cannot be prepared, or has no split, documents, or range to
                evaluate on, or the folder of a run has a training with different settings.
        """
        in_documents = self._splits_in_documents()
        prepare_corpora(self.config.corpora, self.config.train_lengths, self.folder, in_documents)
        for corpus in self.config.corpora:
            print(describe_corpus(corpus, self.folder))
        for group in self.config.models:
            corpora = self.config.select_corpora(group)
            texts = [corpus for corpus in corpora if not corpus.probe]
            if group.also_on:
                check_same_dictionary(texts, self.folder)
            for evaluation, corpus in itertools.product(group.evaluations, texts):
                self._check_text(evaluation, corpus)
        for run in self.plan().runs:
            if not run.after:  # until then, its learning rate is not known
                run.check_request()
        save_config(self.config, self.folder / COMPARISON_FILE)

    def _splits_in_documents(self) -> dict[str, set[str]]:
        """Return the splits whose documents are evaluated, by name of the corpus.

        They are those separated by empty lines. Titles are only known in tokens.
        """
        splits: dict[str, set[str]] = defaultdict(set)
        for group in self.config.models:
            corpora = self.config.select_corpora(group)
            for evaluation, corpus in itertools.product(group.evaluations, corpora):
                if evaluation.per_document == "empty-lines":
                    splits[corpus.name].add(evaluation.subset)
        return splits

    def _check_text(self, evaluation: Evaluation, corpus: Corpus) -> None:
        """Check that a text has the split, the documents, and the range of an evaluation.

        Raises:
            UserInputError: it has not.
        """
        check_split(corpus, evaluation.subset, self.folder)
        config = evaluation.sweep_config(self.config.train_lengths[0])
        if not config.has_scored_range and config.per_document is None:
            return
        from ..evaluation.text_evaluator import TextEvaluator  # imports PyTorch and fairseq

        TextEvaluator.of_folder(config, DataFolder.open(text_folder(corpus, self.folder)))

    def plan(self) -> Plan:
        return plan_from_folder(self.config, self.folder)

    def repeated_runs(self) -> list[str]:
        """Return a sentence per model that is trained again because its plugin was edited."""
        if not self.prepared:
            return []
        return describe_repeated_runs(self.plan())

    def report(self) -> None:
        """Write the report, and print its table."""
        from .report import ComparisonReport  # imports matplotlib

        files = ComparisonReport(self.config, self.folder, self.plan()).write()
        table = (self.folder / "table.md").read_text(encoding="utf-8")
        print(f"\n\n{table}")
        print(*files, sep="\n")


def describe_repeated_runs(plan: Plan) -> list[str]:
    """Return a sentence per model that is trained again because its plugin was edited.

    Args:
        plan: runs on prepared data.
    """
    repeated: dict[str, dict[str, None]] = defaultdict(dict)
    earlier: dict[str, set[str]] = defaultdict(set)
    for run in plan.unfinished:
        name = model_name(plan.models[run.name])
        for unfinished in (*map(plan.find, run.after), run):
            versions = _earlier_versions(unfinished)
            if versions:
                repeated[name][unfinished.name] = None
                earlier[name] |= versions
    sentences = []
    for name, runs in repeated.items():
        plural = "" if len(runs) == 1 else "s"
        sentences.append(
            f"{name}: the plugin was edited, so {len(runs)} run{plural} of an earlier version "
            f"({', '.join(sorted(earlier[name]))}) will be repeated."
        )
    return sentences


def _earlier_versions(run: Run) -> set[str]:
    """Return the first digits of the hashes of other plugin versions with the same training."""
    plugin = run.plugin
    if not plugin:
        return set()
    start, _, end = run.folder.name.partition(plugin[:8])
    versions = set()
    for folder in run.folder.parent.glob(f"{glob.escape(start)}????????{glob.escape(end)}"):
        version = folder.name[len(start) : len(start) + 8]
        if version != plugin[:8] and (folder / TRAINING_FILE).is_file():
            versions.add(version)
    return versions
