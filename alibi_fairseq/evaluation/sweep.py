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
from itertools import pairwise, product
from pathlib import Path
from typing import NamedTuple

import torch

from ..data.parallel import progress
from ..errors import BadInput
from ..files import locked, sha256_file
from ..results import manifest
from ..results.provenance import collect_provenance
from ..results.schema import (
    TRAINING_FILE,
    load_document,
    merge_documents,
    new_document,
    save_document,
)
from .checkpoint import LoadedModel, load_checkpoint
from .context import attention_mass
from .data import Split, corpus_name, document_starts, load_dictionary, load_split
from .measure import PeakMemory, Scorer, Stream, TextSize, bucket_edges, measure
from .merge import merge_cells, shard_cell
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
)

#: Settings that cells bear only where they are not the usual ones.
_OPTIONAL = (
    *("model_overrides", "shard", "documents", "score_from", "score_to", "buckets", "attention"),
)


class Point(NamedTuple):
    """One measurement of a sweep."""

    checkpoint: Path
    subset: str
    length: int
    stride: int


@dataclass(frozen=True)
class Sweep:
    """What to measure, and how: the options of ``alibi-fairseq eval``, whose help describes them.

    Attributes:
        strides: None is the whole window.
        shard: (i, n) to compute the i-th of n contiguous spans, or None for all.
        memory_budget: bytes a forward pass may take, or None for the device's default.
        buckets: None for losses of whole splits, or the number of position buckets within the
            window whose losses are measured separately.
        documents: how documents are told apart, a key of ``DOCUMENTS``, to sum the loss of each.
        attention: also measure attention by distance, see :func:`.context.attention_mass`.
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
    attention: bool | None = None

    def load(self, checkpoint: Path) -> LoadedModel:
        return load_checkpoint(
            *(checkpoint, self.data, self.device, self.precision, self.overrides),
            trained_with=self.trained_with,
        )

    def points(self) -> list[Point]:
        """All measurements, each once."""
        cases = product(self.checkpoints, self.subsets, self.lengths, self.strides)
        points = (
            Point(checkpoint, subset, length, length if stride is None else stride)
            for checkpoint, subset, length, stride in cases
        )
        return list(dict.fromkeys(points))

    def settings(self) -> dict:
        """Keys and values common to all cells of the results."""
        found = {name: getattr(self, name, None) for name in _OPTIONAL}
        if self.overrides:
            found["model_overrides"] = json.dumps(self.overrides, sort_keys=True)
        if self.shard is not None:
            found["shard"] = "{}/{}".format(*self.shard)
        given = {name: value for name, value in found.items() if value is not None}
        return {"precision": self.precision, "device": self.device.type, **given}


def run_sweep(sweep: Sweep) -> list[dict]:
    """Make the measurements that are not in the output file yet.

    Returns:
        The cells of all points, including those of earlier runs.

    Raises:
        BadInput: a measurement is impossible; nothing has been written then.
    """
    points = sweep.points()
    for point in points:
        check_window(point.length, point.stride)
    for path in sweep.checkpoints:
        if there := sorted(path.glob("*.pt")):
            raise BadInput(f"--path: '{path}' is a folder; name a file in it, such as {there[-1]}.")
    # Also finds an output that cannot be written, before anything is measured.
    lock = sweep.out.with_name(f".{sweep.out.name}.lock")
    with locked(lock, f"--out {sweep.out}", "evaluation"):
        texts = {name: Text.of(sweep, name) for name in sweep.subsets}
        results = Results(sweep)
        pending = [point for point in points if not results.cells_of(point)]
        passes = (
            share_start(texts[point.subset].plan(point.length, point.stride)) for point in pending
        )
        total = sum(window.length for windows in passes for window in windows)
        total //= sweep.shard[1] if sweep.shard else 1
        with progress(total, "evaluating", "tok", disable=not pending) as bar:
            for path in dict.fromkeys(point.checkpoint for point in pending):
                model = sweep.load(path)
                for point in (point for point in pending if point.checkpoint == path):
                    run = "/".join(path.parts[-2:])
                    bar.set_description(f"{run} {point.subset} L={point.length} S={point.stride}")
                    cells = measure_point(sweep, model, texts[point.subset], point, bar.update)
                    results.add(path, cells)
        return [cell for point in points for cell in results.cells_of(point)]


class Results:
    """The results file of a sweep: complete after every measurement, and resumed if it exists.

    Raises:
        BadInput: the file is not such a document, or was measured with other settings.
    """

    def __init__(self, sweep: Sweep):
        self.path, self.settings = sweep.out, sweep.settings()
        self._began = time.monotonic()
        self._hashes = {path: sha256_file(path) for path in sweep.checkpoints}
        self._provenance = collect_provenance(
            seconds=0, precision=sweep.precision, data=sweep.data, subsets=sorted(sweep.subsets)
        )
        if text := manifest.summary(sweep.data):
            self._provenance["text"] = text
        self._kind = "evaluation" if sweep.buckets is None else "position_loss"
        self._corpus = corpus_name(sweep.data)
        self._earlier = [load_document(self.path)] if self.path.exists() else []
        self._new: list[dict] = []
        self._check_same()

    def _check_same(self) -> None:
        hashes = {key: self._provenance[key] for key in ("data_sha256", "dictionary_sha256")}
        wanted = {"kind": self._kind, "corpus": self._corpus, **hashes}
        wanted |= dict.fromkeys(_OPTIONAL) | self.settings
        for found in (
            {**d, **d["provenance"], **cell} for d in self._earlier for cell in d["cells"]
        ):
            for key, here in wanted.items():
                if found.get(key) != here:
                    raise BadInput(
                        f"'{self.path}' contains results of another sweep: {key} is "
                        f"{found.get(key)} there and {here} here; choose another --out or remove "
                        "the file."
                    )

    def cells_of(self, point: Point) -> list[dict]:
        """Finished cells of a measurement; empty if it has not been made yet."""
        names = {**point._asdict(), "checkpoint": str(point.checkpoint)}.items()
        everything = [cell for earlier in self._earlier for cell in earlier["cells"]] + self._new
        cells = [cell for cell in everything if names <= cell.items()]
        if any(cell["checkpoint_sha256"] != self._hashes[point.checkpoint] for cell in cells):
            raise BadInput(
                f"'{self.path}' contains results of another checkpoint with the name "
                f"'{point.checkpoint}'; choose another --out or remove the file."
            )
        return cells

    def add(self, checkpoint: Path, cells: list[dict]) -> None:
        """Write the cells of a finished measurement to disk."""
        known = {"checkpoint_sha256": self._hashes[checkpoint]}
        with suppress(BadInput):  # a training leaves a record beside its checkpoints
            record = load_document(checkpoint.parent / TRAINING_FILE)
            known["train_command"] = record["provenance"]["command"]
        self._new += [{**cell, **known, **self.settings} for cell in cells]
        self._provenance["seconds"] = round(time.monotonic() - self._began, 3)
        new = new_document(self._kind, self._corpus, self._provenance, self._new)
        save_document(merge_documents([*self._earlier, new]), self.path)


class Text(NamedTuple):
    """A split, its documents or the whole stream, and whether windows begin anew in each."""

    split: Split
    spans: list[Span]
    cut: bool

    @classmethod
    def of(cls, sweep: Sweep, name: str) -> Text:
        split = load_split(sweep.data, name, load_dictionary(sweep.data))
        starts = document_starts(sweep.data, split, sweep.documents) if sweep.documents else [0]
        spans = spans_of(len(split.tokens), starts, sweep.score_from, sweep.score_to)
        return cls(split, spans, sweep.score_from is not None or sweep.score_to is not None)

    def plan(self, length: int, stride: int, *, whole: bool = False) -> list[Window]:
        """The windows; with ``whole`` those of the whole stream, whatever is scored of it."""
        spans = self.spans if self.cut and not whole else None
        return plan_windows(len(self.split.tokens), length, stride, spans)


def measure_point(
    sweep: Sweep, model: LoadedModel, text: Text, point: Point, progress: Callable[[int], object]
) -> list[dict]:
    """The cells of one measurement: one, or one per non-empty position bucket."""
    _, _, length, stride = point
    if length > model.max_length:
        raise BadInput(
            f"'{point.checkpoint}' supports windows of at most {model.max_length} tokens, not "
            f"{length}, the limit of its positions ({model.facts['position_method']})."
        )
    remembered = model.memory_length
    if remembered and (stride < length or sweep.shard or (text.cut and sweep.buckets)):
        raise BadInput(
            f"'{point.checkpoint}' has a memory, for which the split is read in order: use --stride "
            "full, no --shard and, for losses by position, no --score-from."
        )
    # With a memory all windows are computed, each with that of the one before; the sums choose.
    windows = text.plan(length, stride, whole=bool(remembered))
    size = model.windows_per_batch(length, sweep.device, sweep.memory_budget)
    batches = make_batches(share_start(windows) if model.shares_start else windows, size)
    if sweep.shard is not None:
        batches = shard_of(batches, *sweep.shard)
    stream = text.split.stream(stride, sweep.device)
    by_position = sweep.buckets is not None
    edges = [0, *(edge for _, first, last in text.spans for edge in (first, last))]
    if sweep.buckets is not None:
        edges = bucket_edges(length, sweep.buckets)
    peak, began = PeakMemory(sweep.device), time.perf_counter()
    sums = measure(model.scorer(), stream, batches, edges, progress, of_stream=not by_position)
    seconds = round(time.perf_counter() - began, 6)

    facts = {**model.facts, "subset": point.subset, "length": length, "stride": stride}
    facts["windows_per_batch"] = size
    if remembered:
        facts["memory_length"] = remembered
    whole = sum(last - first for _, first, last in text.spans)
    cells = []
    if by_position:
        for (first, end), total in zip(pairwise(edges), sums):
            if total.tokens:
                where = {"position_from": first, "position_to": end}
                cells.append({**facts, **where, **shard_cell([total], False, whole, TextSize())})
    elif batches:  # there may be more shards than batches
        scored = sums[1::2]  # between documents lie tokens that are not scored
        size_of_text = text.split.text_of(text.spans)
        cell = {**facts, **shard_cell(scored, sweep.documents is not None, whole, size_of_text)}
        cells.append(cell)
        if sweep.attention:
            cell["attention_mass"] = attention_mass(model, stream, windows)
        if not (remembered and text.cut):
            seen = text.plan(length + remembered, stride)
            cell["min_context"], cell["mean_context"] = context_of(seen)
        cell["seconds"] = seconds
        cell["tokens_per_second"] = round(cell["tokens"] / seconds, 1)
        cell["peak_memory_mb"] = round(peak.mb(), 1)
        if stride == length and sweep.shard is None and not remembered:
            single = speed_of_single_windows(model.scorer(), stream, batches) if size > 1 else None
            cell["tokens_per_second_batch_1"] = single or cell["tokens_per_second"]
    return cells if sweep.shard else [merge_cells([cell]) for cell in cells]


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
