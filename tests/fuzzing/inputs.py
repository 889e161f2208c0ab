"""Inputs of the readers: bytes, of which the first says their form.

Below ``PROGRAM`` they describe edits of a valid file (:mod:`.edits`); from there on they are the file.
"""

from __future__ import annotations

import json

from fuzzing.edits import changed, edited

PROGRAM = 128  # a first byte below this one begins a program


def json_file(data: bytes, valid) -> bytes:
    """A JSON file: the valid one with edits, or any bytes."""
    if not data or data[0] < PROGRAM:
        return json.dumps(edited(valid, data[1:])).encode()
    return data[1:]


def any_file(data: bytes, valid: bytes) -> bytes:
    """A file: the valid one with some bytes changed, or any bytes."""
    return changed(valid, data[1:]) if not data or data[0] < PROGRAM else data[1:]
