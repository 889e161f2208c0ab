"""``alibi-fairseq compare``: position methods on your own text, or on synthetic sequences."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..compare.comparison_config import ComparisonConfig, CorpusConfig, from_mapping, load
from ..data.probes import MULTIPLES, PROBES
from ..errors import UserInputError, did_you_mean
from .experiments import ExperimentOptions
from .options import names, option

FIELDS = ComparisonConfig.__pydantic_fields__ | CorpusConfig.__pydantic_fields__  # type: ignore[attr-defined]
#: Fields of a text that are options, and fields of a comparison.
TEXT = {"tokenizer": "--tokenizer", "vocabulary": "--vocab-size"}
OPTIONS = {
    name: "--" + name.replace("_", "-")
    for name in (
        *("methods", "train_lengths", "eval_lengths", "seeds", "strides", "score_from", "score_to"),
        *("per_document", "arch", "updates", "hours", "tokens_per_update", "lr", "tune_share"),
        *("train_flags", "subset", "title"),
    )
}


@dataclass(kw_only=True)
class CompareCommand(ExperimentOptions):
    """Methods on a text, on probes, or on what a YAML file describes."""

    sources: list[str] = option(
        "text files or folders; or a folder of fairseq's binary data; or a YAML file that "
        "describes the comparison (docs/experiments.md); nothing with --probes copy",
        nargs="*",
        metavar="TEXT|DATA_BIN|YAML",
    )
    probes: list[str] = option(
        f"train models on {' or '.join(PROBES)}, and show how they do at "
        f"{', '.join(map(str, MULTIPLES))} L, of which 1 and 4 L stand beside perplexities",
        (),
        type=names,
        metavar="A,B,…",
    )
    speeds: bool = option(
        "at the end time training and evaluation of all models in turns, relative to sinusoidal; "
        "nothing else should run then",
        False,
    )
    out: Path = option("for everything that is made", required=True, metavar="FOLDER")
    user_dir: str | None = None
    given: dict = field(default_factory=dict)  # fields of the comparison and of its text

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        for name, flag in {**OPTIONS, **TEXT}.items():
            default = FIELDS[name].default
            several = isinstance(default, tuple) and default != ()
            shown = ",".join(map(str, default)) if several else default or "none"
            parser.add_argument(
                flag,
                dest=name,
                type=names if several else str,
                metavar="A,B,…" if several else "N" if isinstance(default, float | int) else "X",
                help=f"{FIELDS[name].description} (default: {shown})",
            )

    @classmethod
    def run(cls, args: argparse.Namespace) -> int | None:
        fields = {name: getattr(args, name) for name in (*OPTIONS, *TEXT)}
        args.given = {name: value for name, value in fields.items() if value is not None}
        return super().run(args)

    def __call__(self) -> int:
        from fairseq.models import ARCH_MODEL_REGISTRY

        from ..compare.experiment import ComparisonExperiment

        comparison = self.comparison()
        if not comparison.arch.startswith("alibi_lm") or comparison.arch not in ARCH_MODEL_REGISTRY:
            known = [name for name in ARCH_MODEL_REGISTRY if name.startswith("alibi_lm")]
            raise UserInputError(
                f"--arch: there is no model '{comparison.arch}'."
                f"{did_you_mean(comparison.arch, known)} `alibi-fairseq models` lists them."
            )
        if self.slurm and (self.speeds or comparison.hours):
            raise UserInputError(
                "--hours and --speeds measure the machine they run on; leave them out with --slurm."
            )
        experiment = ComparisonExperiment(comparison, self.out, self.parallel, self.speeds)
        return self.run_experiment(experiment)

    def comparison(self) -> ComparisonConfig:
        """What the options or the YAML file describe."""
        if any(source.endswith((".yaml", ".yml")) for source in self.sources):
            if len(self.sources) > 1 or self.probes or self.given:
                raise UserInputError(
                    f"{self.sources[0]} describes all; change it there and give it alone."
                )
            return replace(load(self.sources[0]), user_dir=self.user_dir)
        values = {"title": "Accuracy of probes"} if self.probes and not self.sources else {}
        values |= self.given
        text = {name: values.pop(name) for name in TEXT if name in values}
        corpora, filling = [], {}
        if self.sources:
            corpora.append(corpus := self.corpus(text))
            made = str(self.out / corpus["name"] / "data-bin")
            filling = {"data": corpus.get("data", made)}
        for name in self.probes:
            in_text = name in PROBES and PROBES[name].in_text
            corpora.append({"name": name, "probe": name, **(filling if in_text else {})})
        if not corpora:
            raise UserInputError("Give a text, or --probes copy.")
        described = {**values, "corpora": corpora, "user_dir": self.user_dir}
        return from_mapping(described, flags=OPTIONS | TEXT)

    def corpus(self, text: dict) -> dict:
        """What a description says of the texts, or of the folder of binary data."""
        first = Path(self.sources[0])
        if (first / "dict.txt").is_file():
            if len(self.sources) > 1 or text:
                raise UserInputError(
                    f"{first} is binary data already; give it alone and without {text}."
                )
            name = first.parent.name if first.name == "data-bin" else first.name
            return {"name": name or "data", "data": str(first)}
        return {"name": first.resolve().name.split(".")[0], "text": self.sources, **text}
