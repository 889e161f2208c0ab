"""Command-line errors and exit codes.

A command that fails prints one sentence to stderr. Its exit code is 2 for bad input and 1 for an
unexpected error.
"""

from __future__ import annotations

import difflib
import errno
import io
import logging
import os
import re
import sys
import tempfile
import textwrap
import traceback
from collections.abc import Collection, Iterable, Mapping
from contextlib import redirect_stderr, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError

#: This project's command, its package, and the folder of the package.
PROGRAM = "alibi-fairseq"
PACKAGE = "alibi_fairseq"
FOLDER = Path(__file__).resolve().parent
#: Part of the line by which a command reports an error, behind the name of the program.
ERROR = ": error: "
#: Exit code of a command that rejects its input.
BAD_INPUT = 2
#: Exit code of a run that saved and stopped because of a signal: start it again later
#: (``EX_TEMPFAIL`` of sysexits.h).
STOPPED_EARLY = 75
#: Environment variable with the path of a file to which a worker of torchrun writes its exit code
#: if it was stopped early. The worker itself exits with 0, since torchrun starts workers again
#: after any other code.
EXIT_CODE_FILE = "ALIBI_EXIT_CODE_FILE"
#: Exit code after Ctrl-C, as in a shell: 128 plus the number of the signal.
INTERRUPTED = 130


class UserInputError(ValueError):
    """Input that cannot be used. The message says what is wrong and what to do about it.

    Commands print it on one line and exit with code 2; libraries let it through.
    """


def is_command() -> bool:
    """Return True if this process is a command of fairseq or of this project."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    module = spec.name if spec else ""
    program = Path(sys.argv[0] if sys.argv else "")
    if str(program) == "-m":  # python -m imports the package before it sets anything else
        module = _module_of_command_line()
    return (
        module.split(".")[0] in ("fairseq_cli", PACKAGE)
        or program.name.startswith(("fairseq-", PROGRAM))
        or program.parent.name == "fairseq_cli"
    )


def _module_of_command_line() -> str:
    """Return the module that ``python -m`` runs, or an empty string if no option names one.

    ``-m`` can follow other options in a cluster, ``-um NAME``, and its value can be part of it,
    ``-mNAME``. The options ``-c``, ``-W``, and ``-X`` have values, which are no such clusters.
    """
    following = [*sys.orig_argv[2:], ""]
    for argument, value in zip(sys.orig_argv[1:], following):
        cluster = re.fullmatch("-[^-cWX]*?m(.*)", argument)
        if cluster:
            return cluster[1] or value
    return ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'NAME'?`` for the most similar name; empty if none is similar."""
    nearest = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean '{nearest[0]}'?" if nearest else ""


def unmet(requirement: object, value: object) -> str:
    """Return what a value must be, and what it is: ``must be a valid number, not 'x'``.

    Args:
        requirement: ``must be …``, and possibly a fix after a semicolon.
    """
    required, semicolon, fix = str(requirement).partition("; ")
    shown = "null" if value is None else repr(value)
    if len(shown) > _MAX_SHOWN:
        shown = f"{shown[: _MAX_SHOWN - 1]}…"
    return f"{required}, not {shown}{semicolon}{fix}"


def describe_invalid(
    error: ValidationError,
    flags: Mapping[str, str] = MappingProxyType({}),
    left_out: Collection[str] = (),
) -> str:
    """Return a sentence about the first value that pydantic rejected.

    It names the option or the path of the key: ``lr[0] must be a valid number, not 'x'.``

    Args:
        flags: options by key.
        left_out: keys of lists that the input leaves out, because they have one item.
    """
    problem = error.errors(include_url=False)[0]
    name = ""
    path = list(problem["loc"])
    for key in left_out:
        if key in path:
            position = path.index(key)
            del path[position : position + 2]  # with its index
    for part in path:
        if part in flags:
            name = flags[str(part)]
            break
        name += f"[{part}]" if isinstance(part, int) else f".{part}"
    name = name.removeprefix(".")
    requirement = _requirement(problem)
    if requirement.startswith("must "):
        sentence = f"{name or 'the content'} {unmet(requirement, problem['input'])}"
    elif problem["type"] == "missing":
        sentence = f"{name} {requirement}"
    elif name:
        sentence = f"{name}: {requirement}"
    else:  # of several values, and most messages then begin with a key
        key, colon, rest = requirement.partition(": ")
        sentence = f"{flags.get(key, key)}{colon}{rest}"
    return sentence if sentence.endswith("?") else f"{sentence}."


