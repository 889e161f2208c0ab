"""Command ``alibi-fairseq compare``: position methods on a text or on synthetic sequences."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from ..data.probes import MULTIPLES, PROBES
from ..errors import UserInputError
from ..experiment.config_files import from_mapping, load_config, save_config
from ..experiment.schema import (
    EVALUATION,
    MODELS,
    OUTPUT,
    TEXT,
    TRAINING,
    Corpus,
    Evaluation,
    ExperimentConfig,
    ModelGroup,
)
from ..options import names, option
from ..results.file_names import EXPERIMENT_FILE
from .experiments import ExperimentOptions
from .options import add_fields, option_flags, option_group, plugin_option

#: Options that describe the corpus, by field.
CORPUS_FLAGS = option_flags(Corpus)
#: Options of all fields of a comparison.
FLAGS = {
    **CORPUS_FLAGS,
    **option_flags(ModelGroup),
    **option_flags(Evaluation),
    **option_flags(ExperimentConfig),
}


@dataclass(kw_only=True)
class CompareCommand(ExperimentOptions):
    """Comparison of position methods on a text, on probes, or as described by a YAML file.

    Attributes:
        given: values of the options in :data:`FLAGS` that were passed, by field. Each is a string
            or a list of strings, which the schema converts and checks.
    """

    sources: list[str] = option(
        "text files or folders, a data folder (data-bin), or a YAML file that describes the "
        "comparison (docs/compare.md); not needed with probes alone, as in --probes copy",
        nargs="*",
        metavar="TEXT|DATA|YAML",
        group="text",
    )
    probes: list[str] = option(
        f"synthetic tasks to train more models on: {', '.join(PROBES)}; tested at "
        f"{', '.join(map(str, MULTIPLES))} times the training length",
        (),
        type=names,
        metavar="A,B,…",
        group="text",
    )
    out: Path = option("output folder", required=True, metavar="FOLDER", group="output")
    user_dir: str | None = plugin_option("models")
    given: dict

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        for title in (TEXT, MODELS, TRAINING, EVALUATION, OUTPUT):
            option_group(parser, title)  # in this order
        super().add_arguments(parser)
        for kind in (Corpus, ModelGroup, Evaluation, ExperimentConfig):
            add_fields(parser, kind)

    @classmethod
    def run(cls, args: argparse.Namespace) -> int | None:
        given = {}
        for name in FLAGS:
            if name in args:  # add_fields leaves out options that are not given
                given[name] = getattr(args, name)
        args.given = given
        return super().run(args)

    def __call__(self) -> int:
        """Check the description, and train, submit, or list the runs (:meth:`run_experiment`)."""
        from ..experiment.comparison import Comparison
        from ..experiment.training_flags import check_training_options

        config = self.config()
        config.check_method_keys()
        comparison = Comparison(config, self.out)
        check_training_options(config)
        for sentence in comparison.repeated_runs():
            print(sentence)
        return self.run_experiment(comparison)

    def freeze(self) -> list[str]:
        """Write the comparison as it is now, and return the arguments of jobs that read it."""
        path = self.out / EXPERIMENT_FILE
        save_config(self.config(), path)
        arguments = ["compare", str(path), "--out", str(self.out)]
        if self.user_dir:
            arguments += ["--user-dir", self.user_dir]
        return arguments

    def config(self) -> ExperimentConfig:
        """Return the comparison that the YAML file or the options describe."""
        yaml_files = [source for source in self.sources if source.endswith((".yaml", ".yml"))]
        if yaml_files:
            return self._load_config(yaml_files[0])
        values: dict = {}
        if self.probes and not self.sources:
            values["title"] = "Accuracy of probes"
            self._check_probe_options()
        corpus_values: dict = {}
        for name, value in self.given.items():
            if name in CORPUS_FLAGS:
                corpus_values[name] = value
            else:
                values[name] = value
        values["corpora"] = self._corpora(corpus_values)
        values["user_dir"] = self.user_dir
        # The values are flat: from_mapping distributes them among the parts of the description.
        return from_mapping(values, flags=FLAGS)

    def _load_config(self, path: str) -> ExperimentConfig:
        """Read the YAML file of a comparison, which is given without other options."""
        if len(self.sources) > 1 or self.probes or self.given:
            raise UserInputError(
                f"{path} cannot be combined with other options. Edit it instead, and pass it alone."
            )
        config = load_config(path)
        for group in config.models:
            if group.user_dir and not self.user_dir:
                raise UserInputError(
                    f"{path}: user_dir names a plugin, which must be imported before the file is "
                    f"read. Pass --user-dir {group.user_dir} as well."
                )
        return config.with_plugin(self.user_dir)

    def _check_probe_options(self) -> None:
        """Check that no option applies to a text only.

        Raises:
            UserInputError: an option does.
        """
        flags = option_flags(Evaluation)
        unused = [flag for name, flag in flags.items() if name in self.given]
        if unused:
            flags_given = ", ".join(unused)
            raise UserInputError(
                f"{flags_given} has no effect here, because probes are always tested at "
                f"{', '.join(map(str, MULTIPLES))} times the training length. Remove {flags_given}."
            )

    def _corpora(self, corpus_values: dict) -> list[dict]:
        """Return the corpus of the text, if there is one, and the probes, as plain values.

        Args:
            corpus_values: values of the options in :data:`CORPUS_FLAGS` that were passed.

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
            raise UserInputError("There is no text to compare on. Pass a text, or --probes copy.")
        return corpora

    def corpus(self, values: dict) -> dict:
        """Return the corpus of the texts or of the folder of binary data, as plain values.

        Args:
            values: values of the options in :data:`CORPUS_FLAGS` that were passed.
        """
        first = Path(self.sources[0])
        if not (first / "dict.txt").is_file():
            name = Path(os.path.abspath(first)).name.split(".")[0]
            return {"name": name, "text": self.sources, **values}
        if len(self.sources) > 1 or values:
            flags = ", ".join(CORPUS_FLAGS.values())
            raise UserInputError(f"{first} is already binary data. Pass it alone, without {flags}.")
        name = first.parent.name if first.name == "data-bin" else first.name
        return {"name": name or "data", "data": str(first)}
