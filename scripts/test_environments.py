#!/usr/bin/env python
"""Run the tests in other Python versions: ``python scripts/test_environments.py [VERSION …]``.

For each version, by default 3.10 to 3.13: a clean clone of this repository's last commit in FOLDER,
and there the README's test command, ``PYTHON=python3.10 ./scripts/test.sh``, which makes an environment
of its own. Interpreters are looked for on the PATH. Writes a results file for each version, which
``scripts/reliability_page.py`` makes a table of. Half an hour of one core and gigabytes of packages for
each version. The exit code is 1 if a test failed anywhere.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ["3.10", "3.11", "3.12", "3.13"]
OUT = ROOT / "results" / "reliability" / "environments"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("versions", nargs="*", default=VERSIONS, metavar="VERSION")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "environments")
    parser.add_argument("--out", type=Path, default=OUT, help="default: results/reliability/…")
    parser.add_argument("--record", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.record:
        record(*args.record, args.out)
        return
    missing = [version for version in args.versions if not runs(version)]
    if missing:
        parser.error(f"python{missing[0]} is not on the PATH; install it or name other versions.")
    failed = [version for version in args.versions if not passes(version, args)]
    sys.exit(bool(failed))


def runs(version: str) -> bool:
    """Whether there is such a Python on the PATH, and not only a shim that looks for it."""
    command = [f"python{version}", "-c", ""]
    return bool(shutil.which(command[0])) and not subprocess.run(command, check=False).returncode


def passes(version: str, args: argparse.Namespace) -> bool:
    """Whether all tests pass with this version, in a new clone."""
    clone = args.folder.resolve() / version
    shutil.rmtree(clone, ignore_errors=True)
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    report = clone / "runs" / "tests.xml"
    python = shutil.which(f"python{version}")
    environment = {**os.environ, "PYTHON": python}
    environment.pop("PYTHONPATH", None)
    print(f"Python {version}: ./scripts/test.sh in {clone}", flush=True)
    began = time.time()
    command = ["./scripts/test.sh", f"--junitxml={report}"]
    code = subprocess.run(command, cwd=clone, env=environment, check=False).returncode
    if not report.exists():
        print(f"Python {version}: the tests did not start (exit code {code}).", file=sys.stderr)
        return False
    # By the clone's own interpreter, since it says which versions it has.
    own = [str(clone / ".venv" / "bin" / "python"), "scripts/test_environments.py"]
    arguments = ["--record", version, str(report), str(time.time() - began)]
    out = ["--out", str(args.out.resolve())]
    subprocess.run([*own, *arguments, *out], cwd=clone, env=environment, check=True)
    return code == 0


def record(version: str, report: str, seconds: str, out: Path) -> None:
    """Write the results file of the tests that this interpreter has run."""
    sys.path.insert(0, str(ROOT))
    from alibi_fairseq.results.provenance import collect_provenance
    from alibi_fairseq.results.schema import new_document, save_document

    cases = list(ET.parse(report).getroot().iter("testcase"))
    outcomes: dict[str, list[str]] = {"failure": [], "error": [], "skipped": []}
    for case in cases:
        for outcome, names in outcomes.items():
            if case.find(outcome) is not None:
                names.append(f"{case.get('classname')}::{case.get('name')}")
    failed = sorted({*outcomes["failure"], *outcomes["error"]})
    cell = {
        "name": version,
        "baseline": None,
        "ratio": None,
        "passed": len(cases) - len(failed) - len(outcomes["skipped"]),
        "skipped": len(outcomes["skipped"]),
        "failed": len(failed),
        "failures": "\n".join(failed),
    }
    command = ["python", "scripts/test_environments.py", version]
    provenance = collect_provenance(seconds=float(seconds), command=command)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"python-{version}.json"
    save_document(new_document("benchmark", "none", provenance, [cell]), path)
    print(f"{cell['passed']} passed, {cell['skipped']} skipped, {len(failed)} failed: {path}")


if __name__ == "__main__":
    main()
