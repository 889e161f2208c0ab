#!/usr/bin/env python
"""Write the tables of docs/reliability.md from results/reliability: ``python scripts/reliability_page.py``."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from alibi_fairseq.files import atomic_write  # noqa: E402
from alibi_fairseq.reporting.markdown import table  # noqa: E402
from alibi_fairseq.results.schema import load_document  # noqa: E402

PAGE = ROOT / "docs" / "reliability.md"
RESULTS = ROOT / "results" / "reliability"


def soak() -> str:
    """A row for each work and fault: how often, when, and what was lost."""
    rows = []
    for path in sorted((RESULTS / "soak").glob("*.json")):
        cells = sorted(load_document(path)["cells"], key=lambda cell: cell["fault"])
        for fault, group in groupby(cells, key=lambda cell: cell["fault"]):
            tried = list(group)
            phases = Counter(cell["during"] for cell in tried)
            lost = max((cell.get("lost_updates", 0) for cell in tried), default=0)
            rows.append(
                [
                    tried[0]["work"],
                    fault,
                    str(len(tried)),
                    ", ".join(f"{phase} {count}" for phase, count in phases.most_common()),
                    str(lost) if "training" in tried[0]["work"] else "–",
                    str(sum(not cell["same_bits"] for cell in tried)),
                    str(sum(bool(cell["problems"]) for cell in tried)),
                ]
            )
    headers = ["command", "fault", "times", "when", "updates to repeat, at most"]
    return table([*headers, "other bits in the end", "other problems"], rows, left=4)


def fuzzing() -> str:
    """A row for each reader."""
    paths = sorted((RESULTS / "fuzzing").glob("*.json"))
    cells = [cell for path in paths for cell in load_document(path)["cells"]]
    keys = ("inputs", "accepted", "refused", "failures")
    cells.sort(key=lambda cell: cell["name"])
    rows = [[cell["name"], *(f"{cell[key]:,}" for key in keys)] for cell in cells]
    headers = ["reader", "inputs", "read", "refused with a sentence", "anything else"]
    return table(headers, rows, left=1)


def load() -> str:
    """A row for each part."""
    rows = []
    for name, describe in _LOADS.items():
        path = RESULTS / "load" / f"{name}.json"
        if path.exists():
            rows.append([name, *describe(load_document(path)["cells"])])
    return table(["part", "what", "figure"], rows, left=3)


def environments() -> str:
    """A row for each version of Python."""
    rows = []
    paths = (RESULTS / "environments").glob("*.json")
    for path in sorted(paths, key=lambda path: int(path.stem.rpartition(".")[2])):
        made = load_document(path)
        provenance, (cell,) = made["provenance"], made["cells"]
        versions = [provenance["versions"][key] for key in ("python", "fairseq", "torch", "numpy")]
        counts = [f"{count:,}" for count in (cell["passed"], cell["skipped"], cell["failed"])]
        rows.append([*versions, *counts, provenance["git_commit"][:10], provenance["date"][:10]])
    headers = ["Python", "fairseq", "PyTorch", "NumPy", "passed", "skipped", "failed"]
    return table([*headers, "commit", "date"], rows, left=4)


def _generation(cells: list[dict]) -> list[str]:
    first, last = cells[0], cells[-1]
    pairs = ((cell["token_ms"], cell["attention_ms"]) for cell in (first, last))
    (token, attention), (token_last, attention_last) = pairs
    memory = [round(cell["peak_memory_mb"]) for cell in (first, cells[len(cells) // 2], last)]
    return [
        f"{last['cached_keys']:,} tokens with cached keys",
        f"{token:.2f} ms of processor time a token over {first['cached_keys']:,} keys and {token_last:.2f} ms over "
        f"{last['cached_keys']:,}; the attention alone {attention:.2f} and {attention_last:.2f} ms: "
        f"{token_last / token:.1f} times as much, and {attention_last / attention:.1f} times; the process held "
        f"{memory[0]}, {memory[1]} and {memory[2]} MB at the beginning, in the middle and at the end",
    ]


def _tokens(cells: list[dict]) -> list[str]:
    less, more = cells
    return [
        f"{more['tokens']:,} tokens evaluated in windows of {more['length']:,}",
        f"peak memory of the process {more['peak_memory_mb']:.0f} MB, and "
        f"{less['peak_memory_mb']:.0f} MB for {less['tokens']:,} tokens",
    ]


def _shards(cells: list[dict]) -> list[str]:
    (cell,) = cells
    return [
        f"an evaluation in {cell['shards']} parts by as many processes at a time, merged",
        _bits(cell, "one process"),
    ]


def _resumptions(cells: list[dict]) -> list[str]:
    (cell,) = cells
    return [
        f"a training that was stopped and resumed {cell['resumed']} times in a row",
        _bits(cell, "a training that was not"),
    ]


def _cells(cells: list[dict]) -> list[str]:
    (cell,) = cells
    return [
        f"a report of {cell['cells']:,} results in {cell['files']} files",
        f"{cell['seconds']:.0f} s, {cell['peak_memory_mb']:.0f} MB",
    ]


def _bits(cell: dict, other: str) -> str:
    return f"{'the' if cell['same_bits'] else 'NOT the'} bits of {other}; {cell['seconds']:.0f} s"


def mutation() -> str:
    """For each sample a row for each part, and one for all parts in proportion to their places."""
    cells, reasons = _mutations()
    rows = []
    for seed, of_seed in groupby(cells, key=lambda cell: cell["seed"]):
        parts = {part: list(group) for part, group in groupby(of_seed, key=lambda c: c["part"])}
        rows += [_tried(str(seed), part, {part: group}, reasons) for part, group in parts.items()]
        rows.append(_tried(str(seed), "all", parts, reasons))
    difference = "of those that make a difference"
    headers = ["sample", "part", "places", "tried", "without end", "caught at first", difference]
    return table([*headers, "caught", difference], rows, left=2)


def survivors() -> str:
    """A row for each change that no test notices."""
    cells, reasons = _mutations()
    left = [cell for cell in cells if cell["outcome"] == "survived"]
    rows = [
        [cell["name"], cell["before"], cell["after"], reasons.get(_change(cell), "")]
        for cell in sorted(left, key=lambda cell: _change(cell) in reasons)
    ]
    return table(["place and kind", "before", "after", "why it makes no difference"], rows, left=4)


def _mutations() -> tuple[list[dict], dict[tuple, str]]:
    """The changes that were tried, by sample and part, and why some make no difference."""
    paths = sorted((RESULTS / "mutation").glob("*.json"))
    cells = [cell for path in paths for cell in load_document(path)["cells"]]
    listed = json.loads((RESULTS / "equivalent.json").read_text(encoding="utf-8"))
    reasons = {_change(entry): entry["reason"] for entry in listed}
    return sorted(cells, key=lambda cell: (cell["seed"], cell["part"])), reasons


def _change(cell: dict) -> tuple[str, str, str]:
    return cell["name"].split(":")[0], cell["before"], cell["after"]


def _tried(seed: str, part: str, parts: dict[str, list[dict]], reasons: dict) -> list[str]:
    every = [cell for cells in parts.values() for cell in cells]
    others = {name: [c for c in cells if not _equal(c, reasons)] for name, cells in parts.items()}
    return [
        *(seed, part, f"{sum(cells[0]['places'] for cells in parts.values()):,}", str(len(every))),
        str(sum(cell["outcome"] == "timed out" for cell in every)),
        *(_share(group, key) for key in ("at_first", "outcome") for group in (parts, others)),
    ]


def _equal(cell: dict, reasons: dict) -> bool:
    return cell["outcome"] == "survived" and _change(cell) in reasons


def _share(parts: dict[str, list[dict]], key: str) -> str:
    """What was caught, in percent, with Wilson's 95 % interval; each part counts by its places."""
    places = sum(cells[0]["places"] for cells in parts.values())
    share = variance = 0.0  # of the estimate, in units of share · (1 − share)
    for cells in parts.values():
        weight = cells[0]["places"] / places
        share += weight * sum(cell[key] != "survived" for cell in cells) / len(cells)
        variance += weight**2 / len(cells)
    squared = 1.96**2 * variance
    centre = (share + squared / 2) / (1 + squared)
    reach = (squared * share * (1 - share) + squared**2 / 4) ** 0.5 / (1 + squared)
    return f"{share:.0%} ({centre - reach:.0%} to {centre + reach:.0%})"


_LOADS = {
    "generation": _generation,
    "tokens": _tokens,
    "shards": _shards,
    "resumptions": _resumptions,
    "cells": _cells,
}
TABLES = {
    "soak": soak,
    "fuzzing": fuzzing,
    "load": load,
    "environments": environments,
    "mutation": mutation,
    "survivors": survivors,
}


def written(page: str) -> str:
    """The page with its tables as the results have them."""
    for name, make in TABLES.items():
        begin, end = f"<!-- {name}: scripts/reliability_page.py -->\n", f"<!-- end of {name} -->"
        block = f"{begin}{make().strip()}\n{end}"
        page, count = re.subn(f"{begin}.*?{end}", lambda _, block=block: block, page, flags=re.S)
        assert count == 1, f"{PAGE} has no place for {name}"
    return page


def main() -> None:
    page = written(PAGE.read_text(encoding="utf-8"))
    with atomic_write(PAGE) as stream:
        stream.write(page)


if __name__ == "__main__":
    main()
