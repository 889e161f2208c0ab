"""Edits of nested values, each described by a few bytes, so that a fuzzer can search among them."""

from __future__ import annotations

import argparse
import copy
from collections.abc import Iterator

import torch

_DEEP: list = []
for _ in range(200):
    _DEEP = [_DEEP]

#: What a JSON file may hold where something else is expected.
ODD_JSON = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 2**31, 2**63, 10**400, -(10**400)),
    *(0.0, -0.5, 1e308, 5e-324, float("nan"), float("inf"), -float("inf")),
    *("", " ", "x", "0", "1/2", "01/2", "2/2", "64", "nan", "\ud800", "\0", "a\nb", "é|<b>$x^{"),
    *("x" * 5000, "../../x", "valid", "train", "evaluation", "alibi", "fp32", "{}", "[1]"),
    *([], {}, [[]], {"a": 1}, [None], [1, "x"], {"": {}}, _DEEP),
)
#: What a checkpoint may hold as well.
ODD_VALUES = (
    *ODD_JSON,
    *(b"", b"\xff", (), (1, 2), {1: 2}, argparse.Namespace(), argparse.Namespace(a=1)),
    *(torch.zeros(0), torch.zeros(()), torch.ones(3), torch.ones(2, 2), torch.ones(64, 64)),
    *(torch.full((64, 64), float("nan")), torch.ones(64, 64).long(), torch.ones(2) * 1j),
    *(torch.ones(64, 64).half(), torch.ones(1).expand(64, 64), torch.eye(4).to_sparse()),
)
_BYTES_OF_AN_EDIT = 4
_MOST_EDITS = 8
_DEEPEST = 20


def edited(value, program: bytes, odd: tuple = ODD_JSON):
    """A copy of ``value`` with a few parts replaced, removed or doubled.

    Args:
        program: four bytes an edit: which part (two), what to do, which odd value to use.
        odd: the values to put in.
    """
    value = copy.deepcopy(value)
    for at in range(0, len(program) - _BYTES_OF_AN_EDIT + 1, _BYTES_OF_AN_EDIT)[:_MOST_EDITS]:
        places = list(_places(value))
        if not places:
            break
        container, key = places[int.from_bytes(program[at : at + 2], "big") % len(places)]
        _edit(container, key, program[at + 2], copy.deepcopy(odd[program[at + 3] % len(odd)]))
    return value


def _places(value) -> Iterator[tuple]:
    """(container, key) of every part of a nested value, but for those below ``_DEEPEST`` others:
    several odd values inside each other would be too deep for Python to copy.
    """
    waiting = [(value, 0)]
    while waiting:
        container, depth = waiting.pop()
        container = vars(container) if isinstance(container, argparse.Namespace) else container
        if isinstance(container, (dict, list)) and depth < _DEEPEST:
            for key in list(container if isinstance(container, dict) else range(len(container))):
                yield container, key
                waiting.append((container[key], depth + 1))


def _edit(container, key, what: int, odd) -> None:
    if what % 4 == 2:
        del container[key]
    elif what % 4 == 3 and isinstance(container, dict):
        container[str(odd)[:99]] = container[key]
    elif what % 4 == 3:
        container.insert(key, copy.deepcopy(container[key]))
    else:
        container[key] = odd


def changed(data: bytes, program: bytes) -> bytes:
    """Bytes with a few of them changed: four bytes an edit, of which three say where."""
    result = bytearray(data)
    for at in range(0, len(program) - _BYTES_OF_AN_EDIT + 1, _BYTES_OF_AN_EDIT)[:_MOST_EDITS]:
        if result:
            place = int.from_bytes(program[at : at + 3], "big") % len(result)
            result[place] = program[at + 3]
    return bytes(result)
