"""Sweep: the cases that an evaluation measures, and the results that it should have of them.

A sweep follows from the settings of an evaluation and the contents of its data. The evaluation
itself measures its cases, and the runs of an experiment ask it which results are missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Literal

from ..data.probe_data import PROBE_FILE
from ..data.probes import DEPTHS
from ..positions.plugin_sources import plugin_sha256
from ..positions.spec import split_at_commas
from ..results.case import Case
from ..results.data_folder import DataFolder
from ..results.result import Identity, Result, is_wanted
from ..results.series import Reading, Series
from ..results.settings import selection
from .config import SweepConfig
from .split_identity import SplitIdentity, identify_probe, identify_split

if TYPE_CHECKING:
    from .split import Split


@dataclass(frozen=True)
class WeightsIdentity:
    """Weights of a checkpoint or of a Hugging Face folder, without their tensors.

    Attributes:
        series: how they were trained.
        seed: seed of the training; None if unknown.
        at: checkpoint of the training, as in :class:`..results.series.Reading`.
        updates: update count of the checkpoint; None if unknown.
        variant: name in tables, besides position method and training length.
    """

    series: Series
    seed: int | None
    at: int | Literal["best"] | None
    updates: int | None = None
    variant: str = ""

    @classmethod
    def of_result(cls, result: Result) -> WeightsIdentity:
        """Return the identity of the weights that a result is of."""
        return cls(result.series, result.seed, result.reading.at, result.updates)


@dataclass(frozen=True)
class Sweep:
    """Settings of an evaluation, and its data, known by their contents.

    Attributes:
        config: settings of the evaluation.
        kind: kind of its cases, as in :class:`..results.case.Case`.
        identities: contents of each split, by name. A probe has one split, without a name.
        corpus: name of the text or of the probe, which doesn't count.
    """

    config: SweepConfig
    kind: Literal["text", "probe"]
    identities: Mapping[str, SplitIdentity]
    corpus: str = ""

    @classmethod
    def of_data(
        cls,
        config: SweepConfig,
        folder: DataFolder,
        corpus: str = "",
        splits: Mapping[str, Split] = {},
    ) -> Sweep:
        """Return the sweep over the data that an evaluation reads.

        Args:
            folder: the folder with the data.
            corpus: name of the text or of the probe.
            splits: splits that have been read already, by name.
        """
        if (folder.path / PROBE_FILE).is_file():
            return cls(config, "probe", {"": identify_probe(folder.path)}, corpus)
        identities = {}
        for name in config.splits:
            identities[name] = identify_split(folder, name, config.per_document, splits.get(name))
        return cls(config, "text", identities, corpus)

    @cached_property
    def cases(self) -> list[Case]:
        """What is measured, each case once, in this order.

        On a text, these are all combinations of split, length, and stride; on a probe, which has
        neither splits nor strides, of length and depth.
        """
        cases = self._probe_cases() if self.kind == "probe" else self._text_cases()
        return list(dict.fromkeys(cases))

    def _text_cases(self) -> list[Case]:
        """Return the cases of a text."""
        config = self.config
        cases = []
        for split, (length, stride) in product(config.splits, config.windows()):
            identity = self.identities[split]
            # Where documents begin matters only if windows begin there, or each document is
            # tokenized on its own.
            documents_matter = config.has_scored_range or identity.tokens_sha256 is not None
            case = Case(
                kind="text",
                text=identity.sha256,
                split=split,
                length=length,
                stride=stride,
                documents=identity.documents if documents_matter else None,
                score_from=config.score_from or 0,
                score_to=config.score_to,
                tokens=identity.tokens_sha256,
                corpus=self.corpus,
                separator=config.per_document or "",
            )
            cases.append(case)
        return cases

    def _probe_cases(self) -> list[Case]:
        """Return the cases of a probe, whose sequences are one window each."""
        ((split, identity),) = self.identities.items()
        cases = []
        for length, depth in product(self.config.lengths, DEPTHS):
            case = Case(
                kind="probe",
                text=identity.sha256,
                split=split,
                length=length,
                stride=length,
                depth=depth,
                corpus=self.corpus,
            )
            cases.append(case)
        return cases

    def result_identity(self, case: Case, weights: WeightsIdentity) -> Identity:
        """Return the identity of the result that an evaluation of a model's weights has of a case.

        Args:
            case: one of :attr:`cases`.
        """
        return Identity(weights.series, self._reading(weights), weights.seed, case)

    def _reading(self, weights: WeightsIdentity) -> Reading:
        """Return which weights the evaluation reads, and how."""
        settings = weights.series.settings
        overrides = dict(self.config.overrides or {})
        plugin = plugin_sha256(_method_names(weights.series, overrides))
        if plugin != settings.get("plugin"):  # edited since, or another method
            overrides["plugin"] = plugin
        return Reading(
            at=weights.at,
            selection=selection(settings) if weights.at == "best" else None,
            overrides=overrides,
            precision=self.config.precision,
            variant=weights.variant,
        )

    def find(self, known: Sequence[Result]) -> dict[Case, Result]:
        """Return the results that the evaluation should have and has, by case.

        Args:
            known: results of one checkpoint. The last one records how it was trained.
        """
        if not known:
            return {}
        last = known[-1]
        weights = WeightsIdentity.of_result(last)
        wanted = {}
        for case in self.cases:
            wanted[case] = self.result_identity(case, weights)
        found = {}
        for result in known:
            identity = wanted.get(result.case)
            if identity is None:
                continue
            # Their losses are wanted even if the case doesn't depend on where documents begin.
            documents = self.identities[result.case.split].documents
            if is_wanted(result, identity, documents, last.checkpoint_sha256):
                found[result.case] = result
        return found


def _method_names(series: Series, overrides: dict) -> Sequence[str]:
    """Return the position methods of the layers at evaluation."""
    if "position_method" in overrides:
        return split_at_commas(str(overrides["position_method"]))
    return series.method.names


def of_checkpoint(results: Iterable[Result], checkpoint: Path, sha256: str | None) -> list[Result]:
    """Return the results of a checkpoint, the oldest first.

    Args:
        checkpoint: path of the checkpoint. Its folder may have been moved.
        sha256: hash of its present contents; None if they are unknown, and do not matter.
    """
    found = []
    for result in results:
        if PurePath(result.checkpoint or "").name != checkpoint.name:
            continue
        if sha256 in (None, result.checkpoint_sha256):
            found.append(result)
    return found
