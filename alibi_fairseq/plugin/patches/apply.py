"""Applies every workaround: importing its module puts it in place."""

from __future__ import annotations

from . import (  # noqa: F401
    byte_pieces,
    checkpoint_saving,
    datasets,
    distributed,
    gradients,
    install_hooks,
    libraries,
    resumed_training,
    safe_loading,
    startup,
)
