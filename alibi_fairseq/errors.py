"""What ends a command: one sentence on stderr, with exit code 2 for bad input and 1 for what nobody expected."""

from __future__ import annotations

import difflib
import errno
import os
import re
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

#: This project's command.
PROGRAM = "alibi-fairseq"
#: Exit code of a run that saved and stopped because of a signal: start it again later
#: (``EX_TEMPFAIL`` of sysexits.h).
STOPPED_EARLY = 75


#: Exit code after Ctrl-C, as of a shell: 128 and the number of the signal.
INTERRUPTED = 130


class BadInput(ValueError):
    """Input that cannot be used. The message says what is wrong and what to do about it.

    Commands print it on one line and exit with code 2; libraries let it through.
    """


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`` Did you mean 'NAME'?`` for the most similar of the known names; empty if none is similar."""
    nearest = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean '{nearest[0]}'?" if nearest else ""


def install_excepthook() -> None:
    """End a command with one sentence on an uncaught exception (:func:`report`).

    Hydra would print its own report and exit with code 1; its variable HYDRA_FULL_ERROR makes it
    let exceptions through.
    """
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")

    def hook(kind, exception, trace):
        # In a distributed run torch's hook calls this one, and would keep what it writes for itself.
        with redirect_stderr(sys.__stderr__):
            code = report(exception, program_name())
        # Python ends with the code of a SystemExit that its hook raises.
        raise SystemExit(code)

    sys.excepthook = hook


def report(exception: BaseException, program: str) -> int:
    """Print one sentence about an exception that ends a command.

    Args:
        program: name of the command, as the user typed it.

    Returns:
        The exit code: 2 for bad input, 130 for Ctrl-C, and 1 for anything else, whose traceback is
        in a file that the sentence names.
    """
    flush_output()
    if isinstance(exception, KeyboardInterrupt):
        sentence, code = "interrupted", INTERRUPTED
    else:
        known = explain(exception)
        sentence, code = f"error: {wording(known or unexpected(exception))}", 2 if known else 1
    # Not print, which fairseq replaces in the processes of a distributed run.
    sys.stderr.write(f"{program}: {sentence}\n")
    return code


def unexpected(exception: BaseException) -> str:
    """A sentence with the type and message of an exception, and where its traceback has been written."""
    kind, message = kind_and_message(exception)
    trace = "".join(traceback.format_exception(exception))
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="alibi-fairseq-", suffix=".traceback.txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(trace)
        place = f"; its traceback is in {file.name}"
    except OSError:  # a full disk
        place = f"\n{trace}"
    return f"{kind}: {' '.join(message.split())[:500]}{place}"


#: Rewrites messages before they are printed: under Hydra, options are keys of a YAML file.
wording: Callable[[str], str] = str


def program_name() -> str:
    """What the user typed, for messages."""
    return Path(sys.argv[0]).name.replace("-m", PROGRAM)


@contextmanager
def interruptible() -> Iterator[None]:
    """End the process at once on Ctrl-C while everything is imported.

    An exception would be lost in whatever an import happens to catch.
    """
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def stop(*_):
        os.write(2, f"{program_name()}: interrupted\n".encode())
        os._exit(INTERRUPTED)

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def flush_output() -> None:
    """Write what is still to be printed; if it cannot be, print nothing more."""
    try:
        sys.stdout.flush()
    except OSError:
        # Otherwise the interpreter tries again when it ends, and complains.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def open_standard_streams() -> None:
    """Open standard streams that are closed, whose numbers the next files would get."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def leave_terminal() -> None:
    """Print nothing more to a terminal that has been closed; writing there would raise an error."""
    for stream in (1, 2):
        try:
            os.write(stream, b"")
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


def kind_and_message(exception: BaseException) -> tuple[str, str]:
    """The name of an exception's type and its text; of the one in a child, if it stands for that."""
    kind, message = type(exception).__name__, str(exception)
    if kind == "ProcessRaisedException":  # torch.multiprocessing.spawn: a child's traceback as text
        return _last_error(message)
    return kind, message


def explain(exception: BaseException) -> str | None:
    """One sentence for a user error; None for any other exception."""
    kind, message = kind_and_message(exception)
    bases = {base.__name__ for base in type(exception).__mro__}
    if kind in _OUR_OWN or "HydraException" in bases:
        return " ".join(message.split())
    if kind == "BrokenPipeError":
        return "The output was closed before everything was printed."
    if isinstance(exception, OSError) and exception.errno in _OF_THE_MACHINE:
        place = exception.filename or "The output"
        return f"{str(place)[:200]} cannot be used ({exception.strerror})."
    resuming = re.match("Cannot load model parameters from checkpoint (.*); please", message)
    if resuming:  # fairseq hides the reason behind an exception without a type
        return _mismatch(str(exception.__context__), f"The checkpoint {resuming[1]}")
    for pattern, sentence in _SENTENCES:
        found = re.search(pattern, f"{kind}: {message}", re.DOTALL)
        if found:
            return sentence(found) if callable(sentence) else found.expand(sentence)
    return None


