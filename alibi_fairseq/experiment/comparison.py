"""Experiment of ``alibi-fairseq compare``: the data, the runs, and the report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from ..evaluation.config import SweepConfig
from ..files import atomic_write
from ..results.data_folder import DataFolder
from ..results.files import COMPARISON_FILE
from .comparison_config import ComparisonConfig
from .comparison_runs import edited_models, list_runs
from .config_files import as_mapping
from .corpora import (
    check_split,
    describe_corpus,
    is_prepared,
    prepare_corpora,
    text_folder,
)
from .run import Run
from .runner import Experiment


@dataclass(frozen=True)
class ComparisonExperiment(Experiment):
    """Comparison as an :class:`.runner.Experiment`.

    Attributes:
        comparison: configuration.
        folder: output folder.
    """

    comparison: ComparisonConfig
    folder: Path

    @property
    def prepared(self) -> bool:
        lengths = self.comparison.train_lengths
        corpora = self.comparison.corpora
        return all(is_prepared(corpus, lengths, self.folder) for corpus in corpora)

    def prepare(self) -> None:
        """Prepare the data, and write the configuration.

        Raises:
            UserInputError: a text cannot be prepared, or has no split, documents, or range to
                evaluate on, or the folder of a run holds a training with other settings.
        """
        comparison = self.comparison
        prepare_corpora(comparison.corpora, comparison.train_lengths, self.folder)
        for corpus in comparison.corpora:
            check_split(corpus, comparison.subset, self.folder)
            print(describe_corpus(corpus, self.folder))
        has_range = comparison.score_from is not None or comparison.score_to is not None
        if (comparison.per_document or has_range) and not self.is_complete:
            self._check_scored_tokens()
        for run in self.runs:
            if not run.unfinished_trials:  # until then, its learning rate is not known
                run.check_settings()
        with atomic_write(self.folder / COMPARISON_FILE) as file:
            yaml.safe_dump(as_mapping(comparison), file, sort_keys=False, allow_unicode=True)

    def _check_scored_tokens(self) -> None:
        """Check that each text has the documents and the range to evaluate on, before the training.

        Raises:
            UserInputError: it has not.
        """
        from ..evaluation.text_evaluator import TextEvaluator  # imports PyTorch and fairseq

        comparison = self.comparison
        config = SweepConfig(
            lengths=(comparison.train_lengths[0],),
            subsets=(comparison.subset,),
            per_document=comparison.per_document,
            score_from=comparison.score_from,
            score_to=comparison.score_to,
        )
        for corpus in comparison.corpora:
            if not corpus.probe:
                TextEvaluator.of_folder(config, DataFolder.open(text_folder(corpus, self.folder)))

    @property
    def runs(self) -> list[Run]:
        return [model.run for model in list_runs(self.comparison, self.folder)]

    @property
    def is_complete(self) -> bool:
        """True if the data is prepared and all runs are complete: no options are left to check."""
        return self.prepared and all(run.is_complete for run in self.runs)

    def edited_models(self) -> list[str]:
        """Return a sentence per model that is trained again because its plugin was edited."""
        if not self.prepared:
            return []
        return edited_models(list_runs(self.comparison, self.folder))

    def report(self) -> None:
        """Write the report, and print its table."""
        from .report import ComparisonReport  # imports matplotlib

        models = list_runs(self.comparison, self.folder)
        files = ComparisonReport(self.comparison, self.folder, models).write()
        table = (self.folder / "table.md").read_text(encoding="utf-8")
        print(f"\n\n{table}")
        print(*files, sep="\n")
