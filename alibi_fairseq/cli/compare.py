"""Command ``alibi-fairseq compare``: position methods on a text or on synthetic sequences."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from ..data.probes import MULTIPLES, PROBES
from ..errors import UserInputError
from ..experiment.comparison_config import ComparisonConfig, CorpusConfig
from ..experiment.config_files import from_mapping, load_config
from .experiments import ExperimentOptions
from .options import names, option, option_group, plugin_option

#: Pydantic fields of a comparison and of a corpus, by name.
FIELDS = {
    **ComparisonConfig.__pydantic_fields__,  # type: ignore[attr-defined]
    **CorpusConfig.__pydantic_fields__,  # type: ignore[attr-defined]
}
#: Fields that are options, by heading in the help, with the placeholder of their values. Without
#: one, the values are listed.
GROUPS: dict[str, dict[str, str | None]] = {
    "text": {"tokenizer": None, "vocabulary": "N"},
    "models": {"methods": "A,B,…", "train_lengths": "L,…", "seeds": "N,…", "arch": "NAME"},
    "training": {
        "updates": "N",
        "tokens_per_update": "N",
        "lr": "X,…",
        "lr_schedule": None,
        "tune_share": "X",
        "train_flags": "FLAGS",
    },
    "evaluation": {
        "eval_lengths": "L,…",
        "strides": "S,…",
        "subset": "SPLIT",
        "per_document": None,
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
    flags["eval_lengths"] = "--lengths"
    return flags


OPTIONS = option_flags()


@dataclass(kw_only=True)
class CompareCommand(ExperimentOptions):
    """Comparison of position methods on a text, on probes, or as described by a YAML file.

    Attributes:
        given: values of the options in :data:`OPTIONS` that were passed, by field.
    """

    sources: list[str] = option(
        "text files or folders; or a data folder (data-bin); or a YAML file that describes the "
        "comparison (docs/compare.md); or nothing, with --probes copy",
        nargs="*",
        metavar="TEXT|DATA|YAML",
        group="text",
    )
    probes: list[str] = option(
        f"synthetic tasks on which further models are trained: {', '.join(PROBES)}; tested at "
        f"{', '.join(map(str, MULTIPLES))} times the training length; the table also has the "
        "accuracies at 1 and 4 times",
        (),
        type=names,
        metavar="A,B,…",
        group="text",
    )
    out: Path = option("output folder", required=True, metavar="FOLDER", group="output")
    user_dir: str | None = plugin_option("models")
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
        args.given = {}
        for name in OPTIONS:
            value = getattr(args, name)
            if value is not None:
                args.given[name] = value
        return super().run(args)

    def __call__(self) -> int:
        from ..experiment.comparison import ComparisonExperiment

        comparison = self.comparison()
        comparison.check_method_keys(comparison.methods)
        experiment = ComparisonExperiment(comparison, self.out)
        if not experiment.is_complete:
            from ..experiment.training_options import check_training_options  # imports fairseq

            check_training_options(comparison, self.out)
            for sentence in experiment.edited_models():
                print(sentence)
        return self.run_experiment(experiment)

    def comparison(self) -> ComparisonConfig:
        """Return the comparison that the YAML file or the options describe."""
        if any(source.endswith((".yaml", ".yml")) for source in self.sources):
            return self._load_comparison(self.sources[0])
        values: dict = {}
        if self.probes and not self.sources:
            values["title"] = "Accuracy of probes"
            self._check_probe_options()
        corpus_values: dict = {}
        for name, value in self.given.items():
            if name in CORPUS_FIELDS:
                corpus_values[name] = value
            else:
                values[name] = value
        values["corpora"] = self._corpora(corpus_values)
        values["user_dir"] = self.user_dir
        return from_mapping(values, flags=OPTIONS)

    def _load_comparison(self, path: str) -> ComparisonConfig:
        """Read the YAML file of a comparison, which is given without other options."""
        if len(self.sources) > 1 or self.probes or self.given:
            raise UserInputError(
                f"{path} cannot be combined with other options. Edit it instead, and give it alone."
            )
        comparison = load_config(path)
        if comparison.user_dir and not self.user_dir:
            raise UserInputError(
                f"{path}: user_dir names a plugin, which must be imported before the file is "
                f"read. Pass --user-dir {comparison.user_dir} as well."
            )
        return replace(comparison, user_dir=self.user_dir)

    def _check_probe_options(self) -> None:
        """Check that no option applies to a text only.

        Raises:
            UserInputError: an option does.
        """
        unused = [OPTIONS[name] for name in GROUPS["evaluation"] if name in self.given]
        if unused:
            raise UserInputError(
                f"{', '.join(unused)} applies to a text, and probes are tested at "
                f"{', '.join(map(str, MULTIPLES))} times the training length. Omit it."
            )

    def _corpora(self, corpus_values: dict) -> list[dict]:
        """Return the corpus of the text, if there is one, and the probes, as plain values.

        Args:
            corpus_values: values of the options in :data:`CORPUS_FIELDS` that were passed.

        Raises:
            UserInputError: there are none.
        """
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
        return corpora

    def corpus(self, values: dict) -> dict:
        """Return the corpus of the texts or of the folder of binary data, as plain values.

        Args:
            values: values of the options in :data:`CORPUS_FIELDS` that were passed.
        """
        first = Path(self.sources[0])
        if not (first / "dict.txt").is_file():
            name = first.resolve().name.split(".")[0]
            return {"name": name, "text": self.sources, **values}
        if len(self.sources) > 1 or values:
            flags = ", ".join(OPTIONS[name] for name in CORPUS_FIELDS)
            raise UserInputError(f"{first} is binary data already. Give it alone, without {flags}.")
        name = first.parent.name if first.name == "data-bin" else first.name
        return {"name": name or "data", "data": str(first)}


def add_option(group: argparse._ActionsContainer, name: str, metavar: str | None) -> None:
    """Add the option of a field, with its description and default as help."""
    description = FIELDS[name].description
    default = FIELDS[name].default
    help_default = default
    keywords: dict[str, Any] = {}
    if isinstance(default, tuple) and default:
        help_default = ",".join(map(str, default))
        keywords["type"] = names
    if metavar is None:
        choices = literal_values(FIELDS[name].annotation)
        keywords["choices"] = choices
        if default is None:  # like `eval`, which takes the first without a value
            keywords.update(nargs="?", const=choices[0])
            description = f"{description} (without a value: {choices[0]})"
    if help_default:
        description = f"{description} (default: {help_default})"
    group.add_argument(
        OPTIONS[name],
        dest=name,
        metavar=metavar,
        help=description,
        **keywords,
    )


def literal_values(annotation: Any) -> tuple[str, ...]:
    """Return the values of ``Literal[…]``, or of ``Literal[…] | None``."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    literal, _ = get_args(annotation)
    return get_args(literal)
