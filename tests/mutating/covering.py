"""Which tests run a line, measured once by coverage.py and kept."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from mutating.mutations import PARTS, Mutation, files
from mutating.trials import Trials

#: Where the tests are that run the core, in a moment or two.
TESTS = (
    *("positions", "attention", "models", "evaluation", "checkpoints", "tasks"),
    *("security/test_hostile_options.py", "test_preemption.py", "test_signals.py", "test_hub.py"),
    *("test_resume_checks.py", "test_durability.py", "test_errors.py", "test_footguns.py"),
    *("test_devices.py", "test_one_sentence.py", "recipes/test_published_values.py"),
)


class Covering:
    """The tests of a copy, and the lines that each runs."""

    def __init__(self, folder: Path):
        self._kept = folder / "covering.json"
        self._folder = folder
        self._checkout = folder / "checkout"
        self._found: dict[str, dict] = {}

    def measure(self, trials: Trials, progress) -> None:
        """Run each file of tests that is new or has changed; all of them if the core has."""
        sources = [self._checkout / f for part in PARTS for f in files(self._checkout, part)]
        core = _sha256(*sources)
        if self._kept.exists():
            self._found = json.loads(self._kept.read_text())
        found = [p for name in TESTS for p in sorted((self._checkout / "tests").glob(name))]
        paths = [p for path in found for p in (path.glob("test_*.py") if path.is_dir() else [path])]
        for path in progress(sorted(paths)):
            name, state = str(path.relative_to(self._checkout)), [core, _sha256(path)]
            if self._found.get(name, {}).get("state") != state:
                recorded = trials.record(name, 600)
                self._found[name] = {"state": state, **recorded, "lines": self._collected()}
                self._kept.write_text(json.dumps(self._found))

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
        """Tests that run what changed, for as many seconds: a file's after another's.

        Those of the part come first, then what is quick. If no test runs the statement, as for a
        default that is evaluated at import, those that run its function or else its file do, and if
        there is none either, those of the part.
        """
        for first, last in mutation.lines:
            chosen = {
                name: [
                    t for t in found["seconds"] if t in self._running(found, mutation, first, last)
                ]
                for name, found in self._found.items()
            }
            if any(chosen.values()):
                return self._affordable(chosen, part, seconds)
        of_part = {name: [*found["seconds"]] for name, found in self._found.items() if part in name}
        return self._affordable(of_part, part, seconds)

    def _running(self, found: dict, mutation: Mutation, first: int, last: int) -> set[str]:
        lines = found["lines"].get(mutation.file, {})
        return {t for line, tests in lines.items() if first <= int(line) <= last for t in tests}

    def _affordable(self, chosen: dict, part: str, seconds: float) -> dict[str, list[str]]:
        def cost(name: str) -> float:
            found = self._found[name]
            return found["start"] + sum(found["seconds"][test] for test in chosen[name])

        def order(name: str) -> tuple[bool, float]:
            return part not in name, cost(name)

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
