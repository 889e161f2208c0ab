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
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from fairseq import checkpoint_utils, options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import eval_lm
from omegaconf import OmegaConf

from alibi_fairseq.data.truncation import write_lines
from alibi_fairseq.evaluation.checkpoint import load_checkpoint
from alibi_fairseq.evaluation.scoring import LossByPosition, score_batches, sum_losses
from alibi_fairseq.evaluation.split import load_dictionary, load_split
from alibi_fairseq.evaluation.windows import Span, make_batches, plan_windows, share_start
from alibi_fairseq.peak_memory import PeakMemory
from alibi_fairseq.results.data_folder import DataFolder
from alibi_fairseq.results.file_names import LAST_CHECKPOINT

from . import common, models

DEVICE = common.device()
WORDS = 30_000
LENGTH = 512
ADAPTIVE_WORDS = 267_744
LONG = 16_384
WIDTH = 64


def make_data(folder: Path, words: int, tokens: int) -> Path:
    """Write binary data: a dictionary of ``words`` entries and a valid split of random tokens."""
    dictionary = models.make_dictionary(words)
    dictionary.save(str(folder / "dict.txt"))
    rng = np.random.default_rng(1)
    token_ids = torch.from_numpy(rng.integers(dictionary.nspecial, words, size=tokens))
    token_ids[24::25] = dictionary.eos()  # a line has 24 words and the end-of-sentence symbol
    token_ids[-1] = dictionary.eos()
    write_lines(folder / "valid", token_ids.split(25), words)
    return folder


def make_checkpoint(data: Path, architecture: str, *flags: str) -> Path:
    """Save a model with random weights as fairseq does, and return its checkpoint."""
    command = [str(data), "--task", "language_modeling", "--tokens-per-sample", "64"]
    command += ["--arch", architecture, "--optimizer", "sgd", "--seed", "1", *flags]
    parsed = options.parse_args_and_arch(options.get_training_parser(), command)
    config = convert_namespace_to_omegaconf(parsed)
    model = tasks.setup_task(config.task).build_model(config.model)
    state = {
        "args": None,
        "cfg": OmegaConf.to_container(config, resolve=True, enum_to_str=True),
        "model": model.state_dict(),
        # fairseq requires these keys to read a checkpoint.
        "optimizer_history": [{"optimizer_name": "FairseqSGD", "lr_scheduler_state": {}}],
        "extra_state": {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}},
    }
    path = data / LAST_CHECKPOINT
    checkpoint_utils.torch_persistent_save(state, str(path))
    return path


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
        tensors = self.split.tensors(stride, DEVICE)
        span = Span(0, 0, len(self.split.tokens))
        start = time.perf_counter()
        batches = make_batches(windows, size)
        scored = score_batches(self.model.scorer(), tensors, batches)
        sum_losses(scored, [span], LossByPosition())
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
    flags = ["--decoder-layers", "2", "--decoder-embed-dim", str(WIDTH)]
    flags += ["--decoder-ffn-embed-dim", str(4 * WIDTH)]
    checkpoint = make_checkpoint(data, architecture, *flags)
    ours = OurEvaluator(data, checkpoint)
    resident = PeakMemory(DEVICE).mb()
    peak = PeakMemory(DEVICE)
    seconds = ours.seconds(LONG, LONG, 0)
    return {
        "name": "memory of one long window beyond the weights",
        "baseline": None,
        "ratio": None,
        "model": f"{architecture}, 2 layers of width {WIDTH}",
        "vocabulary": ADAPTIVE_WORDS,
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
            checkpoint = make_checkpoint(data, architecture)
            yield compare(data, checkpoint, architecture, stride, args.rounds)
        if not args.quick:
            work = Path(folder) / "long"
            work.mkdir()
            # Memory freed by earlier cases would hide the memory of this one.
            yield common.run_in_new_process(measure_long_window, work)


if __name__ == "__main__":
    main()
