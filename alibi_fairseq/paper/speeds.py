"""Speed and memory of the paper's models and of ours, by position method and training length."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from ..positions.display_names import method_name
from ..reporting import markdown
from ..reporting.means import mean_of_known
from ..reporting.row import Row
from ..reporting.rows import build_rows
from ..reporting.table import Column, Table
from ..results.case import Case
from . import published
from .collected_results import CollectedResults, describe_machine, device_name, measurement_key
from .items import Item

#: Source of the numbers of Table 1 and Figure 7.
PAPER = "the paper, one V100"
#: Method that Table 1 is relative to.
_REFERENCE = "sinusoidal"


class TimedModel(NamedTuple):
    """Model with a speed, whatever its seed.

    Attributes:
        method: position method.
        length: training length.
        variant: what tells our model from others with the same method and length.
    """

    method: str
    length: int
    variant: str = ""

    @property
    def name(self) -> str:
        """Method and variant in words."""
        name = method_name(self.method)
        return f"{name} ({self.variant})" if self.variant else name


class Speed(NamedTuple):
    """Speed and memory of a model. None means unknown.

    Attributes:
        train, evaluate: tokens per second; of the paper, words.
        memory_gb: memory of the training.
    """

    train: float | None = None
    evaluate: float | None = None
    memory_gb: float | None = None


Speeds = Mapping[TimedModel, Speed]


def printed_speeds(item: Item) -> dict[TimedModel, Speed]:
    """Return the paper's speeds and memory that a table or figure shows."""
    speeds = {}
    for numbers in item.numbers:
        for row in published.rows(numbers):
            if row.get("train_words_per_second") is not None:
                model = TimedModel(row["position_method"], row["train_length"])
                speeds[model] = Speed(
                    row["train_words_per_second"],
                    row.get("eval_words_per_second"),
                    row.get("train_memory_gb"),
                )
    return speeds


def measured_speeds(collected: CollectedResults, corpus: str) -> dict[str, Speeds]:
    """Return our speeds by source: each file of ``benchmarks.methods``, and trainings.

    Only speeds of one source are comparable.
    """
    by_source: dict[str, Speeds] = {}
    for path, file in collected.files:
        speeds = {}
        for record in file.benchmarks:
            values = record.values
            if "evaluation_tokens_per_second" not in values:
                continue  # another benchmark than that of Table 1
            model = TimedModel(values["position_method"], values["length"])
            memory = values.get("peak_memory_mb")
            speeds[model] = Speed(
                values["tokens_per_second"],
                values["evaluation_tokens_per_second"],
                None if memory is None else memory / 1000,
            )
        if speeds:
            assert file.provenance is not None, "a benchmark records it"
            name = os.path.join(*path.parts[-2:])
            source = f"{describe_machine(file)}, {values['model']} ({name})"
            by_source[source] = speeds
    return {**by_source, **trained_speeds(collected, corpus)}


def trained_rows(collected: CollectedResults, corpus: str) -> dict[TimedModel, Row]:
    """Return our models on a corpus in the paper's setting: the rows of tables, by model."""
    rows = {}
    for row in build_rows(collected.comparable(corpus)):
        series = row.results[0].series
        rows[TimedModel(series.method.notation, series.train_length, row.variant)] = row
    return rows


