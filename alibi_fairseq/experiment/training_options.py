"""Check of a comparison's training options before its data is prepared, which may take hours."""

from __future__ import annotations

import argparse
from pathlib import Path

from fairseq import options
from fairseq.models import ARCH_MODEL_REGISTRY

from ..errors import UserInputError, did_you_mean
from ..positions import MethodSpec, PositionConfig, build_position_method
from .comparison_config import ComparisonConfig
from .comparison_runs import build_run


def check_training_options(comparison: ComparisonConfig, folder: Path) -> None:
    """Check the training options of each method.

    Args:
        folder: output folder of the comparison.

    Raises:
        UserInputError: the architecture or an option is unknown or has a wrong value, options
            cannot be combined, or a method names more layers than the model has.
    """
    _check_arch(comparison.arch)
    defaults = vars(ARCH_MODEL_REGISTRY[comparison.arch].config())
    # Corpora, seeds, and learning rates have no options to check.
    specs = {(spec.method, spec.train_length): spec for spec in comparison.model_specs()}
    for spec in specs.values():
        run = build_run(comparison, spec, folder, folder, comparison.lr[0])
        parser = options.get_training_parser()
        args = options.parse_args_and_arch(parser, [run.data, *run.flags])
        model_options = defaults | vars(args)
        method = MethodSpec.from_options(argparse.Namespace(**model_options))
        config = PositionConfig(
            embed_dim=model_options["decoder_embed_dim"],
            num_heads=model_options["decoder_attention_heads"],
            # One layer per listed method, to save memory; the parameters are not used.
            num_layers=len(method.layers),
            train_length=spec.train_length,
            key_value_heads=model_options["key_value_heads"],
        )
        build_position_method(method, config)


def _check_arch(arch: str) -> None:
    """Check that a model of this package has the name.

    Raises:
        UserInputError: there is none.
    """
    known = [name for name in ARCH_MODEL_REGISTRY if name.startswith("alibi_lm")]
    if arch not in known:
        raise UserInputError(
            f"--arch: there is no model '{arch}'.{did_you_mean(arch, known)} "
            "`alibi-fairseq models` lists them."
        )
