"""Options of a training command that determine the trained model."""

from __future__ import annotations

import re
import shlex
from functools import lru_cache
from pathlib import Path

_HYDRA_PROGRAMS = ("hydra-train", "fairseq-hydra-train")
_PROGRAMS = ("train", "train.py", "fairseq-train", *_HYDRA_PROGRAMS)
# Option of Hydra, such as ``optimization.lr=[0.1]``. A plus sign adds a key to the configuration.
_HYDRA_OPTION = re.compile(r"\+{0,2}(?P<group>[a-z_]+)\.(?P<key>\w+)=(?P<value>.*)", re.DOTALL)
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
# Options that depend on the corpus. The data folder has no name, but it has one in Hydra.
_CORPUS_OPTIONS = ("", "--data", "--lr")


@lru_cache(maxsize=4096)
def model_options(command: str) -> tuple[tuple[str, str], ...]:
    """Return the options that determine the model except for its seed, sorted by name.

    The program is left out. The last value of a repeated option counts, as in argparse.

    Words are assigned to the option before them, because it is not known which options are flags.
    The data folder, which is the only positional argument, has the empty name if it follows the
    program or an ignored option. Options of Hydra are renamed: ``common.seed=1`` is ``--seed 1``.
    """
    try:
        words = shlex.split(command)
    except ValueError:  # an unclosed quotation mark
        return (("", command),)
    options: dict[str, list[str]] = {}
    positional: list[str] = []
    values = positional  # list that the next words are added to unless they are options
    skip_next = False
    for word in _arguments(words):
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
    return tuple(option for option in model_options(command) if option[0] not in _CORPUS_OPTIONS)


def values_in_command(command: str) -> dict[str, str]:
    """Return the value of each option of :func:`model_options`, by the name of its field.

    The value of a flag is the empty text.
    """
    values: dict[str, str] = {}
    for name, text in model_options(command):
        if name:
            values[name.removeprefix("--").replace("-", "_")] = text
    return values


def _arguments(words: list[str]) -> list[str]:
    """Return the arguments of the training program, or all words if there is none."""
    for index, word in enumerate(words):
        program = Path(word).name
        if program in _HYDRA_PROGRAMS:
            # Options of the group "hydra" concern only the files that Hydra writes.
            arguments = [word for word in words[index + 1 :] if not word.startswith("hydra.")]
            return [_hydra_argument(word) for word in arguments]
        if program in _PROGRAMS:
            return words[index + 1 :]
    return words


def _hydra_argument(word: str) -> str:
    """Convert an option of Hydra to the one of fairseq-train. Other words are not changed."""
    option = _HYDRA_OPTION.fullmatch(word)
    if option is None:
        return word
    name = option["key"]
    if name == "_name":  # "_name" selects the component of a group
        name = "arch" if option["group"] == "model" else option["group"]
    flag = "--" + name.replace("_", "-")
    return f"{flag}={option['value']}"
