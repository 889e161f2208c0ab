"""Evaluate every combination of checkpoint, split, length and stride once.

Each measurement is written to disk before the next one starts, so an interrupted sweep continues
where it stopped when it is started again with the same output file.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch

from ..data.parallel import progress
from ..errors import BadInput
from ..files import locked, sha256_file
from ..results.schema import TRAINING_FILE, load_document
from .checkpoint import LoadedModel, load_checkpoint
from .data import Split, corpus_name, document_starts, load_dictionary, load_split
from .measure import (
    LossSum,
    Scorer,
    Stream,
    bucket_edges,
    document_cell,
    evaluation_cell,
    measure,
    position_cell,
)
from .memory_usage import PeakMemory
from .merge import shard_cell
from .store import Store, SweepPoint
from .text import TextSize
from .windows import (
    Span,
    Window,
    check_window,
    context_of,
    make_batches,
    plan_windows,
    shard_of,
    share_start,
    spans_of,
    within,
)


@dataclass(frozen=True)
class Sweep:
    """What to measure, and how.

    Attributes:
        data: folder written by ``fairseq-preprocess``.
        checkpoints: fairseq checkpoints.
        subsets: splits of the data.
        lengths: window lengths L in tokens.
        strides: tokens that a window scores; None is the whole window.
        out: results document to write or to continue.
        device: where to compute.
        precision: ``fp32``, ``bf16`` or ``fp16``.
        overrides: options of the stored model configuration to override.
        trained_with: dictionary file of the training data, for checkpoints without a fingerprint.
        shard: (i, n) to compute the i-th of n contiguous spans, or None for all.
        memory_budget: bytes a forward pass may take, or None for the device's default.
        buckets: None for losses of whole splits, or the number of position buckets within the
            window whose losses are measured separately.
        documents: how documents are told apart, a key of ``DOCUMENTS``, to sum the loss of each; or
            None for none.
        score_from: in each document, or in the stream if none are told apart, only tokens with at
            least this many before them are scored, and no window reaches beyond its beginning.
        score_to: only the first ``score_to`` tokens of each are read.
    """

    data: Path
    checkpoints: list[Path]
    subsets: list[str]
    lengths: list[int]
    strides: list[int | None]
    out: Path
    device: torch.device = torch.device("cpu")
    precision: str = "fp32"
    overrides: dict = field(default_factory=dict)
    trained_with: Path | None = None
    shard: tuple[int, int] | None = None
    memory_budget: int | None = None
    buckets: int | None = None
    documents: str | None = None
    score_from: int | None = None
    score_to: int | None = None

    @property
    def cut(self) -> bool:
        """Whether windows are those of documents, of which some tokens are scored."""
        return self.score_from is not None or self.score_to is not None

    def points(self) -> list[SweepPoint]:
        """All measurements, each once."""
        points = [
            SweepPoint(checkpoint, subset, length, length if stride is None else stride)
            for checkpoint in self.checkpoints
            for subset in self.subsets
            for length in self.lengths
            for stride in self.strides
        ]
        return list(dict.fromkeys(points))

    def settings(self) -> dict:
        """Keys and values common to all cells of the results."""
        settings: dict = {"precision": self.precision, "device": self.device.type}
        for key in ("documents", "score_from", "score_to"):
            if getattr(self, key) is not None:
                settings[key] = getattr(self, key)
        if self.overrides:
            settings["model_overrides"] = json.dumps(self.overrides, sort_keys=True)
        if self.buckets is not None:
            settings["buckets"] = self.buckets
        if self.shard is not None:
            settings["shard"] = "{}/{}".format(*self.shard)
        return settings


def run_sweep(sweep: Sweep, on_cell: Callable[[dict], object] = lambda cell: None) -> list[dict]:
    """Make the measurements that are not in the output file yet.

    Args:
        sweep: what to measure.
        on_cell: called with each new cell after it has been written.

    Returns:
        The cells of all points, including those of earlier runs.

    Raises:
        BadInput: if a measurement is impossible; nothing has been written then.
    """
    for point in sweep.points():
        check_window(point.length, point.stride)
    for path in sweep.checkpoints:
        if not path.is_file():
            there = sorted(path.glob("*.pt")) if path.is_dir() else []
            hint = f"name one in the folder, such as {there[-1]}" if there else "change --path"
            raise BadInput(f"There is no checkpoint file '{path}'; {hint}.")
    # Also finds an output that cannot be written, before anything is measured.
    lock = sweep.out.with_name(f".{sweep.out.name}.lock")
    with locked(lock, f"--out {sweep.out}", "evaluation"):
        return _run_locked(sweep, on_cell)


def _run_locked(sweep: Sweep, on_cell: Callable[[dict], object]) -> list[dict]:
    points = sweep.points()
    dictionary = load_dictionary(sweep.data)
    splits = {name: load_split(sweep.data, name, dictionary) for name in sweep.subsets}
    kind = "evaluation" if sweep.buckets is None else "position_loss"
    corpus = corpus_name(sweep.data)
    store = Store(sweep.out, kind, corpus, sweep.data, sweep.subsets, sweep.settings())
    hashes = {path: sha256_file(path) for path in sweep.checkpoints}
    pending = [point for point in points if not store.cells_of(point, hashes[point.checkpoint])]

    spans = {name: scored_spans(sweep, split) for name, split in splits.items()}
    shards = sweep.shard[1] if sweep.shard else 1
    passes = (
        share_start(_plan(sweep, splits[p.subset], p, p.length, spans[p.subset])) for p in pending
    )
    total = sum(window.length for windows in passes for window in windows) // shards
    with progress(total, "evaluating", "tok", disable=not pending) as bar:
        for path in dict.fromkeys(point.checkpoint for point in pending):
            model = load_checkpoint(
                path,
                sweep.data,
                dictionary,
                sweep.device,
                sweep.precision,
                sweep.overrides,
                sweep.trained_with,
            )
            known = {"checkpoint_sha256": hashes[path], **train_command(path)}
            for point in (point for point in pending if point.checkpoint == path):
                run = "/".join(path.parts[-2:])
                bar.set_description(f"{run} {point.subset} L={point.length} S={point.stride}")
                cells = measure_point(
                    sweep, model, splits[point.subset], spans[point.subset], point, bar.update
                )
                store.add([{**cell, **known} for cell in cells])
                for cell in cells:
                    on_cell(cell)
    return [cell for point in points for cell in store.cells_of(point, hashes[point.checkpoint])]


def scored_spans(sweep: Sweep, split: Split) -> list[Span]:
    """The documents of a split, or its whole stream, and what is scored of each.

    Raises:
        BadInput: nothing is.
    """
    starts = document_starts(sweep.data, split, sweep.documents) if sweep.documents else [0]
    return spans_of(len(split.tokens), starts, sweep.score_from, sweep.score_to)


def train_command(checkpoint: Path) -> dict[str, str]:
    """``train_command`` as the training has recorded it beside its checkpoints; empty if it has not."""
    with suppress(BadInput):
        record = load_document(checkpoint.parent / TRAINING_FILE)
        return {"train_command": record["provenance"]["command"]}
    return {}


def measure_point(
    sweep: Sweep,
    model: LoadedModel,
    split: Split,
    spans: list[Span],
    point: SweepPoint,
    progress: Callable[[int], object],
) -> list[dict]:
    """The cells of one measurement: one, or one per non-empty position bucket."""
    if point.length > model.max_length:
        raise BadInput(
            f"'{point.checkpoint}' supports windows of at most {model.max_length} tokens, not "
            f"{point.length}, the limit of its positions ({model.facts['position_method']})."
        )
    if model.memory_length:
        check_recurrent_sweep(sweep, point)
    size = model.windows_per_batch(point.length, sweep.device, sweep.memory_budget)
    # With a memory all windows must be computed, so that the sums choose what is scored.
    chosen = spans if sweep.cut and not model.memory_length else None
    windows = model.windows(len(split.tokens), point.length, point.stride, chosen)
    batches = make_batches(windows, size)
    if sweep.shard is not None:
        batches = shard_of(batches, *sweep.shard)
    if by_position := sweep.buckets is not None:
        edges = bucket_edges(point.length, sweep.buckets)
    else:
        edges = [0, *(edge for _, first, last in spans for edge in (first, last))]

    stream = Stream.of(split, point.stride, sweep.device)
    peak, began = PeakMemory(sweep.device), time.perf_counter()
    sums = measure(model.scorer(), stream, batches, edges, progress, of_stream=not by_position)
    seconds = time.perf_counter() - began

    facts = {
        **model.facts,
        "subset": point.subset,
        "length": point.length,
        "stride": point.stride,
        "windows_per_batch": size,
    }
    if model.memory_length:
        facts["memory_length"] = model.memory_length
    if by_position:
        pairs = zip(sums, zip(edges, edges[1:]))
        return [
            {
                **facts,
                "position_from": begin,
                "position_to": end,
                **_figures(sweep, [total], spans, TextSize()),
            }
            for total, (begin, end) in pairs
            if total.tokens
        ]
    sums = sums[1::2]  # the others are of what is not scored
    total = LossSum.over(sums)
    if not total.tokens:
        return []  # there are more shards than batches
    seen = _plan(sweep, split, point, point.length, spans)
    if model.memory_length:
        length = point.length + model.memory_length
        seen = within(plan_windows(len(split.tokens), length, point.stride), spans)
    least, mean = context_of(seen)
    cell = {
        **facts,
        **_figures(sweep, sums, spans, split.text_of(spans)),
        "min_context": least,
        "mean_context": mean,
        "seconds": round(seconds, 6),
        "tokens_per_second": round(total.tokens / seconds, 1),
        "peak_memory_mb": round(peak.mb(), 1),
    }
    if point.stride == point.length and sweep.shard is None and not model.memory_length:
        single = speed_of_single_windows(model.scorer(), stream, batches) if size > 1 else None
        cell["tokens_per_second_batch_1"] = single or cell["tokens_per_second"]
    return [cell]


def speed_of_single_windows(score: Scorer, stream: Stream, batches: list[list[Window]]) -> float:
    """Tokens per second at batch size 1, as the paper's Tables 2 to 4 give it.

    Timed on one window in twenty, at most eight, after one to warm up.
    """
    windows = [[window] for batch in batches for window in batch]
    timed = windows[: min(8, 1 + len(windows) // 20)]
    edges = [0, windows[0][0].length]
    measure(score, stream, windows[:1], edges)
    began = time.perf_counter()
    (total,) = measure(score, stream, timed, edges)
    return round(total.tokens / (time.perf_counter() - began), 1)


def check_recurrent_sweep(sweep: Sweep, point: SweepPoint) -> None:
    """Raises BadInput unless windows are contiguous, as a model with a memory needs them."""
    if point.stride < point.length:
        raise BadInput(
            f"'{point.checkpoint}' has a memory, and its windows must not overlap; use "
            "--stride full."
        )
    if sweep.shard is not None:
        raise BadInput(
            f"'{point.checkpoint}' has a memory, so its windows cannot be computed in shards; "
            "remove --shard."
        )
    if sweep.cut and sweep.buckets is not None:
        raise BadInput(
            f"'{point.checkpoint}' has a memory, so its windows begin where they must; remove "
            "--score-from and --score-to."
        )


def _plan(
    sweep: Sweep, split: Split, point: SweepPoint, length: int, spans: list[Span]
) -> list[Window]:
    return plan_windows(len(split.tokens), length, point.stride, spans if sweep.cut else None)


def _figures(sweep: Sweep, sums: list[LossSum], spans: list[Span], text: TextSize) -> dict:
    total = LossSum.over(sums)
    documents = document_cell(sums) if sweep.documents and sweep.buckets is None else {}
    if sweep.shard is not None:
        whole = sum(last - first for _, first, last in spans)
        return shard_cell(sums if documents else [total], whole, text) | documents
    cell = evaluation_cell(total, text) if sweep.buckets is None else position_cell(total)
    return cell | documents
