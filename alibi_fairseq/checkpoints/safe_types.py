"""The types that a checkpoint of fairseq may hold: values, and nothing that could run code."""

from __future__ import annotations

import argparse
import typing
from collections import defaultdict
from contextlib import AbstractContextManager

import numpy
import omegaconf
import torch
from omegaconf.base import ContainerMetadata, Metadata
from omegaconf.nodes import AnyNode

SAFE_TYPES = [
    argparse.Namespace,
    omegaconf.DictConfig,
    omegaconf.ListConfig,
    ContainerMetadata,
    Metadata,
    AnyNode,
    defaultdict,
    *(bool, dict, float, int, list, str),
    (typing.Any, "typing.Any"),
    numpy.dtype,
    *(type(numpy.dtype(kind)) for kind in ("float32", "float64", "int64")),
    (numpy.float64(0).__reduce__()[0], "numpy.core.multiarray.scalar"),
    (numpy.float64(0).__reduce__()[0], "numpy._core.multiarray.scalar"),
]


def safe_types_allowed(*more: type) -> AbstractContextManager:
    """Inside the block ``torch.load(…, weights_only=True)`` also reads ``SAFE_TYPES`` and ``more``,
    which checkpoints of older fairseq hold (facebookresearch/fairseq#5610); it refuses all others.
    """
    return torch.serialization.safe_globals([*SAFE_TYPES, *more])
