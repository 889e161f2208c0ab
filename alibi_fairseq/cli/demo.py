"""``alibi-fairseq demo``: what ``scripts/demo.sh`` runs once the environment is there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .experiment_options import ExperimentOptions, names
from .options import option


@dataclass(kw_only=True)
class Demo(ExperimentOptions):
    """The demonstration."""

    text: Path | None = option(
        "text file or folder to use (default: the documentation of Python)", None
    )
    quick: bool = option("a short run that shows every step", False)
    methods: list[str] = option(
        "position methods, or 'all'", "alibi,sinusoidal", type=names, metavar="A,B,…"
    )
    out: Path | None = option("output folder (default: runs/demo, or runs/demo-quick)", None)
    results: Path | None = option("folder for table and figure (default: --out)", None)

    def __call__(self) -> int:
        from ..experiments.demonstration import Demonstration, comparison_of

        out = self.out or Path("runs/demo-quick" if self.quick else "runs/demo")
        comparison = comparison_of(self.text, self.methods, self.quick, out)
        command = ["./scripts/demo.sh", *self.arguments[1:]]
        return self.run_experiment(
            Demonstration(comparison, out, self.parallel, self.results, command, quick=self.quick)
        )
