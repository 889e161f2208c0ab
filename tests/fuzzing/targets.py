"""What reads files of others, as functions of one input (:mod:`.inputs`) and an empty folder."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

from fuzzing import checkpoint_targets, data_targets, json_targets, text_targets
from fuzzing.inputs import PROGRAM

from alibi_fairseq.errors import BadInput, explain

FOUND = Path(__file__).parent / "found"
_FILES = (json_targets, data_targets, checkpoint_targets, text_targets)
TARGETS: dict[str, Callable[[bytes, Path], None]] = {
    name: target for module in _FILES for name, target in module.TARGETS.items()
}
#: Whole valid files, behind which a fuzzer looks further.
VALID: dict[str, Callable[[], list[bytes]]] = {
    name: files for module in _FILES for name, files in module.VALID.items()
}


def outcome(target: str, data: bytes, folder: Path) -> str:
    """``accepted``, ``refused``, or where an exception without a sentence came from."""
    try:
        TARGETS[target](data, folder)
    except BadInput:
        return "refused"
    except Exception as error:
        if explain(error) is not None:
            return "refused"
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if "alibi_fairseq" in frame.filename] or frames
        return f"{type(error).__name__} in {Path(ours[-1].filename).name}:{ours[-1].lineno}"
    return "accepted"


def seeds(target: str) -> list[bytes]:
    """Inputs to begin with: a valid file, some edits, and what was found before."""
    found = [path.read_bytes() for path in sorted((FOUND / target).glob("*"))]
    files = VALID.get(target, list)()
    valid = [bytes([PROGRAM + number]) + file for number, file in enumerate(files)]
    return [b"", b"\0", b"\0\0\1\0\1", b"\1\0\5\2\3\0\7\1\11", *valid, *found]
