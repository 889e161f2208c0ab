"""Options of a training command that determine the trained model."""

from __future__ import annotations

import shlex
from functools import lru_cache
from pathlib import Path

_PROGRAMS = ("train", "train.py", "fairseq-train", "fairseq-hydra-train")
# Options that name the run or concern the machine: where files go, how often is logged, which
# checkpoints are deleted. Options that change the tokens of an update are not among them.
_IGNORED_WITH_VALUE = {
    "--seed",
    "--save-dir",
    "--tensorboard-logdir",
    "--user-dir",
    "--num-workers",
    "--log-interval",
    "--log-format",
    "--log-file",
    "--wandb-project",
    "--aim-repo",
    "--aim-run-hash",
    "--keep-interval-updates",
    "--keep-last-epochs",
    "--keep-best-checkpoints",
    "--device-id",
    "--local_rank",
    "--distributed-init-method",
    "--distributed-port",
    "--distributed-rank",
    "--distributed-backend",
    "--data-buffer-size",
    "--stop-time-hours",
}
_IGNORED_FLAGS = {
    "--cpu",
    "--no-progress-bar",
    "--no-epoch-checkpoints",
    "--no-last-checkpoints",
    "--distributed-no-spawn",
    "--azureml-logging",
}


@lru_cache(maxsize=4096)
def model_options(command: str) -> tuple[tuple[str, str], ...]:
    """Return the options that determine the model except for its seed, sorted by name.

    The program is left out. The last value of a repeated option counts, as in argparse.

    Words are assigned to the option before them, because it is not known which options are flags.
    The data folder, which is the only positional argument, has the empty name if it follows the
    program or an ignored option.
    """
    try:
        words = shlex.split(command)
    except ValueError:  # an unclosed quotation mark
        return (("", command),)
    options: dict[str, list[str]] = {}
    positional: list[str] = []
    values = positional  # list that the next words are added to unless they are options
    skip_next = False
    for word in _without_program(words):
        if skip_next:
            skip_next = False
            continue
        if not word.startswith("--"):
            values.append(word)
            continue
        name, equals, value = word.partition("=")
        if name in _IGNORED_WITH_VALUE:
            values = positional
            skip_next = not equals
        elif name in _IGNORED_FLAGS:
            values = positional
        else:
            values = [value] if equals else []
            options[name] = values
    pairs = [(name, " ".join(option_values)) for name, option_values in options.items()]
    return (("", " ".join(positional)), *sorted(pairs))


def options_of_any_corpus(command: str) -> tuple[tuple[str, str], ...]:
    """Return the options of :func:`model_options` without those that depend on the corpus.

    These are the data folder and the learning rate, which is tuned on the corpus.
    """
    return tuple(option for option in model_options(command) if option[0] not in ("", "--lr"))


def values_in_command(command: str) -> dict[str, str]:
    """Return the value of each option that a training command sets, by the name of its field.

    The value of a flag is the empty text. Options of ``hydra-train`` such as
    ``model.alibi_scale=4`` are included without their group.
    """
    values: dict[str, str] = {}
    for name, text in model_options(command):
        if name:
            values[name.removeprefix("--").replace("-", "_")] = text
        for word in text.split():
            key, equals, value = word.partition("=")
            if equals:
                values[key.rpartition(".")[2]] = value
    return values


def _without_program(words: list[str]) -> list[str]:
    """Return the words after the training program, or all words if there is none."""
    for index, word in enumerate(words):
        if Path(word).name in _PROGRAMS:
            return words[index + 1 :]
    return words
