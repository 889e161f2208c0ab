"""Results that do not record the version of the plugin of their model, from earlier versions."""

from __future__ import annotations

import functools
import logging
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from .measurements import Measurement

logger = logging.getLogger(__name__)


@functools.cache
def warn_of_unknown_version(position_method: str) -> None:
    """Warn, once per position method, that the version of its plugin is not compared."""
    logger.warning(
        "Some results of '%s' do not record the version of its plugin, which is not compared.",
        position_method,
    )


def assume_known_versions(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Give measurements without a version the version of the others, if these have only one."""
    measurements = list(measurements)
    versions: dict[str, set[str]] = defaultdict(set)
    for measurement in measurements:
        if measurement.plugin_sha256 is not None:
            versions[measurement.position_method].add(measurement.plugin_sha256)
    completed = []
    for measurement in measurements:
        known = versions[measurement.position_method]
        if measurement.plugin_sha256 is None and len(known) == 1:
            warn_of_unknown_version(measurement.position_method)
            measurement = replace(measurement, plugin_sha256=next(iter(known)))
        completed.append(measurement)
    return completed
