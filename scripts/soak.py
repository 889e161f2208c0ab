#!/usr/bin/env python
"""Interrupt real runs at random moments and compare what is left with an uninterrupted run.

    python scripts/soak.py [--trials 25] [--only WORK …] [--out results/reliability/soak]

Each work of ``tests/soaking/works.py`` is run once to its end. Then it is started again and again in
an empty folder, and SIGKILL, SIGTERM or SIGINT ends it at a moment drawn by the seed: a quarter of
them during start-up, the others at any time of the work, or, for a training, at the next checkpoint
or validation after that time. After at most ``--kills`` of them it is left
alone until it ends. Between two starts of a training, ``checkpoint_last.pt`` is emptied, cut off or
has one of its bits flipped in two cases of five. In the end the folder must hold the very bits of the
uninterrupted run.

Results are written after every run that has come to its end, a file for each work; the same command
goes on until each has been interrupted ``--trials`` times. The exit code is 1 if anything was lost.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from soaking.attempts import attempt  # noqa: E402
from soaking.run import Run, interrupted_run  # noqa: E402
from soaking.works import Work, works  # noqa: E402

from alibi_fairseq.results.provenance import collect_provenance  # noqa: E402
from alibi_fairseq.results.schema import (  # noqa: E402
    load_document,
    merge_documents,
    new_document,
    save_document,
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=25, help="interruptions of each work")
    parser.add_argument("--kills", type=int, default=6, help="interruptions of one run at most")
    parser.add_argument("--only", nargs="+", metavar="WORK", help="these works alone")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/reliability/soak"))
    args = parser.parse_args()
    cells = []
    with tempfile.TemporaryDirectory() as temporary:
        for name, work in prepared(Path(temporary)).items():
            if name in (args.only or [name]):
                cells += soak(args, name, work, Path(temporary))
    return int(any(cell["problems"] or not cell["same_bits"] for cell in cells))


def prepared(folder: Path) -> dict[str, Work]:
    """The works, with their inputs in a folder."""
    found = works(folder / "inputs")
    save_dir, log = folder / "trained", folder / "trained.log"
    training = found["training"]
    attempt(training.words(save_dir), log, 1, lambda said: True)
    (save_dir / "checkpoint_last.pt").rename(folder / "inputs" / "checkpoint.pt")
    return found


def soak(args: argparse.Namespace, name: str, work: Work, folder: Path) -> list[dict]:
    """Interrupt one work as often as asked; returns its cells, those of earlier calls too."""
    out = args.out / f"{name.replace(' ', '-')}.json"
    earlier = load_document(out) if out.exists() else None
    cells = list(earlier["cells"]) if earlier else []
    if len(cells) >= args.trials:
        return cells
    chance, began, before = (
        random.Random(f"{args.seed} {name} {len(cells)}"),
        time.time(),
        len(cells),
    )
    whole = Run(name, work, folder / name.replace(" ", "-"), 0)
    whole.folder.mkdir()
    uninterrupted = whole.start(None)
    expected = work.state(whole.folder)
    while len(cells) < args.trials:
        run = Run(name, work, folder / "run", len(cells))
        found = interrupted_run(run, uninterrupted, expected, args.kills, chance)
        shutil.rmtree(run.folder)
        if not found:
            continue
        cells += found
        provenance = collect_provenance(
            seconds=time.time() - began, seed=args.seed, command=["python", *sys.argv]
        )
        document = new_document("benchmark", "generated text", provenance, cells[before:])
        save_document(merge_documents([earlier, document]) if earlier else document, out)
        print(*map(describe, found), sep="\n", flush=True)
    return cells


def describe(cell: dict) -> str:
    """One line for the terminal."""
    verdict = cell["problems"] or ("same bits" if cell["same_bits"] else "OTHER BITS")
    return f"{cell['work']} {cell['trial']}: {cell['fault']} during {cell['during']}: {verdict}"


if __name__ == "__main__":
    sys.exit(main())
