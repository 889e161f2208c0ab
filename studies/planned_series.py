"""The series that a training run will record, before it starts."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Sequence
from typing import Any

from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from alibi_fairseq.plugin.training_series import series_from_start
from alibi_fairseq.results.series import Series

#: Held while hydra works, because it keeps its state in the process, and runs plan in threads.
_HYDRA = threading.Lock()


def planned_series(data: str, flags: Sequence[str], plugin: str | None = None) -> Series:
    """Return the series that a training run on one process will have, without its facts.

    Args:
        data: fairseq's data argument.
        flags: options of ``fairseq-train``.
        plugin: hash of the plugin of the position method, or None.
    """
    with _HYDRA:
        cfg = _parse_config(data, tuple(flags))
    return series_from_start(cfg, 1, plugin)


@functools.cache
def _parse_config(data: str, flags: tuple[str, ...]) -> Any:
    """Return fairseq's configuration of a training run, for which hydra takes 0.3 seconds."""
    arguments = options.parse_args_and_arch(options.get_training_parser(), [data, *flags])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # hydra's advice to the authors of fairseq
        return convert_namespace_to_omegaconf(arguments)
