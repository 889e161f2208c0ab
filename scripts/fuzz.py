#!/usr/bin/env python
"""Feed damaged and hostile files to everything that reads files of others.

    pip install "alibi-fairseq[fuzz]"
    python scripts/fuzz.py [--runs 100000] [--only NAME …] [--out results/reliability/fuzzing/all.json]

atheris changes valid files, guided by which lines of this project each change reaches. A reader may
accept an input or refuse it with one sentence; any other exception is counted, and the input is kept
in ``tests/fuzzing/found/NAME``, where the tests try it again. The exit code is 1 if there was one.
The readers are in ``tests/fuzzing/*_targets.py``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
#: Share of the inputs for those of which one input takes half a second.
SLOW = {"checkpoint-contents": 0.01}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100_000, help="inputs for each reader")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these readers alone")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, metavar="FILE", help="results (JSON) to write")
    args = parser.parse_args()

    import atheris

    with atheris.instrument_imports(include=["alibi_fairseq"]):
        from fuzzing.targets import TARGETS

    from alibi_fairseq.results.provenance import collect_provenance
    from alibi_fairseq.results.schema import load_document, new_document, save_document

    logging.disable(logging.CRITICAL)
    earlier = load_document(args.out) if args.out and args.out.exists() else None
    began, cells = time.monotonic(), []
    for name in (name for name in TARGETS if name in (args.only or TARGETS)):
        found = in_a_child(name, int(args.runs * SLOW.get(name, 1)), args.seed)
        cells.append({"name": name, "baseline": None, "ratio": None, **found})
        print(json.dumps(cells[-1]), flush=True)
        if args.out:
            provenance = collect_provenance(
                seconds=time.monotonic() - began,
                seed=args.seed,
                command=["python", "scripts/fuzz.py", *sys.argv[1:]],
            )
            document = new_document("benchmark", "none", provenance, cells)
            save_document(with_others(earlier, document), args.out)
    return int(any(cell["failures"] for cell in cells))


def with_others(earlier: dict | None, document: dict) -> dict:
    """The document with the cells of readers that only an earlier one has."""
    if earlier is None:
        return document
    from alibi_fairseq.results.schema import merge_documents

    names = {cell["name"] for cell in document["cells"]}
    others = [cell for cell in earlier["cells"] if cell["name"] not in names]
    return merge_documents([{**earlier, "cells": others}, document]) if others else document


def in_a_child(name: str, runs: int, seed: int) -> dict:
    """Fuzz one reader in a process of its own, which libFuzzer ends; returns the counts.

    Raises:
        RuntimeError: it ended before it had tried all inputs.
    """
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts.json"
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            fuzz(name, runs, seed, Path(folder), counts)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if status or not counts.exists():
            raise RuntimeError(f"{name} ended with {os.waitstatus_to_exitcode(status)}")
        return json.loads(counts.read_text())


def fuzz(name: str, runs: int, seed: int, folder: Path, out: Path) -> None:
    """Try inputs for one reader and write the counts."""
    import atheris
    from fuzzing.targets import FOUND, outcome, seeds

    corpus, began, counts = folder / "corpus", time.monotonic(), Counter()
    corpus.mkdir()
    for number, data in enumerate(seeds(name)):
        (corpus / str(number)).write_bytes(data)
    quiet = os.open(os.devnull, os.O_WRONLY)  # libFuzzer's progress
    errors = os.fdopen(os.dup(2), "w")
    os.dup2(quiet, 2)
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as files:

        def try_one(data: bytes) -> None:
            found = outcome(name, data, Path(files))
            counts[found] += 1
            if found not in ("accepted", "refused") and counts[found] == 1:
                print(f"{name}: {found}", file=errors, flush=True)
                kept = FOUND / name / hashlib.sha256(data).hexdigest()[:12]
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_bytes(data)
            if counts.total() == runs:
                known = counts["accepted"] + counts["refused"]
                result = {
                    "inputs": runs,
                    "refused": counts["refused"],
                    "accepted": counts["accepted"],
                    "failures": runs - known,
                    "seconds": round(time.monotonic() - began, 1),
                }
                out.write_text(json.dumps(result))
                shutil.rmtree(files, ignore_errors=True)
                os._exit(0)

        options = [f"-seed={seed}", "-max_len=4096", "-timeout=120", "-rss_limit_mb=4096"]
        atheris.Setup([sys.argv[0], *options, str(corpus)], try_one)
        atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
