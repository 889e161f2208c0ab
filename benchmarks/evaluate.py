"""Our evaluator compared with ``fairseq-eval-lm``: ``python -m benchmarks.evaluate``.

Both evaluate the same checkpoint on the same tokens in one process, in alternation (A B A B …), so
that other load on the machine affects both. The time excludes loading. With sliding windows, only
full windows are timed, since the first windows are shorter in fairseq and shared here.

A second part measures the memory of one window of 16,384 tokens beyond the weights, under the
paper's output layer for 267,744 words. The model is narrow: memory that grows with the vocabulary
or with the square of the length does not depend on the width.

Weights and text are random, which does not change the time.
"""

from __future__ import annotations

import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from fairseq import checkpoint_utils, tasks
from fairseq_cli import eval_lm

import alibi_fairseq.models  # noqa: F401  (registers the models)
from alibi_fairseq.evaluation.checkpoint import load_checkpoint
from alibi_fairseq.evaluation.loss_by_position import LossByPosition
from alibi_fairseq.evaluation.scoring import PeakMemory, sum_losses
from alibi_fairseq.evaluation.split import load_dictionary, load_split
from alibi_fairseq.evaluation.windows import Span, make_batches, plan_windows, share_start
from alibi_fairseq.results.data_folder import DataFolder

from . import common

DEVICE = common.device()
WORDS = 30_000
LENGTH = 512
ADAPTIVE_WORDS = 267_744 - 4  # without fairseq's special symbols
LONG = 16_384
WIDTH = 64


def make_data(folder: Path, words: int, tokens: int) -> Path:
    """Binarize a vocabulary of ``words`` words and a valid split of ``tokens`` random tokens."""
    rng = np.random.default_rng(1)
    vocabulary = [f"w{index}" for index in range(words)]
    (folder / "train.txt").write_text("\n".join(vocabulary) + "\n")
    indices = rng.integers(words, size=tokens)
    lines = []
    for start in range(0, tokens, 25):  # a line has 24 words and the end-of-sentence symbol
        end = min(start + 24, tokens - 1)
        lines.append(" ".join(vocabulary[index] for index in indices[start:end]))
    (folder / "valid.txt").write_text("\n".join(lines) + "\n")
    data = folder / "data-bin"
    prefixes = [f"--{split}pref={folder}/{split}.txt" for split in ("train", "valid")]
    run_fairseq("preprocess", "--only-source", f"--destdir={data}", *prefixes)
    return data


def make_checkpoint(data: Path, folder: Path, architecture: str, *options: str) -> Path:
    """Train a model for one update and return its checkpoint."""
    fixed = (
        "--task language_modeling --tokens-per-sample 64 --max-tokens 64 --max-update 1 --cpu "
        "--optimizer sgd --lr 0.0001 --disable-validation --no-epoch-checkpoints --seed 1"
    )
    model = ["--arch", architecture, "--save-dir", str(folder)]
    run_fairseq("train", str(data), *fixed.split(), *model, *options)
    return folder / "checkpoint_last.pt"


