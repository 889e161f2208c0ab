"""``alibi-fairseq study``: tests the paper's claims with small models (docs/experiments.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .experiment_options import ExperimentOptions, corpus_option, corpus_paths
from .options import option


@dataclass(kw_only=True)
class StudyVerb(ExperimentOptions):
    """A study as its description lists it."""

    description: Path | None = option(
        "what to train and to evaluate (default: configs/study.yaml)", nargs="?", metavar="YAML"
    )
    corpus: list[str] = corpus_option(
        "text of one of the study's corpora, or a folder of binary data prepared from it; models "
        "on corpora that are not given are not trained"
    )
    cells: str = option(
        "only cells with such names, e.g. 'wikipedia-alibi-*'", "*", metavar="PATTERN"
    )
    work_dir: Path = option("for data and checkpoints", Path("runs/study"), metavar="FOLDER")
    results: Path = option(
        "of finished cells and the page; cells found there are done",
        Path("runs/study/results"),
        metavar="FOLDER",
    )

    def __call__(self) -> int:
        from ..experiments.study.study import Study, load

        description = load(self.description or Path("configs/study.yaml"))
        texts = corpus_paths(self.corpus, [corpus["name"] for corpus in description.corpora])
        study = Study(description, texts, self.work_dir, self.results, self.cells)
        return self.run_experiment(study)
