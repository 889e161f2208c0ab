#!/usr/bin/env python
"""Much of everything, with small models on one CPU core: what it takes, and that nothing changes.

    python scripts/load.py [--only PART …] [--out results/reliability/load]

Writes a results file for each part:

generation  10,000 tokens with cached keys: time per token and memory by length, beside the time of
            the attention alone over as many keys
tokens      a million tokens evaluated in windows of 4,096, and a tenth of them: peak memory
shards      an evaluation in 64 parts, each in a process of its own, merged, and in one process
resumptions a training that is stopped and resumed 100 times in a row, and one that is not
cells       a report of 10,000 results

The exit code is 1 if merged shards or the resumed training have other bits.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import torch  # noqa: E402
from conftest import random_tokens, small_model  # noqa: E402
from fairseq_runs import run_train, write_corpus  # noqa: E402
from results_documents import document, evaluation_cell  # noqa: E402
from soaking import states  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

from alibi_fairseq.evaluation.memory_usage import PeakMemory  # noqa: E402
from alibi_fairseq.evaluation.merge import merge_shards  # noqa: E402
from alibi_fairseq.evaluation.sweep import Sweep, run_sweep  # noqa: E402
from alibi_fairseq.results.provenance import collect_provenance  # noqa: E402
from alibi_fairseq.results.schema import (  # noqa: E402
    load_document,
    new_document,
    save_document,
)

CPU = torch.device("cpu")
FLAGS = ("--task", "language_modeling", "--tokens-per-sample", "16", "--max-tokens", "64")
NEW_TOKENS, BLOCK = 10_000, 1_000
HEADS, SHARDS, RESUMPTIONS, CELLS = 32, 64, 100, 10_000


@torch.no_grad()
def generation(folder: Path) -> list[dict]:
    """A cell for every thousand tokens, with the attention alone over as many keys. Times are this
    thread's, so that other work on the machine does not count.
    """
    model = small_model("alibi", heads=HEADS, tokens_per_sample=32)
    tokens, state = random_tokens(1, 1), {}
    buffer = torch.zeros(1, NEW_TOKENS, dtype=torch.long)
    buffer[:, 0] = tokens[:, 0]
    cells = []
    for begin in range(0, NEW_TOKENS, BLOCK):
        peak, times = PeakMemory(CPU), []
        for end in range(begin + 1, begin + BLOCK + 1):
            then = time.thread_time()
            logits, _ = model(buffer[:, :end], incremental_state=state)
            if end < NEW_TOKENS:
                buffer[:, end] = logits[0, -1].argmax()
            times.append(time.thread_time() - then)
        cells.append(
            {
                "cached_keys": begin + BLOCK,
                "token_ms": statistics.median(times) * 1e3,
                "attention_ms": attention_ms(begin + BLOCK),
                "peak_memory_mb": peak.mb(),
            }
        )
    return cells


def attention_ms(keys: int) -> float:
    """Both layers' attention of one query over so many keys: PyTorch's kernel, with a bias."""
    query = torch.randn(1, HEADS, 1, 8)
    key, value = torch.randn(2, 1, HEADS, keys, 8)
    bias = torch.randn(1, HEADS, 1, keys)
    times = []
    for _ in range(100):
        then = time.thread_time()
        for _ in range(2):
            scaled_dot_product_attention(query, key, value, bias)
        times.append(time.thread_time() - then)
    return statistics.median(times) * 1e3


def trained(folder: Path, **tokens: int) -> tuple[Path, Path]:
    """(data, checkpoint) of a few updates."""
    torch.manual_seed(1)
    data = folder / "data"
    data.mkdir()
    write_corpus(data, train=2000, **tokens)
    run_train(data, folder / "run", *FLAGS, "--max-update", "3", "--disable-validation")
    return data, folder / "run" / "checkpoint_last.pt"


def tokens(folder: Path) -> list[dict]:
    data, checkpoint = trained(folder, valid=1_000_000, test=100_000)
    cells = []
    for subset in ("test", "valid"):  # the smaller first: the peak of a process never falls
        sweep = Sweep(data, [checkpoint], [subset], [4096], [None], folder / f"{subset}.json")
        (cell,) = run_sweep(sweep)
        keys = ("tokens", "length", "stride", "seconds", "tokens_per_second", "peak_memory_mb")
        cells.append({key: cell[key] for key in keys})
    return cells


def shards(folder: Path) -> list[dict]:
    data, checkpoint = trained(folder, valid=20_000)
    began = time.perf_counter()
    context = multiprocessing.get_context("fork")
    running = []
    for number in range(1, SHARDS + 1):
        out = folder / f"{number}.json"
        sweep = shard_sweep(data, checkpoint, out, (number, SHARDS))
        running.append(context.Process(target=run_sweep, args=(sweep,)))
        running[-1].start()
    for process in running:
        process.join()
    seconds = time.perf_counter() - began
    parts = [load_document(path) for path in sorted(folder.glob("[0-9]*.json"))]
    (merged,) = merge_shards(parts)["cells"]
    (whole,) = run_sweep(shard_sweep(data, checkpoint, folder / "whole.json", None))
    same = all(merged[key] == whole[key] for key in ("loss_bits", "perplexity", "tokens"))
    facts = {"processes": SHARDS, "shards": len(parts), "tokens": merged["tokens"]}
    return [{**facts, "same_bits": same, "seconds": seconds}]


def shard_sweep(data: Path, checkpoint: Path, out: Path, shard: tuple[int, int] | None) -> Sweep:
    return Sweep(data, [checkpoint], ["valid"], [16], [4], out, shard=shard, memory_budget=1)


def resumptions(folder: Path) -> list[dict]:
    torch.manual_seed(1)
    data = folder / "data"
    data.mkdir()
    write_corpus(data, train=2000, valid=200)
    began = time.perf_counter()
    for updates in range(1, RESUMPTIONS + 2):
        in_a_fork(train_until, data, folder / "resumed", updates)
    in_a_fork(train_until, data, folder / "whole", RESUMPTIONS + 1)
    resumed, whole = (
        states.of_checkpoint(folder / name / "checkpoint_last.pt") for name in ("resumed", "whole")
    )
    same, seconds = resumed == whole, time.perf_counter() - began
    return [
        {"resumed": RESUMPTIONS, "updates": RESUMPTIONS + 1, "same_bits": same, "seconds": seconds}
    ]


def train_until(data: Path, save_dir: Path, updates: int) -> None:
    run_train(data, save_dir, *FLAGS, "--max-update", str(updates), "--disable-validation")


def in_a_fork(function, *arguments) -> None:
    process = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError(f"{function.__name__} ended with {process.exitcode}")


def cells(folder: Path) -> list[dict]:
    results = folder / "results"
    results.mkdir()
    for number in range(100):
        path = results / f"{number}.json"
        many = [
            evaluation_cell(16.0 + seed % 7, length=length, seed=number, updates=seed)
            for seed, length in enumerate(range(64, 64 + CELLS // 100))
        ]
        path.write_text(json.dumps(document(*many)))
    words = ["report", results, "--no-paper", "--out", folder / "report"]
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "alibi_fairseq", *map(str, words)],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6
    return [{"cells": CELLS, "files": 100, "seconds": seconds, "peak_memory_mb": peak}]


PARTS = (generation, tokens, shards, resumptions, cells)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [part.__name__ for part in PARTS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="PART")
    parser.add_argument("--out", type=Path, default=Path("results/reliability/load"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    good = True
    for part in (part for part in PARTS if part.__name__ in args.only):
        began = time.time()
        with tempfile.TemporaryDirectory() as folder:
            found = part(Path(folder))
        good &= all(cell.get("same_bits", True) for cell in found)
        case = {"name": part.__name__, "baseline": None, "ratio": None}
        provenance = collect_provenance(
            seconds=time.time() - began, precision="fp32", seed=1, command=["python", *sys.argv]
        )
        made = new_document("benchmark", "generated", provenance, [case | cell for cell in found])
        save_document(made, args.out / f"{part.__name__}.json")
        print(*found, sep="\n", flush=True)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
