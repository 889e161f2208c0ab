#!/usr/bin/env python
"""Break the core at random places, one at a time, and count how often its tests notice.

    pip install "alibi-fairseq[mutation]"
    python scripts/mutation.py [--places 25] [--only PART …] [--survivors]

A place is an expression or statement of the core that one of mutmut's changes applies to: another
operator, number, constant or argument, or one less. From each part as many places are drawn, and one
change for each. All of it happens in a clone of the last commit, in ``runs/mutation``; so commit first. First
the tests of the part run once, and coverage.py notes which test runs which line. Then the tests that run
a changed line do, up to ``--seconds`` of them, until one fails. A change is caught if one fails or if
they do not end. Slow tests are left out.

Results are written after every change, a file for each part; the same command goes on.
``--survivors`` tries those again that were not caught. Changes that make no difference are
listed by hand in ``results/reliability/equivalent.json``, with the reason.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
#: Python takes its compiled files for current if time and size of the source agree.
_TIMES = itertools.count(int(time.time()) + 10_000)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--places", type=int, default=25, help="how many of each part")
    parser.add_argument("--only", nargs="+", metavar="PART", help="these parts alone")
    parser.add_argument("--survivors", action="store_true", help="try what was not caught again")
    parser.add_argument("--seconds", type=float, default=120, help="of tests for a change")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/reliability/mutation"))
    args = parser.parse_args()

    # Not above: the processes that run the tests import this file.
    from mutating.covering import Covering
    from mutating.mutations import PARTS
    from mutating.trials import Trials
    from tqdm import tqdm

    folder = ROOT / "runs" / "mutation"
    commit = clone(folder / "checkout")
    trials, covering = Trials(folder), Covering(folder)
    for part in args.only or PARTS:
        covering.measure(part, trials, lambda paths: tqdm(paths, "tests by line"))
        try_part(args, part, folder / "checkout", commit, trials, covering)
    return 0


def clone(checkout: Path) -> str:
    """A clone of the last commit; returns its hash."""
    if not checkout.exists():
        subprocess.run(["git", "clone", "-q", "--shared", ROOT, checkout], check=True)
    commit = git(ROOT, "rev-parse", "HEAD")
    git(checkout, "fetch", "-q", "origin")
    git(checkout, "checkout", "-q", "--force", "--detach", commit)
    return commit


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", folder, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def try_part(args, part: str, checkout: Path, commit: str, trials, covering) -> None:
    """Try changes of a part, and write what became of each."""
    from mutating.mutations import find, sample
    from tqdm import tqdm

    from alibi_fairseq.results.provenance import collect_provenance
    from alibi_fairseq.results.schema import (
        load_document,
        merge_documents,
        new_document,
        save_document,
    )

    out = args.out / f"{part}.json"
    earlier = load_document(out) if out.exists() else None
    cells = {(c["name"], c["after"]): c for c in (earlier or {"cells": []})["cells"]}
    if args.survivors:
        survived = [c for c in cells.values() if c["outcome"] == "survived"]
        drawn = [(find(checkout, c["name"], c["before"], c["after"]), c) for c in survived]
    else:
        found, places = sample(checkout, part, args.places, args.seed)
        case = {"baseline": None, "ratio": None, "part": part, "seed": args.seed, "places": places}
        new = [m for m in found if (m.name, m.after) not in cells]
        drawn = [(m, {"name": m.name, **case, "before": m.before, "after": m.after}) for m in new]
    began, tried = time.monotonic(), []
    for mutation, case in (bar := tqdm(drawn, part)):
        if mutation is None:  # its code is no longer there
            continue
        began_one = time.monotonic()
        tests = covering.tests(mutation, part, args.seconds)
        limit = int(30 + 3 * covering.seconds(tests))
        if not tried and (failed := trials.run(tests, limit)):
            raise SystemExit(
                f"{failed} fails without any change; there is nothing to compare with."
            )
        noticed = attempt(checkout, mutation, trials, tests, limit)
        outcome = "survived" if noticed is None else "timed out" if noticed == "time" else "caught"
        tried.append({"at_first": outcome, **case, "outcome": outcome, "commit": commit})
        tried[-1] |= {"noticed_by": noticed, "tests": sum(map(len, tests.values()))}
        tried[-1] |= {"seconds": round(time.monotonic() - began_one, 1)}
        cells.pop((case["name"], case["after"]), None)
        bar.set_postfix_str(f"{outcome}: {mutation.name}")
        provenance = collect_provenance(
            seconds=time.monotonic() - began, seed=args.seed, command=["python", *sys.argv]
        )
        documents = [new_document("benchmark", "none", provenance, tried)]
        if cells and earlier:
            documents.insert(0, {**earlier, "cells": list(cells.values())})
        save_document(merge_documents(documents), out)


def attempt(checkout: Path, mutation, trials, tests: dict, limit: int) -> str | None:
    """Apply a change to the clone, run the tests and take it back; what noticed it, or None."""
    path = checkout / mutation.file
    before, times = path.read_bytes(), path.stat()
    try:
        path.write_text(mutation.code, encoding="utf-8")
        os.utime(path, (next(_TIMES),) * 2)
        return trials.run(tests, limit)
    finally:
        path.write_bytes(before)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


if __name__ == "__main__":
    sys.exit(main())
