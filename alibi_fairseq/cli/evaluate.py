"""Command ``alibi-fairseq eval``: perplexity at any length and stride."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from ..data.probe_data import PROBE_FILE
from ..errors import UserInputError
from ..evaluation.config import (
    CHECKPOINTS,
    COMPUTATION,
    MEASUREMENT,
    MODELS_AND_DATA,
    SweepConfig,
)
from ..files import open_input
from ..options import option
from ..reporting import markdown
from ..reporting.evaluation_output import (
    context_table,
    evaluation_notes,
    evaluation_table,
    printed_position_tables,
)
from ..reporting.probes import accuracy_table
from ..results.data_folder import check_shards
from ..results.file import load
from ..results.result import Result
from ..results.values import ProbeValues
from .options import CliCommand, add_fields, fill_dataclass, option_group, plugin_option

FOLDERS = "only for Hugging Face folders"
OUTPUT = "output"
#: Headings of the options in the help, in this order.
GROUPS = (MODELS_AND_DATA, MEASUREMENT, CHECKPOINTS, FOLDERS, COMPUTATION, OUTPUT)

# Types of options. argparse puts the option before the error that they raise.


def first_folder(text: str) -> Path:
    """Return the first of several folders joined by ``:``."""
    return Path(text.split(":")[0])


def shortest(text: str) -> Path:
    """Return a path as results record it: relative if it is inside the working directory."""
    absolute = Path(text).resolve()
    working_directory = Path.cwd().resolve()
    if absolute.is_relative_to(working_directory):
        return absolute.relative_to(working_directory)
    return Path(text)


@dataclass(kw_only=True)
class Eval(CliCommand):
    """Options of ``alibi-fairseq eval``.

    Attributes:
        config: settings of the evaluation, whose fields are more options.
    """

    data: list[str] = option(
        "for fairseq checkpoints, a data folder (data-bin); for Hugging Face folders, one or more "
        "text files in UTF-8, each of which is a split",
        nargs="+",
        metavar="DATA|TEXT",
        group=MODELS_AND_DATA,
    )
    checkpoints: list[Path] = option(
        "models to evaluate: fairseq checkpoints (*.pt), or Hugging Face folders (with "
        "config.json)",
        flag="--path",
        required=True,
        nargs="+",
        type=shortest,
        metavar="CHECKPOINT|FOLDER",
        group=MODELS_AND_DATA,
    )
    out: Path = option(
        "results file (JSON); if it exists, only missing measurements are made",
        required=True,
        metavar="FILE",
        group=OUTPUT,
    )
    by_position: bool = option(
        "also print the loss by position in non-overlapping windows of the longest evaluation "
        "length, which the results file contains anyway; models with --block-diagonal have none",
        False,
        group=OUTPUT,
    )
    effective_context: float | None = option(
        "also print the shortest evaluation length whose loss is at most PERCENT above that of the "
        "longest (without a value: 1)",
        None,
        nargs="?",
        const=1.0,
        metavar="PERCENT",
        group=OUTPUT,
    )
    bos_per_window: bool = option(
        "start every window, not only the text, with the BOS token, or with EOS if there is none; "
        "it replaces the first input of the window",
        False,
        group=FOLDERS,
    )
    trust_remote_code: bool = option(
        "run code in the folders of models that need it", False, group=FOLDERS
    )
    user_dir: str | None = plugin_option(CHECKPOINTS)
    config: SweepConfig

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of the command and the settings of the evaluation to a parser."""
        for title in GROUPS:
            option_group(parser, title)  # in this order
        super().add_arguments(parser)
        add_fields(parser, SweepConfig)

    @classmethod
    def run(cls, args: argparse.Namespace) -> int | None:
        """Run the command with parsed options; return its exit code, or None for 0."""
        args.config = fill_dataclass(SweepConfig, args)
        return super().run(args)

    def __call__(self) -> None:
        """Evaluate the models, and print a table.

        Raises:
            UserInputError: an option cannot be used.
        """
        if (first_folder(self.data[0]) / PROBE_FILE).is_file():
            self._check_probe()
        if any((path / "config.json").is_file() for path in self.checkpoints):
            evaluated = self._evaluate_folders()
        else:
            evaluated = self._evaluate_checkpoints()
        results = load(self.out).results  # also of earlier evaluations
        if any(isinstance(result.values, ProbeValues) for result in results):
            print(f"{markdown.to_markdown([accuracy_table(results)])}\nResults: {self.out}")
            return
        print(evaluation_table(evaluated))
        if self.effective_context is not None:
            print(context_table(evaluated, self.effective_context, self.config.strides))
        if self.by_position:
            print(printed_position_tables(results))
        print(evaluation_notes(results), end="")
        print(f"L: evaluation length, S: stride, ctx: context per token. Results: {self.out}")

    def _evaluate_checkpoints(self) -> list[Result]:
        """Evaluate fairseq checkpoints on a data folder."""
        self._check_checkpoints()
        from ..evaluation.measurement import run_sweep  # imports fairseq

        return run_sweep(first_folder(self.data[0]), self.checkpoints, self.config, self.out)

    def _evaluate_folders(self) -> list[Result]:
        """Evaluate folders of Hugging Face models on text files, offline."""
        if self.config.splits != SweepConfig.splits:
            raise UserInputError(
                "--subset has no effect on Hugging Face models, which are evaluated on all of a "
                "text file. Remove it, and pass the text file of each split."
            )
        texts = [Path(name) for name in self.data]
        for text in texts:
            open_input(text).close()
        os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
        # imports transformers
        from ..huggingface.evaluation import FolderOptions, evaluate_folders

        options = FolderOptions(self.trust_remote_code, self.bos_per_window)
        return evaluate_folders(texts, self.checkpoints, self.config, self.out, options)

    def _check_checkpoints(self) -> None:
        """Check that there are fairseq checkpoints, a data folder, and no options for others.

        Raises:
            UserInputError: a path or an option is wrong.
        """
        for checkpoint in self.checkpoints:
            if not checkpoint.exists() and checkpoint.suffix != ".pt":
                raise UserInputError(
                    f"--path: there is no file or folder {checkpoint}, and models are not "
                    "downloaded. To evaluate a model of the Hugging Face Hub, run "
                    f"`hf download {checkpoint} --local-dir models/{checkpoint.name}` once, and "
                    f"pass --path models/{checkpoint.name}."
                )
            if not checkpoint.is_file():
                from ..plugin.loading import require_file

                require_file(checkpoint)
            open_input(checkpoint).close()
        data = first_folder(self.data[0])
        if len(self.data) > 1 or data.is_file():
            raise UserInputError(
                f"{' '.join(self.data)} is not one data folder, which fairseq checkpoints are "
                "evaluated on. Pass the folder that `alibi-fairseq prepare text` makes of a text. "
                "To evaluate a Hugging Face model, pass its folder with config.json as --path."
            )
        check_shards(self.data[0], self.config.splits)
        if self.bos_per_window or self.trust_remote_code:
            raise UserInputError(
                "--bos-per-window and --trust-remote-code have no effect on fairseq checkpoints. "
                "Remove them."
            )

    def _check_probe(self) -> None:
        """Check that no option is set that has no meaning for a probe.

        Raises:
            UserInputError: an option requires a text.
        """
        is_given = {
            "--strides": self.config.strides != SweepConfig.strides,
            "--subset": self.config.splits != SweepConfig.splits,
            "--per-document": self.config.per_document is not None,
            "--score-from": self.config.score_from is not None,
            "--score-to": self.config.score_to is not None,
            "--by-position": self.by_position,
            "--effective-context": self.effective_context is not None,
        }
        for flag, given in is_given.items():
            if given:
                raise UserInputError(
                    f"{flag} has no effect on '{first_folder(self.data[0])}', which is the data of "
                    f"a probe. Remove {flag}."
                )
