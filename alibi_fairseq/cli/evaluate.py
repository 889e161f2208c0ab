"""Command ``alibi-fairseq eval``: perplexity at any length and stride."""

from __future__ import annotations

import argparse
import json
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from ..data.probe_data import PROBE_FILE
from ..errors import UserInputError
from ..evaluation.config import (
    CHECKPOINTS,
    COMPUTATION,
    MEASUREMENT,
    MODELS_AND_DATA,
    SweepConfig,
)
from ..evaluation.option_types import format_stride
from ..files import open_input
from ..reporting import markdown
from ..reporting.common_conditions import common_conditions
from ..reporting.differing_conditions import differing_conditions_table
from ..reporting.loss_by_position import position_tables
from ..reporting.notes import CHANCE_NOTE, undertrained_warning
from ..reporting.probes import accuracy_table
from ..reporting.rows import build_rows
from ..reporting.texts import group_by_text
from ..results.file import load
from ..results.result import ProbeValues, Result, TextValues
from .options import CliCommand, add_fields, fill_dataclass, option, option_group, plugin_option

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
        "length; the results file always has it",
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
        results = load(self.out).results
        if any(isinstance(result.values, ProbeValues) for result in results):
            print(f"{markdown.to_markdown([accuracy_table(results)])}\nResults: {self.out}")
            return
        print(evaluation_table(evaluated))
        if self.effective_context is not None:
            print(context_table(evaluated, self.effective_context, self.config.strides))
        if self.by_position:
            self._print_loss_by_position(results)
        _print_notes(results)
        print(f"L: evaluation length, S: stride, ctx: context per token. Results: {self.out}")

    def _print_loss_by_position(self, results: Sequence[Result]) -> None:
        # The notes below state the conditions once for all tables.
        tables = []
        for table in position_tables(results):
            tables.append(replace(table, conditions="", different=None))
        print(markdown.to_markdown(tables) if tables else f"{NO_LOSS_BY_POSITION}\n")

    def _check_probe(self) -> None:
        """Check that no option is set that has no meaning for a probe.

        Raises:
            UserInputError: an option requires a text.
        """
        is_given = {
            "--strides": self.config.strides != SweepConfig.strides,
            "--subset": self.config.subsets != SweepConfig.subsets,
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

    def _evaluate_checkpoints(self) -> list[Result]:
        """Evaluate fairseq checkpoints on a data folder."""
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
        if ":" in self.data[0] and "train" in self.config.subsets:
            raise UserInputError(
                "--subset train is divided among the shards, and only the first would be "
                f"evaluated. Pass one folder instead of {self.data[0]}."
            )
        if self.bos_per_window or self.trust_remote_code:
            raise UserInputError(
                "--bos-per-window and --trust-remote-code have no effect on fairseq checkpoints. "
                "Remove them."
            )
        from ..evaluation.sweep import run_sweep  # imports fairseq

        return run_sweep(data, self.checkpoints, self.config, self.out)

    def _evaluate_folders(self) -> list[Result]:
        """Evaluate folders of Hugging Face models on text files, offline."""
        texts = [Path(name) for name in self.data]
        for text in texts:
            open_input(text).close()
        os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
        # imports transformers
        from ..huggingface.evaluation import FolderOptions, evaluate_folders

        options = FolderOptions(self.trust_remote_code, self.bos_per_window)
        return evaluate_folders(texts, self.checkpoints, self.config, self.out, options)


def _print_notes(results: Sequence[Result]) -> None:
    """Print what the models have in common, and notes on what makes perplexities unusable."""
    rows = build_rows(results)
    texts = [markdown.sentence(common_conditions(rows))]
    different = differing_conditions_table(rows)
    if different is not None:
        texts.append(f"\n{markdown.to_markdown([different])}")
    for group in group_by_text(results).values():
        texts.append(markdown.sentence(undertrained_warning(build_rows(group))))
    print("".join(dict.fromkeys(texts)), end="")
    points = [point for row in rows for point in row.points]
    longest_windows = [point.longest_window or 0 for point in points if point.is_past_end]
    if longest_windows:
        longest = max(longest_windows)
        print(f"Some lengths exceed the text: the longest window has {longest:,} tokens.")
    if any(point.is_near_chance for point in points):
        print(f"Some perplexities are near or above {CHANCE_NOTE}")


def short_name(path: str) -> str:
    """Return the folder and file name of a checkpoint."""
    return "/".join(Path(path).parts[-2:])


def _overrides(result: Result) -> str | None:
    """Return the options that were changed for the evaluation, or None without any."""
    overrides = sorted(result.reading.overrides.items())
    return ", ".join(f"{name}={json.dumps(value)}" for name, value in overrides) or None


def _scored_range(result: Result) -> str | None:
    """Return the range of tokens that is scored, or None for all."""
    return result.case.scored if result.case.has_range else None


#: Note in place of the table of ``--by-position``.
NO_LOSS_BY_POSITION = (
    "No loss by position: every length exceeds the text, the models attend only within documents "
    "(--block-diagonal), or the results are of an earlier version."
)
#: Column title, value of a result, format.
_COLUMNS: list[tuple[str, Callable[[Result], Any], Callable[[Any], str]]] = [
    ("checkpoint", attrgetter("checkpoint"), short_name),
    ("positions", attrgetter("series.method.notation"), str),
    ("overrides", _overrides, str),
    ("trained at", attrgetter("series.train_length"), str),
    ("split", attrgetter("case.split"), str),
    ("scored", _scored_range, str),
    ("L", attrgetter("case.length"), str),
    ("S", attrgetter("case.stride"), str),
    ("min ctx", attrgetter("values.min_context"), str),
    ("mean ctx", attrgetter("values.mean_context"), "{:.1f}".format),
    ("tokens", attrgetter("values.tokens"), "{:,}".format),
    ("bits/token", attrgetter("values.loss_bits"), "{:.4f}".format),
    ("perplexity", attrgetter("values.perplexity"), markdown.perplexity),
    ("per word", attrgetter("values.word_perplexity"), markdown.perplexity),
    ("bits/byte", attrgetter("values.bits_per_byte"), "{:.4f}".format),
    ("tokens/s", attrgetter("cost.tokens_per_second"), "{:,.0f}".format),
    ("peak MB", attrgetter("cost.peak_memory_mb"), "{:,.0f}".format),
]


def evaluation_table(results: Sequence[Result]) -> str:
    """Return a Markdown table with the columns that any result has."""
    titles = []
    columns = []
    for title, value_of, format_value in _COLUMNS:
        values = [value_of(result) for result in results]
        if all(value is None for value in values):
            continue
        cells = []
        for value in values:
            cells.append(markdown.NOTHING if value is None else format_value(value))
        titles.append(title)
        columns.append(cells)
    rows = list(zip(*columns, strict=True))
    return markdown.table(titles, rows)


def context_table(results: Sequence[Result], percent: float, strides: Sequence[int | None]) -> str:
    """Return a table of the shortest window whose loss is close to that of the longest.

    There is a row for each checkpoint, split, and requested stride. A result whose stride
    is its length counts for that number and for ``full``.

    Args:
        results: results of checkpoints.
        percent: largest difference of the losses.
        strides: requested strides, as in :class:`..evaluation.config.SweepConfig`.
    """
    losses: dict[tuple, dict[int, float]] = defaultdict(dict)
    for result in results:
        assert isinstance(result.values, TextValues), "the evaluator measured it"
        case = result.case
        for stride in strides:
            tokens = case.length if stride is None else stride
            if case.stride != tokens:
                continue
            row = (str(result.checkpoint), case.split, format_stride(stride))
            losses[row][case.length] = result.values.loss_bits
    rows = []
    for (checkpoint, subset, stride), loss in losses.items():
        longest = max(loss)
        limit = loss[longest] * (1 + percent / 100)
        shortest_window = min(length for length in loss if loss[length] <= limit)
        rows.append([short_name(checkpoint), subset, stride, str(shortest_window)])
    return markdown.table(["checkpoint", "split", "S", f"context within {percent:g}%"], rows)
