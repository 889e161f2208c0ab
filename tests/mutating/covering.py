"""Which tests run a line, measured once by coverage.py and kept."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from mutating.mutations import PARTS, Mutation, files
from mutating.trials import Trials

#: Where the tests of each part are, without those that take long for what they add.
TESTS = {
    "positions": ("positions", "test_devices.py"),
    "attention": ("attention", "test_devices.py"),
    "models": ("models", "test_devices.py", "recipes/test_published_values.py"),
    "evaluation": ("evaluation", "test_devices.py"),
    "checkpoints": ("checkpoints", "security/test_hostile_options.py"),
    "preemption": ("test_preemption.py", "test_signals.py"),
}


class Covering:
    """The tests of a copy, and the lines that each runs."""

    def __init__(self, folder: Path):
        self._kept = folder / "covering.json"
        self._folder = folder
        self._checkout = folder / "checkout"
        self._found: dict[str, dict] = {}
        self._of_part: dict[str, list[str]] = {}

    def measure(self, part: str, trials: Trials, progress) -> None:
        """Run each file of a part's tests that is new or has changed; all if the core has."""
        sources = [self._checkout / f for part in PARTS for f in files(self._checkout, part)]
        core = _sha256(*sources)
        if self._kept.exists():
            self._found = json.loads(self._kept.read_text())
        found = [p for name in TESTS[part] for p in sorted((self._checkout / "tests").glob(name))]
        paths = [p for path in found for p in (path.glob("test_*.py") if path.is_dir() else [path])]
        for path in progress(sorted(paths)):
            name, state = str(path.relative_to(self._checkout)), [core, _sha256(path)]
            if self._found.get(name, {}).get("state") != state:
                recorded = trials.record(name, 600)
                self._found[name] = {"state": state, **recorded, "lines": self._collected()}
                self._kept.write_text(json.dumps(self._found))
            self._of_part.setdefault(part, []).append(name)

    def _collected(self) -> dict[str, dict[str, list[str]]]:
        from coverage import CoverageData

        lines: dict[str, dict[str, list[str]]] = {}
        for path in self._folder.glob("coverage.*"):
            data = CoverageData(basename=str(path))
            data.read()
            for source in data.measured_files():
                of_file = lines.setdefault(str(Path(source).relative_to(self._checkout)), {})
                for line, contexts in data.contexts_by_lineno(source).items():
                    tests = {re.sub(r" \((setup|call|teardown)\)$", "", c) for c in contexts if c}
                    of_file[str(line)] = sorted({*of_file.get(str(line), []), *tests})
            path.unlink()
        return lines

    def tests(self, mutation: Mutation, part: str, seconds: float) -> dict[str, list[str]]:
        """Tests of the part that run what changed, for as many seconds.

        A file that is named after the changed one comes first, then what is quick.
        If no test runs the statement, as for a default that is evaluated at import, those that run
        its function or else its file do, and if there is none either, all.
        """
        files = {name: self._found[name] for name in self._of_part[part]}
        for first, last in mutation.lines:
            chosen = {n: self._running(found, mutation, first, last) for n, found in files.items()}
            if any(chosen.values()):
                break
        else:
            chosen = {name: [*found["seconds"]] for name, found in files.items()}
        return self._affordable(chosen, Path(mutation.file).stem, seconds)

    def seconds(self, tests: dict[str, list[str]]) -> float:
        """How long these took when they were measured."""
        measured = {name: self._found[name] for name in tests}
        return sum(
            found["start"] + sum(found["seconds"][test] for test in tests[name])
            for name, found in measured.items()
        )

    def _running(self, found: dict, mutation: Mutation, first: int, last: int) -> list[str]:
        lines = found["lines"].get(mutation.file, {})
        tests = {t for line, tests in lines.items() if first <= int(line) <= last for t in tests}
        return [test for test in found["seconds"] if test in tests]

    def _affordable(self, chosen: dict, stem: str, seconds: float) -> dict[str, list[str]]:
        def order(name: str) -> tuple[bool, float]:
            return stem not in Path(name).stem, self.seconds({name: chosen[name]})

        kept: dict[str, list[str]] = {}
        for name in sorted((name for name in chosen if chosen[name]), key=order):
            seconds -= self._found[name]["start"]
            for test in sorted(chosen[name], key=self._found[name]["seconds"].__getitem__):
                seconds -= self._found[name]["seconds"][test]
                if seconds > 0 or not kept:
                    kept.setdefault(name, []).append(test)
        return kept


def _sha256(*paths: Path) -> str:
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()
