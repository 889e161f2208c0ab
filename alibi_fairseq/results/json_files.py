"""Reading JSON that somebody else may have written, and writing it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from alibi_fairseq.errors import BadInput

_NUMBER = r"-?\d[\d.eE+-]*"
# Strings of a JSON text hold no line breaks, so this only finds lists.
_LIST_OF_NUMBERS = re.compile(rf"\[\s*\n\s*({_NUMBER}(?:,\s+{_NUMBER})*)\s*\n\s*\]")


def json_text(content: Any) -> str:
    """JSON with one key per line and every list of numbers on one line; NaN is refused."""
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    return _LIST_OF_NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text) + "\n"


def read_json(path: str | os.PathLike) -> Any:
    """The content of a JSON file.

    Raises:
        BadInput: the file cannot be read, is not UTF-8 or JSON, is nested too deeply, repeats a key
            in one object, or holds text that cannot be written again (half a surrogate pair).
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"), object_pairs_hook=_no_repeats)
        json.dumps(content, ensure_ascii=False).encode()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror}).") from error
    except RecursionError as error:
        raise BadInput(f"{path}: not a JSON file of ours (nested too deeply).") from error
    except ValueError as error:
        raise BadInput(f"{path}: not a JSON file ({error}).") from error
    return content


def _no_repeats(pairs: list[tuple[str, object]]) -> dict:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {repeated!r} appears twice in one object")
    return mapping
