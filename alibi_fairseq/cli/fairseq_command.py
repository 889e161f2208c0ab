"""fairseq's own commands with this package as ``--user-dir``."""

from __future__ import annotations

import sys
from importlib import import_module

from ..errors import BadInput
from ..user_dir import FOLDER, is_this_package
from . import PROGRAM


def run(verb: str, arguments: list[str]) -> int:
    """Run ``fairseq-<verb>`` in this process.

    Args:
        verb: as in ``FAIRSEQ_COMMANDS``.
        arguments: the command line behind the verb, handed on as it is.
    """
    try:
        import fairseq_cli  # noqa: F401
    except ModuleNotFoundError as error:
        raise BadInput(
            f"fairseq is not installed; `{PROGRAM} check-env` says how to install it."
        ) from error

    if verb == "hydra-train":
        from . import hydra_train

        command, main = hydra_train.with_user_dir(arguments), hydra_train.main
    else:
        _check_user_dir(arguments)
        command = [*arguments, "--user-dir", str(FOLDER)]
        main = import_module(f"fairseq_cli.{verb.replace('-', '_')}").cli_main
    sys.argv = [f"{PROGRAM} {verb}", *command]
    main()
    return 0


def _check_user_dir(arguments: list[str]) -> None:
    """fairseq knows one ``--user-dir``; a plugin that builds on this one imports it."""
    for flag, following in zip(arguments, [*arguments[1:], ""]):
        name, _, value = flag.partition("=")
        if name == "--user-dir" and not is_this_package(value or following):
            raise BadInput(
                f"{PROGRAM} sets --user-dir itself and fairseq takes only one; for a plugin of "
                "your own that imports alibi_fairseq, use fairseq's command."
            )
