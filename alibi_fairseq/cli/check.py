"""Command ``alibi-fairseq check``: tests of position methods."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..options import names, option
from .options import CliCommand, plugin_option


@dataclass
class Check(CliCommand):
    """Options of ``alibi-fairseq check``, which checks position methods as the built-in ones are.

    It exits with 1 if a check fails.
    """

    methods: list[str] = option(
        "position methods, with options as in compare (default: the plugin's, or all, with the "
        "defaults of their options and with each true-or-false option switched)",
        (),
        type=names,
        metavar="A,B,…",
    )
    out: Path | None = option(
        "also write the table to this file: in LaTeX if it ends in .tex, otherwise in Markdown",
        None,
        metavar="FILE",
    )
    user_dir: str | None = plugin_option()

    def __call__(self) -> int:
        """Check each method, and print a table.

        Raises:
            UserInputError: a method does not exist.
        """
        from ..checks.candidate import Candidate
        from ..checks.checks import CHECKS, run_checks
        from ..checks.table import outcomes_table
        from ..evaluation.device import find_device
        from ..files import atomic_write
        from ..positions import MethodSpec
        from ..progress_bar import make_progress_bar
        from ..reporting import latex, markdown

        device = find_device("auto")
        methods = self.methods or default_methods()
        outcomes = {}
        with make_progress_bar(len(methods) * len(CHECKS), "checking", "check") as bar:
            for method in methods:
                candidate = Candidate(method, tuple(MethodSpec.parse(method).flags), device)
                outcomes[method] = run_checks(candidate, bar.update)
        table = outcomes_table(outcomes, device)
        print(markdown.to_markdown([table]), end="")
        if self.out is not None:
            if self.out.suffix == ".tex":
                text = latex.document_part([table], "check")
            else:
                text = markdown.to_markdown([table])
            with atomic_write(self.out) as stream:
                stream.write(text)
        failed = [
            method
            for method, by_check in outcomes.items()
            if not all(outcome.passed for outcome in by_check.values())
        ]
        if failed:
            print(f"Failed: {', '.join(failed)}.")
        return 1 if failed else 0


def default_methods() -> list[str]:
    """Return the methods of the imported plugin, or all methods without one.

    A method with options of type bool is repeated with the other value of each.
    """
    from ..positions import METHODS, is_plugin_method
    from ..positions.registry import method_options

    names = [name for name in METHODS if is_plugin_method(name)] or list(METHODS)
    notations = []
    for name in names:
        notations.append(name)
        for field in method_options(name).values():
            if isinstance(field.default, bool):
                notations.append(f"{name}/{field.name}={str(not field.default).lower()}")
    return notations
