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
from .options import names, option, option_group

#: Pydantic fields of a comparison and of a corpus, by name.
FIELDS = ComparisonConfig.__pydantic_fields__ | CorpusConfig.__pydantic_fields__  # type: ignore[attr-defined]
#: Fields that are options, with the placeholder of their values, by heading in the help.
GROUPS = {
    "text": {"tokenizer": "NAME", "vocabulary": "N"},
    "models": {"methods": "A,B,…", "train_lengths": "L,…", "seeds": "N,…", "arch": "NAME"},
    "training": {
        "updates": "N",
        "tokens_per_update": "N",
        "lr": "X,…",
        "lr_schedule": "NAME",
        "tune_share": "X",
        "train_flags": "FLAGS",
    },
    "evaluation": {
        "eval_lengths": "L,…",
        "strides": "S,…",
        "subset": "SPLIT",
        "per_document": "KIND",
        "score_from": "N",
        "score_to": "M",
    },
    "output": {"title": "TEXT"},
}
#: Fields that describe the corpus; all others describe the comparison.
CORPUS_FIELDS = ("tokenizer", "vocabulary")


def option_flags() -> dict[str, str]:
    """Return the flag of each field in :data:`GROUPS`."""
    flags = {}
    for fields in GROUPS.values():
        for name in fields:
            flags[name] = "--" + name.replace("_", "-")
    flags["vocabulary"] = "--vocab-size"
    return flags


OPTIONS = option_flags()


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
        metavar="TEXT|DATA|YAML",
        group="text",
    )
    probes: list[str] = option(
        f"synthetic tasks to train on: {', '.join(PROBES)}; tested at "
        f"{', '.join(map(str, MULTIPLES))} times the training length; accuracies at 1 and 4 times "
        "are columns next to perplexities",
        (),
        type=names,
        metavar="A,B,…",
        group="text",
    )
    speeds: bool = option(
        "measure the speed of training and evaluation at the end, relative to sinusoidal, "
        "on an idle machine",
        False,
        group="evaluation",
    )
    out: Path = option("output folder", required=True, metavar="FOLDER", group="output")
    user_dir: str | None = None
    given: dict = field(default_factory=dict)

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        for title in GROUPS:
            option_group(parser, title)  # in this order
        super().add_arguments(parser)
        for title, fields in GROUPS.items():
            for name, metavar in fields.items():
                add_option(option_group(parser, title), name, metavar)

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
        experiment.check_training_options()
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
            if name in CORPUS_FIELDS:
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
            values: values of the options in :data:`CORPUS_FIELDS` that were passed.
        """
        first = Path(self.sources[0])
        if not (first / "dict.txt").is_file():
            name = first.resolve().name.split(".")[0]
            return {"name": name, "text": self.sources, **values}
        if len(self.sources) > 1:
            raise UserInputError(f"{first} is binary data already. Give it alone.")
        if values:
            flags = ", ".join(OPTIONS[name] for name in values)
            raise UserInputError(f"{first} is binary data already. Give it without {flags}.")
        name = first.parent.name if first.name == "data-bin" else first.name
        return {"name": name or "data", "data": str(first)}


def add_option(group: argparse._ActionsContainer, name: str, metavar: str) -> None:
    """Add the option of a field, with its description and default as help."""
    default = FIELDS[name].default
    help_default = default or "none"
    value_type: Callable = str
    if isinstance(default, tuple) and default:
        help_default = ",".join(map(str, default))
        value_type = names
    group.add_argument(
        OPTIONS[name],
        dest=name,
        type=value_type,
        metavar=metavar,
        help=f"{FIELDS[name].description} (default: {help_default})",
    )