def _requirement(problem: Mapping[str, Any]) -> str:
    """Return what a value must be, or what is wrong with it, from an error of pydantic."""
    if problem["type"] == "missing":
        return "is missing"
    if problem["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return "there is no such key"
    text = problem["msg"].removeprefix("Value error, ").removesuffix(".")
    text = re.sub(r"^(Input|String|Tuple|List|Dictionary) should", "must", text)
    return re.sub(r", unable to parse.*| after validation, not \d+", "", text)


def usage_error(message: str, program: str) -> UserInputError:
    """Return the error for a message of argparse, with a suggestion for a misspelled choice."""
    flag, colon, problem = message.removeprefix("argument ").partition(": ")
    choice = re.fullmatch(r"invalid choice: '(.*)' \(choose from (.*)\)", problem, re.DOTALL)
    if choice:
        value, listed = choice.groups()
        choices = [choice.strip("' ") for choice in listed.split(",")]
        problem = f"there is no '{value}'.{did_you_mean(value, choices)}"
        if len(choices) <= _FEW_CHOICES:
            problem += f" Choose from {', '.join(choices)}"
    if problem.startswith("must "):
        colon = " "
    sentence = f"{flag}{colon}{problem}"
    if not sentence.endswith((".", "?")):
        sentence += "."
    return UserInputError(f"{sentence} `{program} --help` lists the options.")


def install_excepthook() -> None:
    """End a command with one sentence on an uncaught exception (:func:`print_error`)."""
    # A log that cannot be written does not end a training, nor print a traceback for each line.
    logging.raiseExceptions = False
    # Or Hydra prints its own report and exits with 1.
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")

    def hook(kind, exception, trace):
        # In a distributed run, torch's hook calls this one and captures its output.
        with redirect_stderr(sys.__stderr__):
            code = print_error(exception)
        # Python ends with the code of a SystemExit that its hook raises.
        raise SystemExit(code)

    sys.excepthook = hook


def print_error(exception: BaseException) -> int:
    """Print one sentence about an exception that ends a command of fairseq or of this project.

    Returns:
        The exit code: 2 for bad input, 130 for Ctrl-C, and 1 for anything else, whose traceback is
        in a file that the sentence names, or printed if the file cannot be written.
    """
    try:
        sys.stdout.flush()
    except OSError:
        # Otherwise the interpreter tries again when it ends, and complains.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(exception, KeyboardInterrupt):
        sentence = ": interrupted"
        code = INTERRUPTED
    else:
        known = explain(exception)
        sentence = ERROR + (known or _unexpected(exception))
        code = BAD_INPUT if known else 1
    program = Path(sys.argv[0]).name
    if not program.startswith(("fairseq-", PROGRAM)):
        program = PROGRAM
    sentence = escape_unprintable(sentence)
    # Not print, which fairseq replaces in the processes of a distributed run.
    try:
        sys.stderr.write(f"{program}{sentence}\n")
        sys.stderr.flush()
    except OSError:
        # stderr is closed or full, which may be the error itself.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
        sys.stdout.write(f"{program}{sentence}\n")
    return code


def escape_unprintable(text: str) -> str:
    """Return a text with escapes for the characters by which a file could control a terminal."""
    characters = []
    for character in text:
        if not character.isprintable():
            character = character.encode("unicode_escape").decode()
        characters.append(character)
    return "".join(characters)


def _unexpected(exception: BaseException) -> str:
    """Write the traceback of an exception to a file; return type, message, and file name.

    If the file cannot be written, the traceback is printed instead.
    """
    kind, message = _kind_and_message(exception)
    trace = "".join(traceback.format_exception(exception))
    short = textwrap.shorten(message, 500, placeholder=" …")
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="alibi-fairseq-", suffix=".traceback.txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(trace)
    except OSError:
        with suppress(OSError):  # stderr is closed or full, too
            sys.stderr.write(trace)
        return f"{kind}: {short}"
    return f"{kind}: {short}; its traceback is in {file.name}"


def open_standard_streams() -> None:
    """Open standard streams that are closed, whose descriptors the next files would get.

    Characters that the encoding of the locale lacks are printed as question marks.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    # stderr escapes them already. A stream that replaces stdout may have no encoding.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def explain(exception: BaseException) -> str | None:
    """Return one sentence for a user error; None for any other exception."""
    kind, message = _kind_and_message(exception)
    sentence = " ".join(message.split())
    bases = {base.__name__ for base in type(exception).__mro__}
    if "HydraException" in bases and exception.__cause__ is not None:
        reason = str(exception.__cause__).partition("\n")[0]
        return f"{sentence} ({' '.join(reason.split())})."
    of_user = {error.__name__ for error in UserInputError.__subclasses__()}
    of_user |= {"UserInputError", "FairseqImportError", "HydraException"}
    if of_user.intersection((kind, *bases)):
        return sentence
    if isinstance(exception, OSError) and exception.errno in _OF_THE_MACHINE:
        place = exception.filename or "The output"
        return f"{str(place)[:200]} cannot be used ({exception.strerror})."
    if isinstance(exception, ModuleNotFoundError) and (exception.name or "") in _OPTIONAL:
        return f"{sentence}; run {_OPTIONAL[exception.name or '']}."
    return None


def _kind_and_message(exception: BaseException) -> tuple[str, str]:
    """Return the type name and the text of an exception, or of the child's error it reports."""
    kind = type(exception).__name__
    message = str(exception)
    if kind != "ProcessRaisedException":  # torch.multiprocessing.spawn: a child's traceback as text
        return kind, message
    *_, last = re.split(r"^(?=[A-Za-z_][\w.]*: )", message, flags=re.MULTILINE)
    kind, _, message = last.partition(": ")
    return kind.rsplit(".", 1)[-1], message.strip()


#: Longest value in a message, in characters.
_MAX_SHOWN = 60
#: Longest list of choices in a message.
_FEW_CHOICES = 20
#: OS errors that only the user can fix.
_OF_THE_MACHINE = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.EEXIST,
    errno.EPIPE,
}
#: Optional packages and the commands that install them in a clone.
_OPTIONAL = {
    **{name: f"pip install {name}" for name in ("matplotlib", "tensorboard")},
    **dict.fromkeys(
        ("transformers", "tokenizers", "safetensors"), "./scripts/install.sh huggingface"
    ),
    **dict.fromkeys(("scipy", "statsmodels"), "./scripts/install.sh study"),
    "submitit": "./scripts/install.sh slurm",
    "shtab": "./scripts/install.sh completion",
    **dict.fromkeys(("fairseq", "fairseq_cli"), "./scripts/install.sh"),
}
