"""Evaluate every combination of checkpoint, split, length and stride once.

Each measurement is written to disk before the next one starts, so an interrupted sweep continues
where it stopped when it is started again with the same output file.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import groupby, product
from operator import itemgetter
from pathlib import Path

import torch

from ..data.probes import SETTINGS_FILE
from ..data.worker_pool import progress
from ..errors import UserInputError
from ..files import locked, sha256_file
from ..results.data_folder import DataFolder
from ..results.provenance import collect_provenance
from ..results.schema import (
    TRAINING_FILE,
    identity,
    load_results_file,
    merge_results_files,
    new_results_file,
    save_results_file,
)
from .checkpoint import LoadedModel, load_checkpoint
from .data import Split, TextSize, document_starts, load_dictionary, load_split
from .loss_by_position import LossByPosition
from .probe import ProbeCases
from .scoring import PeakMemory, Scorer, SplitTensors, losses_of, sum_losses
from .windows import (
    Span,
    Window,
    context_of,
    effective_window,
    make_batches,
    plan_windows,
    share_start,
    spans_of,
)


@dataclass(frozen=True)
class SweepConfig:
    """What to measure, and how: the options of ``alibi-fairseq eval``, whose help describes them.

    Attributes:
        strides: None is the whole window.
        memory_budget: bytes a forward pass may take, or None for the device's default.
        documents: how documents are told apart, a key of ``DOCUMENTS``, to sum the loss of each.
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
    memory_budget: int | None = None
    documents: str | None = None
    score_from: int | None = None
    score_to: int | None = None

    def settings(self) -> dict:
        """Keys and values common to all cells of the results, which leave out those of None."""
        overrides = json.dumps(self.overrides, sort_keys=True) if self.overrides else None
        return {
            "precision": self.precision,
            "device": self.device.type,
            "model_overrides": overrides,
            "documents": self.documents,
            "score_from": self.score_from,
            "score_to": self.score_to,
        }


def run_sweep(sweep: SweepConfig) -> list[dict]:
    """Make the measurements that are not in the output file yet.

    Returns:
        The cells of all measurements, including those of earlier runs.

    Raises:
        UserInputError: a measurement is impossible; nothing has been written then.
    """
    # Also finds an output that cannot be written, before anything is measured.
    lock = sweep.out.with_name(f".{sweep.out.name}.lock")
    with locked(lock, f"--out {sweep.out}", "evaluation"):
        folder = DataFolder.open(sweep.data)
        is_probe = (sweep.data / SETTINGS_FILE).is_file()
        work: TextCases | ProbeCases = ProbeCases(sweep) if is_probe else TextCases(sweep, folder)
        results = SweepResults(sweep, work, folder)
        points = list(product(dict.fromkeys(sweep.checkpoints), work.cases))
        pending = [point for point in points if results.find(*point) is None]
        total = sum(work.inputs(case) for _, case in pending)
        with progress(total, "evaluating", "tok", disable=not pending) as bar:
            for path, group in groupby(pending, key=itemgetter(0)):
                how = (sweep.device, sweep.precision, sweep.overrides)
                model = load_checkpoint(path, sweep.data, *how)
                for _, case in group:
                    which = ", ".join(f"{key} {value}" for key, value in case.items())
                    bar.set_description(f"{'/'.join(path.parts[-2:])} {which}")
                    earlier = results.of_checkpoint(path)
                    measured = work.measure(model, case, earlier, bar.update)
                    results.add(path, {**model.facts, **case, **measured})
        return [cell for point in points if (cell := results.find(*point))]