def trained_speeds(collected: CollectedResults, corpus: str) -> dict[str, Speeds]:
    """Return speed and memory of our trainings on a corpus in the paper's setting, by source.

    A source is the machine of a training. Speeds are means over seeds. The evaluation is that of
    the validation split in windows of the training length, on a device of the same name.
    """
    rows = trained_rows(collected, corpus)
    by_source: dict[str, Speeds] = {}
    for machine, of_machine in collected.by_machine().items():
        device = device_name(of_machine.files[0][1])
        evaluations = _evaluation_speeds(collected, device)
        speeds = {}
        for model, row in rows.items():
            last_by_seed = {}
            for validation in of_machine.select_validations(row.results[0].series):
                last_by_seed[validation.seed] = validation.cost
            evaluated = []
            for result in row.results:
                if is_validation(result.case, model.length):
                    evaluated.append(evaluations.get(measurement_key(result)))
            costs = last_by_seed.values()
            memory = [cost.peak_memory_mb and cost.peak_memory_mb / 1000 for cost in costs]
            speed = Speed(
                mean_of_known([cost.tokens_per_second_per_process for cost in costs]),
                mean_of_known(evaluated),
                mean_of_known(memory),
            )
            if speed.train is not None:
                speeds[model] = speed
        if speeds:
            by_source[f"our trainings on {machine}, per process"] = speeds
    return by_source


def _evaluation_speeds(collected: CollectedResults, device: str) -> dict[tuple, float]:
    """Return the tokens per second of evaluations on a device (:func:`.measurement_key`)."""
    speeds = {}
    for _, file in collected.files:
        if device_name(file) != device:
            continue
        for result in file.results:
            speed = result.cost.tokens_per_second
            if result.case.kind == "text" and speed is not None:
                speeds[measurement_key(result)] = speed
    return speeds


def is_validation(case: Case, length: int) -> bool:
    """Return True for an evaluation on ``valid`` in non-overlapping windows of a length."""
    return case.split == "valid" and (case.length, case.stride) == (length, length)


class _SpeedRow(NamedTuple):
    """Row of a table of speeds."""

    name: str
    length: int
    speed: Speed
    reference: Speed


def speed_tables(item: Item, collected: CollectedResults) -> list[Table[_SpeedRow]]:
    """Return a table of the paper's speeds, and ours by source; without a source, ours is missing.

    Args:
        item: table of speeds and memory.
        collected: our results.
    """
    printed = printed_speeds(item)
    tables = [_speed_table(PAPER, printed, "words")]
    measured = measured_speeds(collected, item.corpus)
    if not measured:
        measured = {"not measured yet": dict.fromkeys(printed, Speed())}
    for source, speeds in measured.items():
        tables.append(_speed_table(source, speeds, "tokens"))
    return tables


def _speed_table(source: str, speeds: Speeds, unit: str) -> Table[_SpeedRow]:
    """Return speeds and memory, with their relation to the sinusoidal model of the same length."""
    rows = []
    for model, speed in speeds.items():
        reference = speeds.get(TimedModel(_REFERENCE, model.length), Speed())
        rows.append(_SpeedRow(model.name, model.length, speed, reference))
    columns = [
        Column[_SpeedRow]("", lambda row: row.name),
        Column[_SpeedRow]("L", lambda row: str(row.length)),
        Column(f"training, {unit}/s", partial(_cell, "train", markdown.thousands)),
        Column("× sinusoidal", partial(_relation, "train", "{:.2f}", operator.truediv)),
        Column(f"evaluation, {unit}/s", partial(_cell, "evaluate", markdown.thousands)),
        Column("× sinusoidal", partial(_relation, "evaluate", "{:.2f}", operator.truediv)),
        Column("memory, GB", partial(_cell, "memory_gb", "{:.1f}".format)),
        Column("− sinusoidal", partial(_relation, "memory_gb", "{:+.1f}", operator.sub)),
    ]
    return Table(columns, rows, caption=source[0].upper() + source[1:])


def _cell(attribute: str, text: Callable[[float], str], row: _SpeedRow) -> str:
    """Format a quantity of a model."""
    value = getattr(row.speed, attribute)
    return markdown.MISSING if value is None else text(value)


def _relation(
    attribute: str, text: str, relate: Callable[[float, float], float], row: _SpeedRow
) -> str:
    """Format a quantity of a model relative to the reference."""
    value = getattr(row.speed, attribute)
    reference = getattr(row.reference, attribute)
    if value is None or reference is None:
        return markdown.NOTHING
    return text.format(relate(value, reference))
