"""Small changes of a source file that its tests should notice: those of mutmut.

mutmut itself changes undecorated functions alone; here every expression may change. Left out is what
no program depends on: annotations, documentation, the wording of messages (what is raised or logged,
help, and strings that contain a space), decorators, imports, ``__all__``, and the arguments of ``len``
and ``isinstance``.
"""

from __future__ import annotations

import difflib
import random
from dataclasses import dataclass
from pathlib import Path

import libcst as cst
import libcst.matchers as m
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

PARTS = {
    **{name: f"{name}/*.py" for name in ("positions", "attention", "models")},
    **{name: f"{name}/*.py" for name in ("evaluation", "checkpoints")},
    "preemption": "preemption.py",
}
_TYPE = m.Subscript(value=m.Name("Callable"))
_NEVER = (cst.Annotation, cst.Decorator, cst.Import, cst.ImportFrom, cst.Raise)


@dataclass(frozen=True)
class Mutation:
    """One change.

    Attributes:
        file: relative to the checkout.
        lines: where to look for tests, best first: the statement, its function, the file; each as
            the first line and the last.
        before, after: the lines that differ, for readers.
        code: the whole file, changed.
    """

    file: str
    operator: str
    lines: tuple[tuple[int, int], ...]
    before: str
    after: str
    code: str

    @property
    def name(self) -> str:
        return f"{self.file}:{self.lines[0][0]} {self.operator}"


def sample(root: Path, part: str, size: int, seed: int) -> tuple[list[Mutation], int]:
    """Mutations of as many random places of a part, one for each, and how many places there are."""
    found = [place for file in files(root, part) for place in places(root, file)]
    chance = random.Random(f"{seed} {part}")
    # Shuffled as a whole, so that a larger sample holds a smaller one.
    drawn = [(place, chance.random()) for place in chance.sample(found, len(found))]
    return [mutation(root, *place, which) for place, which in drawn[:size]], len(found)


def files(root: Path, part: str) -> list[str]:
    return [str(p.relative_to(root)) for p in sorted((root / "alibi_fairseq").glob(PARTS[part]))]


def places(root: Path, file: str) -> list[tuple[str, int]]:
    """Every node of a file that can be changed in some way, as the file and the node's number."""
    return [(file, number) for number in range(len(_Changes.of(root / file).found))]


def mutation(root: Path, file: str, number: int, which: float) -> Mutation:
    """One of the changes of a place; ``which`` is between 0 and 1."""
    ways = _Changes.of(root / file).found[number][2]
    return _mutation(root, file, number, int(which * len(ways)))


def find(root: Path, name: str, before: str, after: str) -> Mutation | None:
    """The change that an earlier run gave this name; None if the code has changed since."""
    file, operator = name.split(":")[0], name.split()[-1]
    for number, (_, _, ways) in enumerate(_Changes.of(root / file).found):
        for way, (kind, _) in enumerate(ways):
            if kind == operator:
                found = _mutation(root, file, number, way)
                if (found.before, found.after) == (before, after):
                    return found
    return None


def _mutation(root: Path, file: str, number: int, way: int) -> Mutation:
    changes = _Changes.of(root / file)
    node, lines, ways = changes.found[number]
    operator, changed = ways[way]
    before, after = changes.module.code, changes.module.deep_replace(node, changed).code
    compared = list(difflib.ndiff(before.splitlines(), after.splitlines()))
    shown = [" ".join(x[2:].strip() for x in compared if x.startswith(sign)) for sign in "-+"]
    return Mutation(file, operator, lines, *shown, after)


class _Changes(cst.CSTVisitor):
    """Collects the nodes of a module that can be changed, and how."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self):
        super().__init__()
        self.module: cst.Module
        self.found: list[tuple[cst.CSTNode, tuple, list[tuple[str, cst.CSTNode]]]] = []
        self._around: list[cst.CSTNode] = []

    @classmethod
    def of(cls, path: Path) -> _Changes:
        if path not in _KNOWN:
            wrapper = MetadataWrapper(cst.parse_module(path.read_text(encoding="utf-8")))
            changes = cls()
            wrapper.visit(changes)
            changes.module = wrapper.module
            _KNOWN[path] = changes
        return _KNOWN[path]

    def on_visit(self, node: cst.CSTNode) -> bool:
        if _is_left_out(node):
            return False
        self._around.append(node)
        ways = [
            (operator.__name__.removeprefix("operator_"), changed)
            for kind, operator in mutation_operators
            if isinstance(node, kind)
            for changed in operator(node)
        ]
        if ways and self._has_position(node):
            self.found.append((node, self._lines(node), ways))
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if self._around and self._around[-1] is original_node:
            self._around.pop()

    def _has_position(self, node: cst.CSTNode) -> bool:
        return self.get_metadata(PositionProvider, node, None) is not None

    def _lines(self, node: cst.CSTNode) -> tuple[tuple[int, int], ...]:
        statements = [n for n in self._around if isinstance(n, cst.SimpleStatementLine)]
        functions = [n for n in self._around if isinstance(n, cst.FunctionDef)]
        inner = [*statements[-1:], *([] if statements else [node])]
        ranges = [self.get_metadata(PositionProvider, n) for n in (*inner, *functions[-1:])]
        return (*((r.start.line, r.end.line) for r in ranges), (1, 10**6))


_KNOWN: dict[Path, _Changes] = {}


def _is_left_out(node: cst.CSTNode) -> bool:
    if isinstance(node, _NEVER):
        return True
    if isinstance(node, cst.SimpleString):
        return " " in node.value or node.value == '"help"' or node.value.startswith(('"""', 'r"""'))
    if isinstance(node, cst.FormattedString):
        return any(isinstance(p, cst.FormattedStringText) and " " in p.value for p in node.parts)
    if isinstance(node, cst.Assign):
        names = {getattr(target.target, "value", None) for target in node.targets}
        return bool(names & {"__all__", "logger"}) or m.matches(node.value, _TYPE)
    if isinstance(node, cst.Call):
        owner = getattr(node.func, "value", None)
        return owner in ("len", "isinstance") or getattr(owner, "value", None) == "logger"
    return False