class SweepResults:
    """The results file of a sweep: complete after every measurement, and resumed if it exists.

    Raises:
        UserInputError: the file is not such a document, or was measured with other settings.
    """

    def __init__(self, sweep: SweepConfig, work: TextCases | ProbeCases, folder: DataFolder):
        self.path, self.settings = sweep.out, sweep.settings()
        self._began = time.monotonic()
        self._hashes = {path: sha256_file(path) for path in sweep.checkpoints}
        provenance = collect_provenance(
            seconds=0, precision=sweep.precision, data=sweep.data, subsets=work.subsets
        )
        if folder.text_summary is not None:
            provenance["text"] = folder.text_summary
        self._new = new_results_file(work.kind, work.corpus, provenance, [])
        self._documents = [self._new]
        if self.path.exists():
            self._documents.insert(0, load_results_file(self.path))
        wanted = {key: provenance[key] for key in ("data_sha256", "dictionary_sha256")}
        wanted |= {"kind": work.kind, "corpus": work.corpus, **self.settings}
        for document in self._documents[:-1]:
            for cell in document["cells"]:
                found = {**document, **document["provenance"], **cell}
                for key, here in wanted.items():
                    if found.get(key) != here:
                        raise UserInputError(
                            f"'{self.path}' contains results of another sweep: {key} is "
                            f"{found.get(key)} there and {here} here; choose another --out or "
                            "remove the file."
                        )

    def find(self, checkpoint: Path, case: dict) -> dict | None:
        """The cell of a measurement, None if it has not been made yet."""
        wanted = {*identity({**self.settings, "checkpoint": str(checkpoint), **case})}
        for cell in (cell for document in self._documents for cell in document["cells"]):
            if wanted <= {*identity(cell)}:
                if cell.get("checkpoint_sha256") != self._hashes[checkpoint]:
                    raise UserInputError(
                        f"'{self.path}' contains results of another checkpoint with the name "
                        f"'{checkpoint}'; choose another --out or remove the file."
                    )
                return cell
        return None

    def of_checkpoint(self, checkpoint: Path) -> list[dict]:
        """Return all cells of a checkpoint with its present contents, also of earlier runs."""
        cells = [cell for document in self._documents for cell in document["cells"]]
        own = {"checkpoint": str(checkpoint), "checkpoint_sha256": self._hashes[checkpoint]}
        return [cell for cell in cells if own.items() <= cell.items()]

    def add(self, checkpoint: Path, cell: dict) -> None:
        """Write a new cell to disk."""
        cell["checkpoint_sha256"] = self._hashes[checkpoint]
        with suppress(UserInputError):  # a training leaves a record beside its checkpoints
            record = load_results_file(checkpoint.parent / TRAINING_FILE)
            cell["train_command"] = record["provenance"]["command"]
        cell |= {key: value for key, value in self.settings.items() if value is not None}
        self._new["cells"].append(cell)
        self._new["provenance"]["seconds"] = round(time.monotonic() - self._began, 3)
        save_results_file(merge_results_files(self._documents), self.path)


