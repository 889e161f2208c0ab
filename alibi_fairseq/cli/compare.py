"""Command ``alibi-fairseq compare``: position methods on a text or on synthetic sequences."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..compare.comparison_config import ComparisonConfig, CorpusConfig, from_mapping, load
from ..data.probes import MULTIPLES, PROBES
from ..errors import UserInputError, did_you_mean
from .experiments import ExperimentOptions
from .options import names, option

#: Pydantic fields of a comparison and of a corpus, by name.
FIELDS = ComparisonConfig.__pydantic_fields__ | CorpusConfig.__pydantic_fields__  # type: ignore[attr-defined]
#: Options by field of the corpus.
CORPUS_OPTIONS = {"tokenizer": "--tokenizer", "vocabulary": "--vocab-size"}
#: Options by field of the comparison.
COMPARISON_OPTIONS = {
    name: "--" + name.replace("_", "-")
    for name in (
        *("methods", "train_lengths", "eval_lengths", "seeds", "strides", "score_from", "score_to"),
        *("per_document", "arch", "updates", "tokens_per_update", "lr", "tune_share"),
        *("train_flags", "subset", "title"),
    )
}
OPTIONS = COMPARISON_OPTIONS | CORPUS_OPTIONS


@dataclass(kw_only=True)
class CompareCommand(ExperimentOptions):
    """Comparison of position methods on a text, on probes, or as described by a YAML file.

    Attributes:
        given: values of the options in :data:`OPTIONS` that were passed, by field.
    """

    sources: list[str] = option(
        "text files or folders; a folder of fairseq's binary data; a YAML file that describes the "
        "comparison (docs/experiments.md); or nothing, with --probes copy",
        nargs="*",
        metavar="TEXT|DATA_BIN|YAML",
    )
    probes: list[str] = option(
        f"synthetic tasks to train on: {', '.join(PROBES)}; tested at "
        f"{', '.join(map(str, MULTIPLES))} times the training length; accuracies at 1 and 4 times "
        "are columns next to perplexities",
        (),
        type=names,
        metavar="A,B,…",
    )
    speeds: bool = option(
        "time training and evaluation of all models at the end, relative to sinusoidal, on an idle "
        "machine",
        False,
    )
    out: Path = option("output directory", required=True, metavar="FOLDER")
    user_dir: str | None = None
    given: dict = field(default_factory=dict)

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        for name, flag in OPTIONS.items():
            add_option(parser, name, flag)

    @classmethod
    def run(cls, args: argparse.Namespace) -> int | None:
        fields = {name: getattr(args, name) for name in OPTIONS}
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
        if self.slurm and self.speeds:
            raise UserInputError("--speeds cannot be combined with --slurm. Omit --speeds.")
        experiment = ComparisonExperiment(comparison, self.out, self.speeds)
        return self.run_experiment(experiment)

    def comparison(self) -> ComparisonConfig:
        """Return the comparison that the YAML file or the options describe."""
        if any(source.endswith((".yaml", ".yml")) for source in self.sources):
            path = self.sources[0]
            if len(self.sources) > 1 or self.probes or self.given:
                raise UserInputError(
                    f"{path} cannot be combined with other options. Edit it instead, and give it "
                    "alone."
                )
            return replace(load(path), user_dir=self.user_dir)

        corpus_values: dict = {}
        values: dict = {}
        if self.probes and not self.sources:
            values["title"] = "Accuracy of probes"
        for name, value in self.given.items():
            if name in CORPUS_OPTIONS:
                corpus_values[name] = value
            else:
                values[name] = value

        corpora: list[dict] = []
        filler: dict = {}
        if self.sources:
            corpus = self.corpus(corpus_values)
            corpora.append(corpus)
            prepared = str(self.out / corpus["name"] / "data-bin")
            filler["data"] = corpus.get("data", prepared)
        for name in self.probes:
            probe = {"name": name, "probe": name}
            if name in PROBES and PROBES[name].in_text:
                probe.update(filler)
            corpora.append(probe)
        if not corpora:
            raise UserInputError("No text to compare on. Give a text, or pass --probes copy.")
        values.update(corpora=corpora, user_dir=self.user_dir)
        return from_mapping(values, flags=OPTIONS)

    def corpus(self, values: dict) -> dict:
        """Return the corpus of the texts or of the folder of binary data, as plain values.

        Args:
            values: values of the options in :data:`CORPUS_OPTIONS` that were passed.
        """
        first = Path(self.sources[0])
        if not (first / "dict.txt").is_file():
            name = first.resolve().name.split(".")[0]
            return {"name": name, "text": self.sources, **values}
        if len(self.sources) > 1:
            raise UserInputError(f"{first} is binary data already. Give it alone.")
        if values:
            flags = ", ".join(CORPUS_OPTIONS[name] for name in values)
            raise UserInputError(f"{first} is binary data already. Give it without {flags}.")
        name = first.parent.name if first.name == "data-bin" else first.name
        return {"name": name or "data", "data": str(first)}


def add_option(parser: argparse.ArgumentParser, name: str, flag: str) -> None:
    """Add the option of a field, with its description and default as help."""
    default = FIELDS[name].default
    help_default = default or "none"
    type_: Callable = str
    metavar = "X"
    if isinstance(default, float | int):
        metavar = "N"
    if isinstance(default, tuple) and default:
        help_default = ",".join(map(str, default))
        type_ = names
        metavar = "A,B,…"
    parser.add_argument(
        flag,
        dest=name,
        type=type_,
        metavar=metavar,
        help=f"{FIELDS[name].description} (default: {help_default})",
    )
