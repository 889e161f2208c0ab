"""Flags of ``fairseq-train`` for the models of a comparison, and their check."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ..errors import UserInputError, did_you_mean
from ..files import sha256_if_present
from ..positions.display_names import METHOD_NAMES
from ..positions.options import names_slopes_file, plain_type
from ..positions.spec import MethodSpec
from .schema import ExperimentConfig, Model
from .values import at_length

#: Longest warm-up of the learning rate, which otherwise takes a sixth of the updates.
MAX_WARMUP_UPDATES = 4000
#: Largest number of saves of a run, and the fewest updates between them.
MAX_SAVES = 20
MIN_UPDATES_BETWEEN_SAVES = 100
#: Options of ``fairseq-train`` whose values are files that a training reads.
FILE_OPTIONS = (
    "--alibi-slopes",
    "--continue-once",
    "--finetune-from-model",
    "--quantization-config-path",
)
#: Largest share of a run's time that the validations before its saves may take.
VALIDATION_SHARE = 0.1


def flags_for_weights(model: Model, lr: float, updates: int) -> list[str]:
    """Return the flags of ``fairseq-train`` that determine the weights, together with the data.

    Args:
        lr: peak learning rate.
    """
    group = model.group
    flags = ["--task", "language_modeling"]
    if "transformer_xl" in model.method.names:
        flags = ["--task", "segment_language_modeling", "--mem-len", str(model.train_length)]
    flags += ["--arch", group.arch]
    flags += model.method.flags
    flags += ["--tokens-per-sample", str(model.train_length), "--sample-break-mode", "none"]
    flags += ["--max-tokens", str(group.tokens_per_batch)]
    if group.batches_per_update > 1:
        flags += ["--update-freq", str(group.batches_per_update)]
    flags += ["--required-batch-size-multiple", "1"]
    flags += ["--max-update", str(updates), "--seed", str(model.seed)]
    flags += ["--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--clip-norm", "1.0"]
    flags += ["--lr", str(lr)]
    if group.lr_schedule == "inverse_sqrt":
        flags += ["--lr-scheduler", "inverse_sqrt"]
    else:
        # fairseq's command line does not take --total-num-update from --max-update.
        flags += ["--lr-scheduler", "polynomial_decay"]
        flags += ["--total-num-update", str(updates)]
    warmup_updates = min(max(1, updates // 6), MAX_WARMUP_UPDATES)
    flags += ["--warmup-updates", str(warmup_updates)]
    return flags + users_flags(model)


def users_flags(model: Model) -> list[str]:
    """Return the flags of ``fairseq-train`` that the configuration of a comparison adds."""
    flags = list(model.group.train_flags)
    for flag in model.group.method_flags.get(model.method, ()):
        flags.append(at_length(flag, model.train_length))
    return flags


def named_files(model: Model) -> dict[str, str]:
    """Return the SHA-256 of each file that the user's options name, such as a checkpoint or slopes.

    Values of other options do not count, even if a file has that name. A file is read again only
    when it has changed.

    Returns:
        Hashes by the names as the options have them.
    """
    file_options = {*FILE_OPTIONS, *_text_options_of_plugins(model.method.names)}
    hashes = {}
    for option, value in _options_with_values([*model.method.flags, *users_flags(model)]):
        if option not in file_options:
            continue
        if option == "--alibi-slopes" and not names_slopes_file(value):
            continue
        # Unlike Path.is_file, this accepts words that are too long for a file's name.
        digest = sha256_if_present(Path(value)) if os.path.isfile(value) else None
        if digest is not None:
            hashes[value] = digest
    return hashes


def _options_with_values(flags: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each option with its value, in either notation; options without one are left out."""
    option = ""
    for word in flags:
        if not word.startswith("--"):
            yield option, word
            continue
        option, equals, value = word.partition("=")
        if equals:
            yield option, value


def _text_options_of_plugins(methods: Sequence[str]) -> set[str]:
    """Return the options of plugins' methods with any text as value, which may name a file."""
    if METHOD_NAMES.keys() >= set(methods):
        return set()
    from ..positions.registry import is_plugin_method, method_options, methods_with

    flags = set()
    for method in methods:
        for name, option in method_options(method).items():
            if plain_type(option) is str and all(map(is_plugin_method, methods_with(name))):
                flags.add("--" + name.replace("_", "-"))
    return flags


def validation_splits(model: Model) -> tuple[str, ...]:
    """Return the names of the splits that a training is validated on."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--valid-subset", default="valid")
    known, _ = parser.parse_known_args(users_flags(model))
    return tuple(known.valid_subset.split(","))


def other_flags(model: Model, updates: int, folder: Path, valid_tokens: int | None) -> list[str]:
    """Return the flags of ``fairseq-train`` that determine no weights: saving, logging, a plugin.

    Args:
        folder: folder of the run.
        valid_tokens: number of tokens of the validation split; None if it is unknown.
    """
    tokens = updates * model.group.tokens_per_update
    save_every = updates_between_saves(updates, tokens, valid_tokens)
    flags = ["--tensorboard-logdir", str(folder / "tensorboard")]
    flags += ["--save-interval-updates", str(save_every), "--keep-interval-updates", "1"]
    flags += ["--no-epoch-checkpoints", "--log-format", "json", "--log-interval", "5"]
    if model.group.user_dir:
        flags += ["--user-dir", model.group.user_dir]
    return flags


def updates_between_saves(updates: int, tokens: int, valid_tokens: int | None) -> int:
    """Return the number of updates between two saves of a run.

    fairseq validates on the whole split before it saves. With a large split, a run therefore saves
    less often, and at least at its end and when it is stopped.

    Args:
        updates: updates of the run.
        tokens: tokens that the run trains on.
        valid_tokens: number of tokens of the validation split; None if it is unknown.
    """
    saves = MAX_SAVES
    if valid_tokens is not None:
        # A forward pass takes about a third of the time of an update.
        affordable = VALIDATION_SHARE * tokens / (valid_tokens / 3)
        saves = min(MAX_SAVES, max(1, int(affordable)))
    return max(MIN_UPDATES_BETWEEN_SAVES, updates // saves)


def check_training_options(config: ExperimentConfig) -> None:
    """Check the training options of each model, which no corpus and no seed changes.

    The data is prepared later, which may take hours.

    Raises:
        UserInputError: the architecture or an option is unknown or has a wrong value, options
            cannot be combined, or a method names more layers than the model has.
    """
    checked = set()
    for model in config.all_models():
        group = model.group
        splits = validation_splits(model)
        if len(group.lr) > 1 and "valid" not in splits:
            raise UserInputError(
                f"--valid-subset {','.join(splits)} leaves out the split valid, on which the "
                "trials of --lr are compared. Add valid to it, or pass one rate."
            )
        flags = tuple(flags_for_weights(model._replace(seed=1), group.lr[0], group.updates))
        if flags not in checked:
            checked.add(flags)
            _check_options(model, flags)


def _check_options(model: Model, flags: Sequence[str]) -> None:
    """Check the training options of a model."""
    from fairseq import options
    from fairseq.models import ARCH_MODEL_REGISTRY

    from ..positions import PositionConfig, build_position_method  # imports PyTorch

    arch = model.group.arch
    known = [name for name in ARCH_MODEL_REGISTRY if name.startswith("alibi_lm")]
    if arch not in known:
        raise UserInputError(
            f"--arch: there is no model '{arch}'.{did_you_mean(arch, known)} "
            "`alibi-fairseq models` lists them."
        )
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
