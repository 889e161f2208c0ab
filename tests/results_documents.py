"""Results files for the tests, and readers of Markdown tables and figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any

import pytest
from matplotlib.figure import Figure

from alibi_fairseq.paper.published import PrintedMeasurement
from alibi_fairseq.positions.spec import MethodSpec
from alibi_fairseq.results.case import Case
from alibi_fairseq.results.file import Results
from alibi_fairseq.results.file_names import BEST_CHECKPOINT
from alibi_fairseq.results.provenance import Provenance
from alibi_fairseq.results.result import Result
from alibi_fairseq.results.series import Facts, Reading, Series
from alibi_fairseq.results.settings import COMPONENTS, applicable_defaults, plain
from alibi_fairseq.results.training_settings import method_json
from alibi_fairseq.results.values import Cost, ProbeValues, TextSummary, TextValues

PROVENANCE = {
    "command": "alibi-fairseq eval data --path checkpoint.pt",
    "git_commit": "0" * 40,
    "git_clean": True,
    "data_sha256": "a" * 64,
    "dictionary_sha256": "b" * 64,
    "versions": {
        "python": "3.11.7",
        "torch": "2.13.0",
        "fairseq": "fairseq-fixed 0.12.3.1",
        "numpy": "2.4.6",
        "alibi_fairseq": "1.0",
    },
    "hardware": {"cpu": "a processor", "cores": 2, "memory_gb": 24.0, "gpu": None},
    "threads": 2,
    "precision": "fp32",
    "seed": 1,
    "date": "2026-01-31T12:00:00Z",
    "seconds": 12.5,
}
#: Text with a manifest.
PREPARED = TextSummary(tokenizer="wordpiece")


@dataclass(frozen=True)
class Record:
    """Evaluation of a model on a text, with the fields of all parts of its result side by side.

    Attributes:
        options: options of the training that are no defaults, by their name on the command line,
            as text. The text of a flag is empty. None: the training is unknown.
        subset, data_sha256, documents_sha256, tokens_sha256, label: ``split``, ``text``, and
            ``documents`` of a :class:`.Case`, its ``tokens``, and ``variant`` of a
            :class:`.Reading`.
        documents: what separates the documents.
    """

    method: MethodSpec = MethodSpec.plain("alibi")
    plugin_sha256: str | None = None
    options: Mapping[str, str] | None = field(default_factory=dict)
    train_length: int = 64
    architecture: str | None = None
    parameters: int | None = None
    layers: int | None = None
    width: int | None = None
    vocabulary: int | None = None
    seed: int | None = None
    updates: int | None = None
    checkpoint: str | None = None
    checkpoint_sha256: str | None = None
    precision: str = "fp32"
    overrides: Mapping[str, Any] | None = None
    label: str | None = None
    corpus: str = ""
    data_sha256: str | None = None
    subset: str = "valid"
    length: int = 128
    stride: int = 128
    score_from: int = 0
    score_to: int | None = None
    tokens_sha256: str | None = None
    documents: str | None = None
    documents_sha256: str | None = None
    loss_bits: float = 4.0
    tokens: int | None = 1000
    bytes: int | None = None
    unigram_bits: float | None = None
    document_tokens: Sequence[int] = ()
    document_bits: Sequence[float] = ()
    position_ends: Sequence[int] = ()
    position_tokens: Sequence[int] = ()
    position_bits: Sequence[float] = ()
    position_errors: Sequence[float | None] = ()
    longest_window: int | None = None
    mean_context: float | None = None
    device: str | None = None
    tokens_per_second: float | None = None
    tokens_per_second_batch_1: float | None = None
    text: TextSummary = TextSummary()

    @property
    def series(self) -> Series:
        """How the model was trained."""
        settings: dict[str, Any] = {
            "method": method_json(self.method),
            "task.tokens_per_sample": self.train_length,
        }
        if self.options is None:
            settings["weights"] = self.checkpoint_sha256 or self.checkpoint
        else:
            settings |= settings_of(self.options, self.architecture)
        if self.options is not None and self.plugin_sha256 is not None:
            settings["plugin"] = self.plugin_sha256
        facts = Facts(
            architecture=self.architecture,
            parameters=self.parameters,
            layers=self.layers,
            width=self.width,
            vocabulary=self.vocabulary,
        )
        return Series(settings, facts=facts)

    @property
    def reading(self) -> Reading:
        """Which weights were read."""
        is_best = PurePath(self.checkpoint or "").name == BEST_CHECKPOINT
        return Reading(
            at="best" if is_best else self.updates,
            selection={} if is_best else None,
            overrides=dict(self.overrides or {}),
            precision=self.precision,
            variant=self.label or "",
        )

    @property
    def case(self) -> Case:
        """Which tokens were predicted."""
        documents = None
        if self.tokens_sha256 is not None:
            documents = self.documents
        elif self.score_from or self.score_to is not None:
            documents = self.documents_sha256 or self.documents
        return Case(
            kind="text",
            text=self.data_sha256,
            split=self.subset,
            length=self.length,
            stride=self.stride,
            documents=documents,
            score_from=self.score_from,
            score_to=self.score_to,
            tokens=self.tokens_sha256,
            corpus=self.corpus,
            separator=self.documents or "",
        )

    @property
    def values(self) -> TextValues:
        """What was measured."""
        return TextValues(
            loss_bits=self.loss_bits,
            tokens=self.tokens,
            bytes=self.bytes,
            unigram_bits=self.unigram_bits,
            documents=self.documents_sha256 or self.documents if self.document_bits else None,
            document_tokens=tuple(self.document_tokens),
            document_bits=tuple(self.document_bits),
            position_ends=tuple(self.position_ends),
            position_tokens=tuple(self.position_tokens),
            position_bits=tuple(self.position_bits),
            position_errors=tuple(self.position_errors),
            longest_window=self.longest_window,
            mean_context=self.mean_context,
        )

    @property
    def result(self) -> Result:
        """The result."""
        cost = Cost(
            device=self.device,
            tokens_per_second=self.tokens_per_second,
            tokens_per_second_batch_1=self.tokens_per_second_batch_1,
        )
        return Result(
            series=self.series,
            reading=self.reading,
            seed=self.seed,
            case=self.case,
            values=self.values,
            checkpoint=self.checkpoint,
            checkpoint_sha256=self.checkpoint_sha256,
            updates=self.updates,
            cost=cost,
            text=self.text,
        )


def evaluation_record(perplexity: float = 16.0, **changes) -> Record:
    """Return an evaluation in windows that do not overlap, if ``changes`` has no stride."""
    if "length" in changes:
        changes.setdefault("stride", changes["length"])
    return changed(Record(), perplexity=perplexity, **changes)


def changed(record: Record, **changes) -> Record:
    """Return an evaluation with other fields, or another ``perplexity``."""
    if "perplexity" in changes:
        changes.setdefault("loss_bits", math.log2(changes.pop("perplexity")))
    if isinstance(changes.get("method"), str):
        changes["method"] = MethodSpec.plain(changes["method"])
    return replace(record, **changes)


def validation_result(perplexity: float = 16.0, updates: int = 100, **cost) -> Result:
    """Return a validation during a training."""
    record = evaluation_record(perplexity, length=64, updates=updates, seed=1)
    case = Case("validation", None, "valid", 64, 64)
    return replace(record.result, case=case, cost=Cost(**cost))


def probe_result(
    accuracy: float, length: int, depth: float, trained: Record, gap: int = 5
) -> Result:
    """Return the accuracy of a model on a probe."""
    case = Case("probe", "a" * 64, "", length, length, depth=depth, corpus="copy")
    values = ProbeValues(accuracy, gap, trials=64, chance=0.1)
    return replace(trained.result, case=case, values=values)


def as_ours(printed: PrintedMeasurement, **changes) -> Record:
    """Return a measurement of the paper as one of ours, with other fields."""
    values = {
        "method": printed.method,
        "train_length": printed.train_length,
        "length": printed.case.length,
        "stride": printed.case.stride,
        "subset": printed.case.split,
        "perplexity": printed.perplexity,
        "updates": printed.updates,
        "tokens": None,
        "options": None,
        "text": PREPARED,
    }
    return evaluation_record(**values | changes)


def settings_of(options: Mapping[str, str], architecture: str | None) -> dict[str, Any]:
    """Return options of a training by their name on the command line, as text, as settings."""
    settings: dict[str, Any] = {"data": options.get("data", "")}
    if architecture is not None:
        settings["model"] = architecture
    components = {name: text for name, text in options.items() if name in COMPONENTS}
    settings |= components
    defaults = applicable_defaults(settings)
    for name, text in options.items():
        if name == "distributed_world_size":
            settings["processes"] = plain(text)
        elif name not in components and name != "data":
            settings[_setting(name, defaults)] = True if text == "" else plain(text)
    return settings


def _setting(option: str, defaults: Mapping[str, Any]) -> str:
    """Return the setting of an option: of fields with its name, the one that is no reference."""
    for name, default in defaults.items():
        if name.partition(".")[2] == option and not str(default).startswith("${"):
            return name
    return f"model.{option}"


def parse_flags(flags: str) -> dict[str, str]:
    """Return the options of a training by their name, as text."""
    options: dict[str, str] = {}
    for word in flags.replace("=", " ").split():
        if word.startswith("--"):
            name = word.removeprefix("--").replace("-", "_")
            options[name] = ""
        else:
            options[name] = word
    return options


def document(*records: Record, corpus: str = "demo", **provenance) -> Results:
    """Return the content of a results file. Records get the seed and text that they lack."""
    origin = Provenance(**PROVENANCE | provenance)
    results = []
    for record in records:
        complete = replace(
            record,
            seed=origin.seed if record.seed is None else record.seed,
            corpus=record.corpus or corpus,
            data_sha256=record.data_sha256 or origin.data_sha256,
        )
        results.append(complete.result)
    return Results(results, origin)


def results_of(*records: Record, **values) -> list[Result]:
    """Return the results of a results file; see :func:`document`."""
    return list(document(*records, **values).results)


def cells_of(text: str) -> list[list[str]]:
    """Return the rows of the Markdown tables in a text, without the rules below the headers."""
    rows = [line.strip()[1:-1].split("|") for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in row] for row in rows]
    return [row for row in rows if not is_rule(row)]


def is_rule(row: list[str]) -> bool:
    """Return True if a row is the rule below the header of a table."""
    return all(cell and set(cell) <= set("-:") for cell in row)


@contextmanager
def figures_as_svg():
    """Draw figures in SVG only. Files of other formats are created, but empty."""
    savefig = Figure.savefig

    def only_svg(figure, stream, format, **options):
        if format == "svg":
            savefig(figure, stream, format=format, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", only_svg)
        yield
