"""Options of a training command that determine the trained model."""

from __future__ import annotations

import shlex
from functools import lru_cache
from pathlib import Path

# Options that name the run or concern the machine: where files go, how often is logged, which
# checkpoints are deleted. Options that change the tokens of an update are not among them.
_WITH_VALUE = {
    *("--seed", "--save-dir", "--tensorboard-logdir", "--user-dir", "--num-workers"),
    *("--log-interval", "--log-format", "--log-file", "--wandb-project", "--aim-repo"),
    *("--aim-run-hash", "--keep-interval-updates", "--keep-last-epochs"),
    *("--keep-best-checkpoints", "--device-id", "--local_rank", "--distributed-init-method"),
    *("--distributed-port", "--distributed-rank", "--distributed-backend"),
    *("--data-buffer-size", "--stop-time-hours"),
}
_WITHOUT_VALUE = {
    *("--cpu", "--no-progress-bar", "--no-epoch-checkpoints", "--no-last-checkpoints"),
    *("--distributed-no-spawn", "--azureml-logging"),
}


@lru_cache(maxsize=4096)
def model_options(command: str) -> tuple[tuple[str, str], ...]:
    """Return the options that determine the model except for its seed, sorted by name.

    The program is left out, and of a repeated option the last value counts, as in argparse. The
    data folder, the only positional argument, is a part of the values.
    """
    try:
        words = shlex.split(command)
    except ValueError:  # an unclosed quotation mark
        return (("", command),)
    programs = [place for place, word in enumerate(words) if _is_program(word)]
    words = words[programs[0] + 1 :] if programs else words
    options: dict[str, list[str]] = {}
    positional: list[str] = []
    values = positional
    skip_next = False
    for word in words:
        if skip_next:
            skip_next = False
        elif not word.startswith("--"):
            values.append(word)
        else:
            name, equals, value = word.partition("=")
            values = positional
            if name in _WITH_VALUE:
                skip_next = not equals
            elif name not in _WITHOUT_VALUE:
                values = options[name] = [value] if equals else []
    found = {name: " ".join(given) for name, given in options.items()}
    return (("", " ".join(positional)), *sorted(found.items()))


def options_of_any_corpus(command: str) -> tuple[tuple[str, str], ...]:
    """Return the options of :func:`model_options` without those that depend on the corpus.

    These are the data folder and the learning rate, which is tuned on the corpus.
    """
    return tuple(option for option in model_options(command) if option[0] not in ("", "--lr"))


def _is_program(word: str) -> bool:
    return Path(word).name in ("train", "train.py", "fairseq-train", "fairseq-hydra-train")
