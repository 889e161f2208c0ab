"""Check of a comparison's training options before its data is prepared, which may take hours."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from fairseq import options
from fairseq.models import ARCH_MODEL_REGISTRY

from ..errors import UserInputError, did_you_mean
from ..positions import MethodSpec, PositionConfig, build_position_method
from .schema import ExperimentConfig, Model
from .training_flags import flags_for_weights


def check_training_options(config: ExperimentConfig) -> None:
    """Check the training options of each model, which no corpus and no seed changes.

    Raises:
        UserInputError: the architecture or an option is unknown or has a wrong value, options
            cannot be combined, or a method names more layers than the model has.
    """
    checked = set()
    for model in config.all_models():
        group = model.group
        flags = tuple(flags_for_weights(model._replace(seed=1), group.lr[0], group.updates))
        if flags not in checked:
            checked.add(flags)
            _check_options(model, flags)


def _check_options(model: Model, flags: Sequence[str]) -> None:
    """Check the training options of a model."""
    arch = model.group.arch
    _check_arch(arch)
    defaults = vars(ARCH_MODEL_REGISTRY[arch].config())
    args = options.parse_args_and_arch(options.get_training_parser(), ["data", *flags])
    model_options = defaults | vars(args)
    method = MethodSpec.from_options(argparse.Namespace(**model_options))
    config = PositionConfig(
        embed_dim=model_options["decoder_embed_dim"],
        num_heads=model_options["decoder_attention_heads"],
        # One layer per listed method, to save memory; the parameters are not used.
        num_layers=len(method.layers),
        train_length=model.train_length,
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
