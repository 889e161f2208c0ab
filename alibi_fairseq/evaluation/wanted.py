"""Result that an evaluation of a checkpoint should have, by the rule for what is missing.

The evaluation and the runs of an experiment both ask :func:`..results.result.missing`. A checkpoint
is known by its contents: how it was trained is recorded with its results.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..positions.plugin_sources import plugin_sha256
from ..results.case import Case
from ..results.result import Wanted
from ..results.series import Reading, Series
from ..results.settings import selection
from .cases import EvaluatedData
from .config import SweepConfig
from .weights import Weights


def wanted_result(config: SweepConfig, data: EvaluatedData, case: Case, weights: Weights) -> Wanted:
    """Return the result of a case that an evaluation of a checkpoint should have.

    The losses of documents are wanted if the evaluation knows where they begin, even if the case
    doesn't depend on it.

    Args:
        case: one of :func:`.cases.list_cases`.
    """
    settings = weights.series.settings
    overrides = dict(config.overrides or {})
    plugin = plugin_sha256(_method_names(weights.series, overrides))
    if plugin != settings.get("plugin"):  # edited since, or another method
        overrides["plugin"] = plugin
    reading = Reading(
        at=weights.at,
        selection=selection(settings) if weights.at == "best" else None,
        overrides=overrides,
        precision=config.precision,
        variant=weights.variant,
    )
    documents = data.splits[case.split].documents
    return Wanted(
        series=weights.series,
        seed=weights.seed,
        reading=reading,
        case=case,
        details=frozenset() if documents is None else frozenset({"documents"}),
        documents=documents,
        checkpoint_sha256=weights.sha256,
    )


def _method_names(series: Series, overrides: dict) -> Sequence[str]:
    """Return the position methods of the layers at evaluation."""
    if "position_method" in overrides:
        return str(overrides["position_method"]).split(",")
    return series.method.names
