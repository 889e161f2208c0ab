"""Workarounds for NumPy, logging, hydra, and omegaconf."""

from __future__ import annotations

import logging
import os
import sys
import types
import warnings
from functools import partial

import numpy
import omegaconf
from fairseq.data import language_pair_dataset, token_block_dataset

from ...errors import is_command
from . import patch_method


def provide_numpy_compat() -> None:
    """Give fairseq's modules the ``np.compat`` that NumPy 2 has removed (numpy/numpy#28961).

    fairseq uses it to cut text into sentences: ``fairseq-interactive``, ``score`` and ``sample``
    fail without it. NumPy itself is left unchanged.
    """
    if not hasattr(numpy, "compat"):
        module = types.ModuleType("numpy")
        vars(module)["__getattr__"] = partial(getattr, numpy)
        vars(module)["compat"] = types.SimpleNamespace(long=int)
        token_block_dataset.np = module
        language_pair_dataset.np = module


def restore_logging() -> None:
    """Configure logging again as fairseq's commands do before they import this package.

    Importing the models of fairseq 0.12.3 makes the root logger print everything to stderr
    (``wav2vec2_classification``), and a command's own configuration is then ignored (as in
    facebookresearch/fairseq#3592).
    """
    root = logging.getLogger()
    formats = [getattr(handler.formatter, "_fmt", None) for handler in root.handlers]
    if root.level == logging.DEBUG and formats == [logging.BASIC_FORMAT] and is_command():
        logging.basicConfig(
            format="%(asctime)s | %(levelname)s | %(name)s | %(message)s",
            datefmt="%Y-%m-%d %H:%M:%S",
            level=os.environ.get("LOGLEVEL", "INFO").upper(),
            stream=sys.stdout,
            force=True,
        )


def silence_hydra_advice() -> None:
    """Silence the advice of hydra 1.1 and later on the forms of 1.0 that fairseq still uses.

    It fills thirty lines at every start (facebookresearch/fairseq#4133), among which the sentence
    about an error is lost.
    """
    if is_command():
        warnings.filterwarnings("ignore", category=UserWarning, module=r"hydra\.")
        advice = r"(?s)\s*('[^']*' is validated against|The version_base|Future Hydra versions)"
        warnings.filterwarnings("ignore", advice, UserWarning)


def resolve_relative_interpolations() -> None:
    """Resolve ``${.option}`` in the section that holds it (omry/omegaconf#48).

    fairseq 0.12.2 requires omegaconf 2.0, which looks for every name from the root. The root of
    ``fairseq-hydra-train`` has only the options that are given, so that absolute names of a
    model's own options cannot be resolved there.
    """
    if not omegaconf.__version__.startswith("2.0."):
        return

    @patch_method(omegaconf.Container, "_resolve_simple_interpolation")
    def resolve(original, section, **keywords):
        name = keywords["inter_key"]
        value = None
        if keywords["inter_type"] is None and name.startswith("."):
            _, _, value = section._select_impl(
                name[1:],
                throw_on_missing=keywords["throw_on_missing"],
                throw_on_resolution_failure=keywords["throw_on_resolution_failure"],
            )
        return original(section, **keywords) if value is None else value


provide_numpy_compat()
restore_logging()
silence_hydra_advice()
resolve_relative_interpolations()