class TextCases:
    """The measurements of a sweep on splits of a text: the loss at a length and stride."""

    kind = "evaluation"

    def __init__(self, sweep: SweepConfig, folder: DataFolder):
        self.sweep = sweep
        self.corpus = folder.corpus
        self.subsets = sorted(sweep.subsets)
        self.cases: list[dict] = []
        for subset, length, stride in product(sweep.subsets, sweep.lengths, sweep.strides):
            stride = length if stride is None else stride
            case = {"subset": subset, "length": length, "stride": stride}
            if case not in self.cases:
                self.cases.append(case)
        self.splits: dict[str, Split] = {}
        self.spans: dict[str, list[Span]] = {}
        dictionary = load_dictionary(sweep.data)
        for name in sweep.subsets:
            split = self.splits[name] = load_split(folder, name, dictionary)
            starts = document_starts(folder, split, sweep.documents) if sweep.documents else [0]
            self.spans[name] = spans_of(len(split.tokens), starts, sweep.score_from, sweep.score_to)
        #: Whether windows begin anew in each document.
        self.cut = sweep.score_from is not None or sweep.score_to is not None

    def windows(self, subset: str, length: int, stride: int) -> list[Window]:
        spans = self.spans[subset] if self.cut else None
        return plan_windows(len(self.splits[subset].tokens), length, stride, spans)

    def inputs(self, case: dict) -> int:
        return sum(window.length for window in share_start(self.windows(**case)))

    def measure(
        self,
        model: LoadedModel,
        case: dict,
        earlier: list[dict],
        progress: Callable[[int], object],
    ) -> dict:
        """Measure a case, unless an ``earlier`` cell of the model has the same windows.

        Lengths beyond the end of the text have the windows of a shorter length. Their cells repeat
        its measurement, and ``longest_window`` gives the number of tokens in the longest window.
        """
        device, (subset, length, stride) = self.sweep.device, case.values()
        split, spans = self.splits[subset], self.spans[subset]
        checkpoint, remembered = model.facts["checkpoint"], model.memory_length
        if length > model.max_length:
            raise UserInputError(
                f"'{checkpoint}' supports windows of at most {model.max_length} tokens, not "
                f"{length}, the limit of its positions ({model.facts['position_method']})."
            )
        if remembered and stride < length:
            raise UserInputError(
                f"'{checkpoint}' has a memory, for which the split is read in order: use --strides full."
            )
        windows = self.windows(**case)
        if remembered:  # all windows, each with the memory of the one before; the sums choose
            windows = plan_windows(len(split.tokens), length, stride)
        longest = max(window.length for window in windows)
        for cell in earlier:
            if self._has_windows_of(cell, case, bool(remembered)):
                progress(self.inputs(case))
                return {key: cell[key] for key in cell.keys() - case} | {"longest_window": longest}
        size = model.windows_per_batch(length, device, self.sweep.memory_budget)
        batches = make_batches(share_start(windows) if model.shares_start else windows, size)
        stream = split.stream(stride, device)
        peak, began = PeakMemory(device), time.perf_counter()
        positions = LossByPosition(remembered)
        nats = sum_losses(model.scorer(), stream, batches, spans, positions, progress)
        seconds = round(time.perf_counter() - began, 6)

        tokens = [last - first for _, first, last in spans]
        cell = losses(nats, tokens, split.text_of(spans), self.sweep.documents is not None)
        cell |= positions.fields()
        cell |= {"longest_window": longest, "windows_per_batch": size, "seconds": seconds}
        cell["tokens_per_second"] = round(cell["tokens"] / seconds, 1)
        cell["peak_memory_mb"] = round(peak.mb(), 1)
        if remembered:
            cell["memory_length"] = remembered
        elif stride == length:
            single = speed_of_single_windows(model.scorer(), stream, batches) if size > 1 else None
            cell["tokens_per_second_batch_1"] = single or cell["tokens_per_second"]
        if not (remembered and self.cut):
            seen = self.windows(subset, length + remembered, stride)
            cell["min_context"], cell["mean_context"] = context_of(seen)
        return cell

    def _has_windows_of(self, cell: dict, case: dict, in_order: bool) -> bool:
        """Return True if a cell was measured with the windows of a case.

        Args:
            in_order: the model has a memory and reads the whole split.
        """
        subset, length, stride = case.values()
        if cell["subset"] != subset:
            return False
        whole = [Span(0, 0, len(self.splits[subset].tokens))]
        spans = self.spans[subset] if self.cut and not in_order else whole
        asked = effective_window(length, stride, spans)
        return asked == effective_window(cell["length"], cell["stride"], spans)


def losses(nats: list[Fraction], tokens: list[int], text: TextSize, documents: bool) -> dict:
    """Keys of a cell, from the sums over each document or over all.

    Args:
        tokens: the number of tokens of each sum.
        text: what all of them stand for.
        documents: also give the sums of each document.
    """
    total = float(sum(nats))
    mean = total / sum(tokens)
    cell: dict = {"tokens": sum(tokens), "loss_bits": mean / math.log(2)}
    cell["perplexity"] = math.exp(mean)
    if documents:  # from these come intervals of a bootstrap
        cell["document_tokens"] = tokens
        cell["document_bits"] = [round(float(each) / math.log(2), 4) for each in nats]
    if text.words:
        cell |= {"words": text.words, "word_perplexity": math.exp(total / text.words)}
    if text.bytes:
        cell |= {"bytes": text.bytes, "bits_per_byte": total / math.log(2) / text.bytes}
    return cell


def speed_of_single_windows(
    score: Scorer, stream: SplitTensors, batches: list[list[Window]]
) -> float:
    """Tokens per second at batch size 1, as the paper's Tables 2 to 4 give it.

    Timed on one window in twenty, at most eight, after one to warm up.
    """
    windows = [window for batch in batches for window in batch]
    timed = windows[: min(8, 1 + len(windows) // 20)]
    list(losses_of(score, stream, [windows[:1]]))
    began = time.perf_counter()
    list(losses_of(score, stream, [[window] for window in timed]))
    return round(sum(window.scores for window in timed) / (time.perf_counter() - began), 1)