#: Errors of a disk, a folder or a name: nothing that a program could do about.
_OF_THE_MACHINE = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG),
}
_OUR_OWN = ("BadInput", "BrokenFairseq")


def _last_error(text: str) -> tuple[str, str]:
    """Type and message of the exception at the end of a traceback's text."""
    *_, last = re.split(r"^(?=[A-Za-z_][\w.]*: )", text, flags=re.MULTILINE)
    kind, _, message = last.partition(": ")
    return kind.rsplit(".", 1)[-1], message.strip()


def _mismatch(text: str, checkpoint: str) -> str:
    """Why a state dict does not fit a model, from torch's list of differences."""
    shapes = re.findall(
        r"size mismatch for (\S+): copying a param with shape torch.Size\(\[([\d, ]*)\]\) from "
        r"checkpoint, the shape in current model is torch.Size\(\[([\d, ]*)\]\)",
        text,
    )
    names = re.search(r'(Missing|Unexpected) key\(s\) in state_dict: "([^"]+)"', text)
    for name, there, here in shapes:
        (rows_there, *rest_there), (rows_here, *rest_here) = there.split(", "), here.split(", ")
        of_words = re.search("embed_tokens|output_projection|adaptive_softmax", name)
        if not names and of_words and rest_there == rest_here:
            return (
                f"{checkpoint} was trained with a dictionary of another size ({name} has "
                f"{rows_there} rows there and {rows_here} here); use the dict.txt it was trained "
                "with."
            )
    if names:
        detail = f"{names[2]} exists only {'here' if names[1] == 'Missing' else 'there'}"
    elif shapes:
        detail = "{} has shape ({}) there and ({}) here".format(*shapes[0])
    else:
        detail = " ".join(text.split())
    return (
        f"{checkpoint} holds a model of another architecture ({detail}); use the options it was "
        "trained with, or another folder."
    )


# What fairseq and torch raise for a user error, and what is printed instead. Patterns are searched
# in "Type: message"; the first match counts.
_SENTENCES = (
    (
        # The second wording is that of omegaconf 2.0, which the fairseq of Python 3.10 needs.
        r"^(?:InterpolationKeyError: I|ConfigKeyError: str i)nterpolation key 'task.tokens_per_sample' "
        r"not found",
        r"This model is a language model; add --task language_modeling (fairseq's default task is "
        r"translation).",
    ),
    (
        r"^FileNotFoundError: .*No such file or directory: '(?P<f>[^']*)/dict\.txt'",
        r"There is no dictionary \g<f>/dict.txt; name a folder made by fairseq-preprocess.",
    ),
    (
        r"^FileNotFoundError: Dataset not found: (\S+) \((.*)\)",
        r"There is no split '\1' in the data (no \2.bin and \2.idx); prepare it with "
        r"fairseq-preprocess.",
    ),
    (
        r"^(?:OSError|FileNotFoundError): Model file not found: (.*)",
        r"There is no checkpoint \1; check --path.",
    ),
    (
        r"^RuntimeError: (Error\(s\) in loading state_dict.*)",
        lambda found: _mismatch(found[1], "The checkpoint"),
    ),
    (
        r"^AssertionError: Sentences lengths should not exceed max_tokens=(\d+)",
        r"--max-tokens \1 is less than the length of a sample; make it at least "
        r"--tokens-per-sample.",
    ),
    (
        r"^AssertionError: sentence at index \d+ of size (\d+) exceeds max_tokens limit of (\d+)",
        r"--max-tokens \2 is less than the \1 tokens of a sample; make it at least "
        r"--tokens-per-sample.",
    ),
    (
        r"^AssertionError: Must specify batch size",
        r"There is no batch size; give --max-tokens or --batch-size.",
    ),
    (
        r"^Exception: The dataset is empty",
        r"There is nothing to train on: no sample is short enough for --max-tokens and "
        r"--max-target-positions, or the split is empty.",
    ),
    (
        r"^IndexError: index out of range in self",
        r"The data holds a word number beyond its dictionary; prepare the data again with this "
        r"dict.txt.",
    ),
    (
        r"^(?:Scanner|Parser|Composer|Constructor|Reader)Error: (.{1,200})",
        lambda found: f"The YAML cannot be read ({' '.join(found[1].split())}).",
    ),
    (
        r"^ModuleNotFoundError: No module named '(matplotlib|tensorboard)'",
        r"\1 is not installed; pip install \1, or do this where it is: results are files that can "
        r"be copied.",
    ),
    (
        r"^AssertionError: cannot specify cutoff larger than vocab size",
        r"The dictionary has fewer entries than the adaptive input or softmax has frequent words; "
        r"give more text, or smaller --adaptive-input-cutoff and --adaptive-softmax-cutoff.",
    ),
    (
        r"^UnpicklingError: Weights only load failed.*Unsupported (?:global|class): GLOBAL (\S+)",
        r"The checkpoint holds an object of \1, which is not on the list of types that are safe "
        r"to load, so it was not read.",
    ),
)
