"""Our evaluator beside ``fairseq-eval-lm``: ``python -m benchmarks.evaluate``.

Both evaluate the same checkpoint on the same tokens in one process, in turns (A B A B …), so that
what else the machine does falls on both. Timed is the evaluation of tokens: loading is left out.
Sliding windows are timed where all of them are full, since the first ones are shorter for fairseq
and shared for us. A second part measures the memory that one window of 16,384 tokens takes beyond
the weights under the paper's output layer for 267,744 words, in a narrow model: what grows with the
vocabulary or with the square of the length does not depend on the width.

The models are as initialised, and the text is random; neither changes the time.
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
from fairseq import checkpoint_utils, tasks
from fairseq_cli import eval_lm

import alibi_fairseq.models  # noqa: F401  (registers the models)
from alibi_fairseq.evaluation.checkpoint import load_checkpoint
from alibi_fairseq.evaluation.data import load_dictionary, load_split
from alibi_fairseq.evaluation.loss_by_position import LossByPosition
from alibi_fairseq.evaluation.scoring import PeakMemory, sum_losses
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
    """A data-bin with ``words`` words whose valid split has ``tokens`` random ones."""
    generator = np.random.default_rng(1)
    vocabulary = [f"w{number}" for number in range(words)]
    (folder / "train.txt").write_text("\n".join(vocabulary) + "\n")
    drawn = generator.integers(words, size=tokens)
    starts = range(0, tokens, 25)  # lines of 24 words and their end
    lines = [" ".join(vocabulary[i] for i in drawn[j : min(j + 24, tokens - 1)]) for j in starts]
    (folder / "valid.txt").write_text("\n".join(lines) + "\n")
    data = folder / "data-bin"
    prefixes = [f"--{split}pref={folder}/{split}.txt" for split in ("train", "valid")]
    _command("preprocess", "--only-source", f"--destdir={data}", *prefixes)
    return data


def make_checkpoint(data: Path, folder: Path, architecture: str, *more: str) -> Path:
    """A model of that architecture after one update, as ``fairseq-train`` saves it."""
    options = (
        "--task language_modeling --tokens-per-sample 64 --max-tokens 64 --max-update 1 --cpu "
        "--optimizer sgd --lr 0.0001 --disable-validation --no-epoch-checkpoints --seed 1"
    )
    where = ["--arch", architecture, "--save-dir", str(folder)]
    _command("train", str(data), *options.split(), *where, *more)
    return folder / "checkpoint_last.pt"


def _command(*arguments: str) -> None:
    command = [sys.executable, "-m", "alibi_fairseq", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Fairseq:
    """``fairseq-eval-lm`` with one worker and one window at a time, as its context needs it."""

    def __init__(self, data: Path, checkpoint: Path):
        (self.model,), self.cfg, self.task = checkpoint_utils.load_model_ensemble_and_task(
            [str(checkpoint)], arg_overrides={"data": str(data)}
        )
        self.model.to(DEVICE)

    def seconds(self, length: int, stride: int, skipped: int) -> float:
        """Time of all windows but the first ``skipped``."""
        self.cfg.task.tokens_per_sample = stride
        task = tasks.setup_task(self.cfg.task)
        task.load_dataset("valid")
        iterator = task.eval_lm_dataloader(
            task.dataset("valid"), batch_size=1, num_workers=0, context_window=length - stride
        )
        batches = itertools.islice(iterator, skipped, None)
        batches = itertools.chain([next(batches)], batches)  # the workers have started
        began = time.perf_counter()
        eval_lm.eval_lm([self.model], task.source_dictionary, batches, device=DEVICE)
        return time.perf_counter() - began


class Ours:
    """``alibi-fairseq eval``."""

    def __init__(self, data: Path, checkpoint: Path):
        self.model = load_checkpoint(checkpoint, data, DEVICE)
        self.split = load_split(DataFolder.open(data), "valid", load_dictionary(data))

    def seconds(self, length: int, stride: int, skipped: int) -> float:
        """As for fairseq."""
        windows = share_start(plan_windows(len(self.split.tokens), length, stride)[skipped:])
        size = self.model.windows_per_batch(length, DEVICE, None)
        stream = self.split.tensors(stride, DEVICE)
        began = time.perf_counter()
        batches, whole = make_batches(windows, size), [Span(0, 0, len(self.split.tokens))]
        sum_losses(self.model.scorer(), stream, batches, whole, LossByPosition())
        return time.perf_counter() - began


def compare(data: Path, checkpoint: Path, architecture: str, stride: int, rounds: int) -> dict:
    """Both evaluators in turns; the cell of the median ratio."""
    fairseq, ours = Fairseq(data, checkpoint), Ours(data, checkpoint)
    skipped = (LENGTH - stride) // stride + 1 if stride < LENGTH else 0
    scored = len(ours.split.tokens) - skipped * stride
    seconds = [
        (fairseq.seconds(LENGTH, stride, skipped), ours.seconds(LENGTH, stride, skipped))
        for _ in range(rounds)
    ]
    ratio = statistics.median(theirs / own for theirs, own in seconds)
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
        "tokens_per_second": scored / statistics.median(own for _, own in seconds),
    }


def long_window(folder: Path) -> dict:
    """Memory of one window of 16,384 tokens under the paper's adaptive softmax, narrow model."""
    architecture = "alibi_lm_wiki103"
    data = make_data(folder, ADAPTIVE_WORDS, LONG)
    options = ["--criterion", "adaptive_loss", "--ddp-backend", "legacy_ddp"]
    options += ["--decoder-layers", "2", "--decoder-embed-dim", str(WIDTH)]
    options += ["--decoder-ffn-embed-dim", str(4 * WIDTH)]
    ours = Ours(data, make_checkpoint(data, folder / architecture, architecture, *options))
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


#: Model, stride, tokens: enough full windows for seconds of work at each turn.
CASES = [
    ("alibi_lm_tiny", 1, LENGTH + 113),
    ("alibi_lm_tiny", LENGTH, 16 * LENGTH),
    ("alibi_lm", 1, LENGTH + 13),
    ("alibi_lm", LENGTH, 8 * LENGTH),
]


def main() -> None:
    common.run(__doc__, "evaluate", cells)


def cells(args) -> Iterator[dict]:
    """One cell per case, and that of the long window."""
    with tempfile.TemporaryDirectory() as folder:
        for number, (architecture, stride, tokens) in enumerate(CASES[: 2 if args.quick else 4]):
            work = Path(folder) / str(number)
            work.mkdir()
            data = make_data(work, WORDS, tokens)
            checkpoint = make_checkpoint(data, work / "model", architecture)
            yield compare(data, checkpoint, architecture, stride, args.rounds)
        if not args.quick:
            work = Path(folder) / "long"
            work.mkdir()
            # What earlier cells let go would hide what this one takes.
            yield common.in_new_process(long_window, work)


if __name__ == "__main__":
    main()
