"""What a user did wrong, said in one sentence, with exit code 2."""

from __future__ import annotations

import os
import re
import sys
import traceback
from pathlib import Path


class BadInput(ValueError):
    """Input we cannot work with. The message says what is wrong and what to do about it.

    Commands print it on one line and exit with code 2; libraries let it through.
    """


def running_a_command() -> bool:
    """Whether this process is one of fairseq's commands or ours, and not somebody's program."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    module = spec.name if spec else ""
    program = Path(sys.argv[0] if sys.argv else "")
    if str(program) == "-m":  # python -m imports the package before it sets anything else
        module = sys.orig_argv[sys.orig_argv.index("-m") + 1]
    return (
        module.split(".")[0] in ("fairseq_cli", "alibi_fairseq")
        or program.name.startswith(("fairseq-", "alibi-fairseq"))
        or program.parent.name == "fairseq_cli"
    )


def install_excepthook() -> None:
    """Let an uncaught mistake of the user end a command with one sentence and exit code 2.

    Anything we have no sentence for keeps its traceback. Hydra would print its own report and exit
    with code 1; its variable HYDRA_FULL_ERROR makes it let exceptions through.
    """
    if getattr(sys.excepthook, "says_one_sentence", False):
        return
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    previous = sys.excepthook

    def hook(kind, exception, trace):
        sentence = explain(exception)
        if sentence is None:
            return previous(kind, exception, trace)
        sys.stdout.flush()
        program = Path(sys.argv[0]).name.replace("-m", "alibi-fairseq")
        print(f"{program}: error: {sentence}", file=sys.stderr)
        # Python ends with the code of a SystemExit that its hook raises.
        raise SystemExit(2)

    hook.says_one_sentence = True
    sys.excepthook = hook


def explain(exception: BaseException) -> str | None:
    """One sentence for a mistake of the user; None for anything else."""
    kind, message = type(exception).__name__, str(exception)
    if kind == "ProcessRaisedException":  # torch.multiprocessing.spawn: a child's traceback as text
        kind, message = _last_error(message)
    bases = {base.__name__ for base in type(exception).__mro__}
    if kind in _OUR_OWN or "HydraException" in bases:
        return " ".join(message.split())
    resuming = re.match("Cannot load model parameters from checkpoint (.*); please", message)
    if resuming:  # fairseq hides the reason behind an exception without a type
        return _mismatch(str(exception.__context__), f"The checkpoint {resuming[1]}")
    for pattern, sentence in _SENTENCES:
        found = re.search(pattern, f"{kind}: {message}", re.DOTALL)
        if found:
            return sentence(found) if callable(sentence) else found.expand(sentence)
    return _where_it_happened(exception)


def _where_it_happened(exception: BaseException) -> str | None:
    """A sentence for failures that only the place tells: whatever a damaged file makes torch raise,
    and fairseq's message about an unknown model, which fails itself while it is made.
    """
    for frame, _ in traceback.walk_tb(exception.__traceback__):
        function, names = frame.f_code.co_name, frame.f_locals
        if function == "load_checkpoint_to_cpu" and "path" in names:
            return (
                f"{names['path']} cannot be read as a checkpoint ({type(exception).__name__}); was "
                "its writing interrupted? Use another one."
            )
        if function == "build_model" and names.get("model_type") and names.get("model") is None:
            return (
                f"There is no model '{names['model_type']}'; if another plugin defines it, name "
                "that one with --user-dir."
            )
    return None


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


# What fairseq and torch raise for a mistake of the user, and what we say instead. Patterns are
# searched in "Type: message"; the first that is found counts.
_SENTENCES = (
    (
        r"^InterpolationKeyError: Interpolation key 'task.tokens_per_sample' not found",
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