def run_fairseq(*arguments: str) -> None:
    """Run ``python -m alibi_fairseq`` without output."""
    command = [sys.executable, "-m", "alibi_fairseq", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class FairseqEvaluator:
    """``fairseq-eval-lm`` with one window at a time, which its option for context requires."""

    def __init__(self, data: Path, checkpoint: Path):
        ensemble, self.cfg, _ = checkpoint_utils.load_model_ensemble_and_task(
            [str(checkpoint)], arg_overrides={"data": str(data)}
        )
        self.model = ensemble[0].to(DEVICE)

    def seconds(self, length: int, stride: int, skipped: int) -> float:
        """Return the time of all windows except the first ``skipped``."""
        self.cfg.task.tokens_per_sample = stride
        task = tasks.setup_task(self.cfg.task)
        task.load_dataset("valid")
        iterator = task.eval_lm_dataloader(
            task.dataset("valid"), batch_size=1, num_workers=0, context_window=length - stride
        )
        batches = itertools.islice(iterator, skipped, None)
        first = next(batches)  # starts the data loader before the clock
        batches = itertools.chain([first], batches)
        start = time.perf_counter()
        eval_lm.eval_lm([self.model], task.source_dictionary, batches, device=DEVICE)
        return time.perf_counter() - start


class OurEvaluator:
    """``alibi-fairseq eval``."""

    def __init__(self, data: Path, checkpoint: Path):
        self.model = load_checkpoint(checkpoint, data, DEVICE)
        self.split = load_split(DataFolder.open(data), "valid", load_dictionary(data))

    def seconds(self, length: int, stride: int, skipped: int) -> float:
        """Return the time of all windows except the first ``skipped``."""
        windows = share_start(plan_windows(len(self.split.tokens), length, stride)[skipped:])
        size = self.model.windows_per_batch(length, DEVICE, None)
        stream = self.split.tensors(stride, DEVICE)
        span = Span(0, 0, len(self.split.tokens))
        start = time.perf_counter()
        batches = make_batches(windows, size)
        sum_losses(self.model.scorer(), stream, batches, [span], LossByPosition())
        return time.perf_counter() - start


def compare(data: Path, checkpoint: Path, architecture: str, stride: int, rounds: int) -> dict:
    """Time both evaluators in alternation and return the record of the median ratio."""
    fairseq = FairseqEvaluator(data, checkpoint)
    ours = OurEvaluator(data, checkpoint)
    skipped = (LENGTH - stride) // stride + 1 if stride < LENGTH else 0
    scored = len(ours.split.tokens) - skipped * stride
    our_seconds = []
    ratios = []
    for _ in range(rounds):
        fairseq_time = fairseq.seconds(LENGTH, stride, skipped)
        our_time = ours.seconds(LENGTH, stride, skipped)
        our_seconds.append(our_time)
        ratios.append(fairseq_time / our_time)
    ratio = statistics.median(ratios)
    print(f"{architecture}, stride {stride}: {ratio:.2f} x fairseq-eval-lm")
    return {
        "name": "evaluation, non-overlapping" if stride == LENGTH else "evaluation, sliding",
        "baseline": "fairseq-eval-lm",
        "model": architecture,
        "vocabulary": WORDS,
        "length": LENGTH,
        "stride": stride,
        "tokens": scored,
        "rounds": rounds,
        "ratio": ratio,
        "tokens_per_second": scored / statistics.median(our_seconds),
    }


def measure_long_window(folder: Path) -> dict:
    """Measure the memory of one long window under the paper's adaptive softmax."""
    architecture = "alibi_lm_wiki103"
    data = make_data(folder, ADAPTIVE_WORDS, LONG)
    options = ["--criterion", "adaptive_loss", "--ddp-backend", "legacy_ddp"]
    options += ["--decoder-layers", "2", "--decoder-embed-dim", str(WIDTH)]
    options += ["--decoder-ffn-embed-dim", str(4 * WIDTH)]
    checkpoint = make_checkpoint(data, folder / architecture, architecture, *options)
    ours = OurEvaluator(data, checkpoint)
    resident = PeakMemory(DEVICE).mb()
    peak = PeakMemory(DEVICE)
    seconds = ours.seconds(LONG, LONG, 0)
    return {
        "name": "memory of one long window beyond the weights",
        "baseline": None,
        "ratio": None,
        "model": f"{architecture}, 2 layers of width {WIDTH}",
        "vocabulary": ADAPTIVE_WORDS + 4,
        "length": LONG,
        "stride": LONG,
        "tokens": LONG,
        "peak_memory_mb": peak.mb() - resident,
        "seconds": seconds,
        "tokens_per_second": LONG / seconds,
    }


#: Architecture, stride, and number of tokens: enough full windows for seconds of work per round.
CASES = [
    ("alibi_lm_tiny", 1, LENGTH + 113),
    ("alibi_lm_tiny", LENGTH, 16 * LENGTH),
    ("alibi_lm", 1, LENGTH + 13),
    ("alibi_lm", LENGTH, 8 * LENGTH),
]


def main() -> None:
    common.run(__doc__, "evaluate", measure, dtype=torch.float32)


def measure(args) -> Iterator[dict]:
    """Yield one result record per case, and one for the long window."""
    cases = CASES[:2] if args.quick else CASES
    with tempfile.TemporaryDirectory() as folder:
        for index, (architecture, stride, tokens) in enumerate(cases):
            work = Path(folder) / str(index)
            work.mkdir()
            data = make_data(work, WORDS, tokens)
            checkpoint = make_checkpoint(data, work / "model", architecture)
            yield compare(data, checkpoint, architecture, stride, args.rounds)
        if not args.quick:
            work = Path(folder) / "long"
            work.mkdir()
            # Memory freed by earlier cases would hide the memory of this one.
            yield common.run_in_new_process(measure_long_window, work)


if __name__ == "__main__":
    main()
