"""Command ``alibi-fairseq completion``: a script for the completion of commands and options."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import PROGRAM
from ..options import option
from .options import CliCommand


@dataclass
class Completion(CliCommand):
    """Options of ``alibi-fairseq completion``.

    The script contains all names, so that the shell starts no Python when a user types.
    """

    shell: str = option("shell to complete in", metavar="bash|zsh", choices=["bash", "zsh"])

    def __call__(self) -> None:
        import shtab

        from . import COMMANDS, make_parser

        print(shtab.complete(make_parser(COMMANDS), self.shell, PROGRAM))
