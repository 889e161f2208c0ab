"""``python -m alibi_fairseq.experiments.study.evaluate``: the evaluations of one cell, with sums per document.

Writes ``evaluation.json`` (windows that do not overlap, and windows that slide by one token over the
same tokens at every length) and ``position_loss.json``. Documents are told apart in the sums only:
windows run over the whole test split, as in the paper.

Shapes: N tokens of the test split.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path

import numpy as np
import torch

from ...evaluation.checkpoint import LoadedModel, load_checkpoint
from ...evaluation.data import corpus_name, load_dictionary, load_split
from ...evaluation.measure import Stream, bucket_edges, losses_of
from ...evaluation.windows import Window, context_of, make_batches, plan_windows
from ...files import sha256_file
from ...results.provenance import collect_provenance
from ...results.schema import new_document, save_document
from .data import document_starts
from .description import Tests, load

SUBSET = "test"
#: Parts of a window whose losses are told apart.
BUCKETS = 12
_BITS = 1 / math.log(2)


class Evaluation:
    """The evaluations of one model.

    Args:
        model: in evaluation mode, on the CPU or a GPU.
        data: the folder of :func:`.data.prepare`.
        common: keys and values of all cells of the results.
    """

    def __init__(self, model: LoadedModel, data: Path, device: torch.device, common: dict):
        split = load_split(data, SUBSET, load_dictionary(data))
        self.model, self.device = model, device
        self.common = {**model.facts, "subset": SUBSET, "device": device.type, **common}
        self.starts = np.array(document_starts(data))
        self.stream = Stream.of(split, 1, device)
        self.tokens = len(split.tokens)
        self.bytes = split.text.bytes

    def whole(self, length: int) -> tuple[dict, list[dict]]:
        """Windows that do not overlap: a cell, and the cells of the loss by position."""
        began = time.perf_counter()
        windows = plan_windows(self.tokens, length, length)
        losses = self._losses(windows)  # (N,) in nats
        seconds = time.perf_counter() - began
        least, mean = context_of(windows)
        cell = {
            **self._cell(length, length, losses, np.arange(self.tokens)),
            "min_context": least,
            "mean_context": mean,
            "seconds": round(seconds, 3),
            "tokens_per_second": round(self.tokens / seconds, 1),
        }
        place = np.arange(self.tokens) % length
        edges, positions = bucket_edges(length, BUCKETS), []
        for begin, end in zip(edges, edges[1:]):
            of_bucket = losses[(place >= begin) & (place < end)]
            if len(of_bucket):
                where = {"length": length, "stride": length}
                where |= {"position_from": begin, "position_to": end, "tokens": len(of_bucket)}
                bits = float(of_bucket.mean()) * _BITS
                positions.append({**self.common, **where, "loss_bits": bits})
        return cell, positions

    def sliding(self, lengths: list[int], per_document: int) -> list[dict]:
        """Windows that slide by one token, each token with as many tokens before it as fit.

        The tokens are the same at all lengths: in each document those from the longest length on, so
        that all context is of the same document.
        """
        ends = np.append(self.starts[1:], self.tokens)
        first = self.starts + max(lengths)
        places = [np.arange(a, min(a + per_document, b)) for a, b in zip(first, ends) if a < b]
        scored = np.concatenate(places)
        cells = []
        for length in lengths:
            losses = self._losses([Window(p + 1 - length, p, p + 1) for p in scored.tolist()])
            cells.append(self._cell(length, 1, losses[scored], scored))
        return cells

    def _losses(self, windows: list[Window]) -> np.ndarray:
        """(N,) losses in nats of what the windows score."""
        size = self.model.windows_per_batch(windows[0].length, self.device, None)
        losses = np.zeros(self.tokens)
        for batch, found in losses_of(
            self.model.scorer(), self.stream, make_batches(windows, size)
        ):
            for window, row in zip(batch, found.cpu().numpy()):
                losses[window.scored : window.stop] = row
        return losses

    def _cell(self, length: int, stride: int, losses: np.ndarray, places: np.ndarray) -> dict:
        """A cell with the sums of each document that has any of the places."""
        document = np.searchsorted(self.starts, places, side="right") - 1
        tokens = np.bincount(document, minlength=len(self.starts))
        sums = np.bincount(document, weights=losses, minlength=len(self.starts)) * _BITS
        bits = float(losses.mean()) * _BITS
        cell = {
            **self.common,
            "length": length,
            "stride": stride,
            "tokens": len(losses),
            "loss_bits": bits,
            "perplexity": 2.0**bits,
            "document_tokens": tokens.tolist(),
            "document_bits": [round(float(each), 4) for each in sums],
        }
        if stride == length and self.bytes:
            cell |= {"bytes": self.bytes, "bits_per_byte": bits * self.tokens / self.bytes}
        return cell


def evaluate(
    data: Path, checkpoint: Path, tests: Tests, out: Path, device: torch.device, overrides: dict
) -> None:
    """Write the documents of a cell, all evaluated with the same options of the model overridden."""
    began = time.monotonic()
    cells, positions = one_model(data, checkpoint, tests, device, overrides, sliding=True)
    if variant := tests.variants.get(cells[0]["position_method"]):
        more = one_model(data, checkpoint, tests, device, {**overrides, **variant}, sliding=False)
        cells, positions = cells + more[0], positions + more[1]
    provenance = collect_provenance(
        seconds=time.monotonic() - began,
        seed=cells[0]["seed"],
        data=data,
        subsets=["train", SUBSET],
        command=["python", "-m", "alibi_fairseq.experiments.study.evaluate", *sys.argv[1:]],
    )
    for kind, name, found in (
        ("evaluation", "evaluation.json", cells),
        ("position_loss", "position_loss.json", positions),
    ):
        save_document(new_document(kind, corpus_name(data), provenance, found), out / name)


def one_model(
    data: Path,
    checkpoint: Path,
    tests: Tests,
    device: torch.device,
    overrides: dict,
    sliding: bool,
) -> tuple[list[dict], list[dict]]:
    """The cells of both documents for one model, with options overridden."""
    model = load_checkpoint(checkpoint, data, load_dictionary(data), device, overrides=overrides)
    common = {"checkpoint_sha256": sha256_file(checkpoint), "precision": "fp32"}
    if overrides:
        common["model_overrides"] = json.dumps(overrides, sort_keys=True)
    evaluation = Evaluation(model, data, device, common)
    cells, positions = [], []
    for length in tests.lengths(model.facts["train_length"]):
        cell, by_position = evaluation.whole(length)
        cells.append(cell)
        positions += by_position
        print(f"{length:6d} {cell['perplexity']:10.3f} {cell['seconds']:8.1f} s", flush=True)
    lengths = tests.sliding_lengths(model.facts["train_length"])
    if sliding and lengths and not model.memory_length:
        cells += evaluation.sliding(lengths, tests.sliding_tokens)
    return cells, positions


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m alibi_fairseq.experiments.study.evaluate")
    parser.add_argument("data", type=Path, help="folder of the study's data")
    parser.add_argument("--path", type=Path, required=True, help="checkpoint")
    parser.add_argument("--description", type=Path, required=True, help="of the study")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--model-overrides", type=json.loads, default={}, metavar="JSON")
    args = parser.parse_args()
    tests = load(args.description).tests
    device = torch.device(args.device)
    evaluate(args.data, args.path, tests, args.out, device, args.model_overrides)


if __name__ == "__main__":
    main()
