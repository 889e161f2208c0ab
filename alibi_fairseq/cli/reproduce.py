"""``alibi-fairseq reproduce``: a table or figure of the paper, from the text to the report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import BadInput
from ..paper.recipe import CORPORA, SCALES
from .experiments import ExperimentOptions, corpus_option, corpus_paths
from .options import option


@dataclass(kw_only=True)
class Reproduce(ExperimentOptions):
    """A table or figure of the paper."""

    name: str = option("e.g. table5, figure1", metavar="TABLE|FIGURE|all")
    corpus: list[str] = corpus_option(
        "text of wikitext-103, bookcorpus or cc100-roberta: a file or a folder"
    )
    allow_other_text: bool = option(
        "accept texts that are not the paper's, under their own names", False
    )
    scale: str = option(
        "; ".join(f"{name}: {scale.caveat}" for name, scale in SCALES.items()),
        "paper",
        choices=list(SCALES),
    )
    gpus: int | None = option("of each run (default: all; smoke: none)", None)
    cpu: int | None = option("N processes on the CPU instead", None, metavar="N")
    work_dir: Path = option(
        "for everything, with a folder per scale", Path("runs/reproduce"), metavar="FOLDER"
    )

    def __call__(self) -> int:
        from ..experiments.paper_data import Data
        from ..experiments.paper_tables import PaperTables
        from ..paper import tables

        items = tables.find_items(self.name)
        trainings = tables.trainings_for(items)
        paths = corpus_paths(self.corpus, CORPORA)
        needed = dict.fromkeys(training.recipe.corpus for training in trainings)
        missing = [name for name in needed if name not in paths]
        if missing and not self.dry_run:
            flags = " ".join(f"--corpus {name}=PATH" for name in missing)
            raise BadInput(
                f"The text of {' and '.join(missing)} is needed; give it with {flags} "
                f"(data-prep/{missing[0]}/README.md says how to get it)."
            )
        folder, scale = self.work_dir / self.scale, SCALES[self.scale]
        data = {
            name: Data(folder / "data", name, paths.get(name), self.allow_other_text, scale)
            for name in needed
        }
        if self.slurm and self.gpus is None and self.cpu is None and self.scale != "smoke":
            raise BadInput("--slurm: what does each run get? Give --gpus N, or --cpu N processes.")
        overview = self.name == "all"
        return self.run_experiment(
            PaperTables(folder, items, trainings, data, scale, self.machine(), overview)
        )

    def machine(self):
        """The machine of one run; None for a dry run without --gpus or --cpu."""
        import torch

        from ..experiments.torchrun import Machine

        if self.cpu is not None and self.gpus is not None:
            raise BadInput("Choose one of --gpus and --cpu.")
        if self.cpu is not None:
            return Machine(self.cpu, cpu=True)
        if self.slurm or (self.job and not self.job.startswith("train")):
            return Machine(self.gpus or 1, cpu=self.gpus is None)  # trained elsewhere
        if self.gpus is None and self.scale == "smoke":
            return Machine(1, cpu=True)
        if self.dry_run:
            return Machine(self.gpus) if self.gpus is not None else None
        there = torch.cuda.device_count()
        if self.gpus is not None and self.gpus > there:
            raise BadInput(
                f"--gpus {self.gpus}, but there are {there} GPUs here; --cpu N needs none."
            )
        if self.scale == "mini" and self.gpus is None:
            return Machine(1, cpu=not there)
        if not there:
            raise BadInput("There is no GPU here; use --cpu N for N processes on the CPU.")
        return Machine(self.gpus or there)
