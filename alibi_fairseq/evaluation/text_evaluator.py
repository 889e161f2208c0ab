"""Loss of a model on splits of a text, by length and stride."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch

from ..peak_memory import PeakMemory
from ..results.case import Case
from ..results.data_folder import DataFolder
from ..results.values import Cost, TextSummary, TextValues
from .checkpoint import LoadedModel
from .config import SweepConfig
from .evaluator import Evaluator, Measured
from .scoring import LossByPosition, Scorer, SplitTensors, score_batches, sum_losses
from .split import load_dictionary, load_split
from .sweep import Sweep
from .text_size import TextSize
from .windows import (
    Span,
    Window,
    measure_context,
    plan_windows,
    select_spans,
    share_start,
)

#: Largest number of shapes of batches that are computed before an evaluation on a GPU is timed.
MOST_SHAPES = 8


class EvaluatedSplit(Protocol):
    """Split of a text, such as :class:`.split.Split`."""

    @property
    def tokens(self) -> np.ndarray:
        """Token IDs, (N,) int64."""

    def tensors(self, stride: int, device: torch.device) -> SplitTensors:
        """Return inputs and targets on a device, for windows that score ``stride`` tokens."""

    def scored_text_size(self, spans: Sequence[Span]) -> TextSize:
        """Return the words and bytes of the scored tokens, None where unknown."""


class TextEvaluator(Evaluator):
    """Evaluator of splits of a text: the loss by split, length, and stride.

    Args:
        sweep: what is measured.
        splits: each split of the sweep.
        text: tokenizer and sizes of the data.

    Raises:
        UserInputError: nothing in a split is scored.
    """

    def __init__(
        self,
        sweep: Sweep,
        splits: Mapping[str, EvaluatedSplit],
        text: TextSummary,
    ):
        super().__init__(sweep, text)
        config = sweep.config
        self._splits = splits
        self._spans: dict[str, list[Span]] = {}
        self._unigram_bits: dict[str, float] = {}
        for name, split in splits.items():
            starts = sweep.identities[name].starts
            self._spans[name] = select_spans(
                len(split.tokens), starts, config.score_from, config.score_to
            )
            self._unigram_bits[name] = unigram_entropy(split.tokens)

    @classmethod
    def of_folder(cls, config: SweepConfig, folder: DataFolder) -> TextEvaluator:
        """Create the evaluator of the splits of a data folder."""
        dictionary = load_dictionary(folder.path)
        splits = {name: load_split(folder, name, dictionary) for name in config.splits}
        sweep = Sweep.of_data(config, folder, folder.corpus, splits)
        return cls(sweep, splits, folder.text_summary)

    def num_inputs(self, case: Case) -> int:
        return sum(window.length for window in share_start(self._windows(case)))

    def measure(
        self, model: LoadedModel, case: Case, progress: Callable[[int], object]
    ) -> Measured:
        """Measure the loss on a split.

        Raises:
            UserInputError: a loss is not finite.
        """
        windows = self._windows(case, model.memory_length)
        budget = self.sweep.config.memory_budget
        batch_size = model.windows_per_batch(case.length, self.device, budget)
        batches = model.make_batches(windows, batch_size)
        tensors = self._splits[case.split].tensors(case.stride, self.device)
        loss_by_position = LossByPosition()
        if self.device.type == "cuda":
            warm_up(model.scorer(), tensors, batches)
        peak = PeakMemory(self.device)
        began = time.perf_counter()
        scored = score_batches(model.scorer(), tensors, batches)
        nats = sum_losses(scored, self._spans[case.split], loss_by_position, progress)
        seconds = round(time.perf_counter() - began, 6)

        values = self._values(model, case, windows, nats, loss_by_position)
        assert values.tokens is not None, "they were just counted"
        speed = round(values.tokens / seconds, 1)
        speed_1 = None
        if case.nonoverlapping:
            speed_1 = speed
            if batch_size > 1:
                speed_1 = speed_of_single_windows(model.scorer(), tensors, batches)
        cost = Cost(
            device=self.device.type,
            seconds=seconds,
            tokens_per_second=speed,
            tokens_per_second_batch_1=speed_1,
            windows_per_batch=batch_size,
            peak_memory_mb=round(peak.mb(), 1),
        )
        return Measured(values, cost)

    def _values(
        self,
        model: LoadedModel,
        case: Case,
        windows: Sequence[Window],
        nats: list[list[float]],
        loss_by_position: LossByPosition,
    ) -> TextValues:
        """Return the values of a case.

        Args:
            windows: windows of the case, before any share a pass.
            nats: loss of each document in nats, as terms to add up.
            loss_by_position: the same losses by position.
        """
        spans = self._spans[case.split]
        values = loss_values(
            nats,
            [span.stop - span.first for span in spans],
            self._splits[case.split].scored_text_size(spans),
            self.sweep.identities[case.split].documents,
        )
        values = replace(
            values,
            unigram_bits=self._unigram_bits[case.split],
            longest_window=max(window.length for window in windows),
        )
        if model.attends_within_documents:  # the context is not that of the window
            return values
        values = replace(values, **loss_by_position.fields())
        # Windows in order also score tokens outside the range, in contexts that do not count.
        if model.memory_length and self.sweep.config.has_scored_range:
            return values
        min_context, mean_context = measure_context(windows)
        return replace(values, min_context=min_context, mean_context=mean_context)

    def _windows(self, case: Case, memory_length: int = 0) -> list[Window]:
        """Return the windows of a case for a model with a memory, or without one."""
        num_tokens = len(self._splits[case.split].tokens)
        spans = self._window_spans(case.split, memory_length)
        return plan_windows(num_tokens, case.length, case.stride, spans, memory_length)

    def _window_spans(self, split: str, memory_length: int) -> list[Span]:
        """Return the spans of a split in each of which windows start again.

        They are its documents if a range of each is scored, and else the whole split. It is also
        the whole split if a model with a memory must read all windows in order: ``sum_losses`` then
        leaves out the tokens outside the range.
        """
        if self.sweep.config.has_scored_range and memory_length == 0:
            return self._spans[split]
        return [Span(0, 0, len(self._splits[split].tokens))]


def unigram_entropy(tokens: np.ndarray) -> float:
    """Return the entropy of token frequencies in bits.

    It is the lowest loss on these tokens of a model that ignores the context.

    Args:
        tokens: (N,) token IDs.
    """
    counts = np.bincount(tokens)
    frequencies = counts[counts > 0] / len(tokens)
    entropy = -np.sum(frequencies * np.log2(frequencies))
    return round(float(entropy), 6) + 0.0  # 0.0 instead of -0.0


def loss_values(
    nats: list[list[float]], tokens: list[int], text_size: TextSize, documents: str | None
) -> TextValues:
    """Return the loss on a text, and on each document.

    Args:
        nats: loss of each document in nats, as terms to add up.
        tokens: number of scored tokens of each document.
        text_size: size of the text of all scored tokens.
        documents: where documents begin, as in :class:`.split_identity.SplitIdentity`; None:
            without the losses of documents.
    """
    total_nats = math.fsum(itertools.chain.from_iterable(nats))
    total_tokens = sum(tokens)
    values = TextValues(
        loss_bits=total_nats / total_tokens / math.log(2),
        tokens=total_tokens,
        words=text_size.words or None,
        bytes=text_size.bytes or None,
    )
    if documents is None:
        return values
    return replace(
        values,
        documents=documents,
        document_tokens=tuple(tokens),
        document_bits=tuple(round(math.fsum(loss) / math.log(2), 4) for loss in nats),
    )


def warm_up(score: Scorer, tensors: SplitTensors, batches: list[list[Window]]) -> None:
    """Compute windows of the most frequent shapes, for which a GPU's kernels are compiled.

    The kernels are compiled on first use, for one window or for several of a shape. Documents of
    many lengths have many shapes, but few kinds of kernels.

    Args:
        score: computes the losses of a batch.
        tensors: the split on the device of the model.
        batches: all windows of the measurement.

    Raises:
        UserInputError: a loss is not finite.
    """
    counts: Counter[tuple[int, ...]] = Counter()
    windows_by_shape: dict[tuple[int, ...], list[Window]] = {}
    for batch in batches:
        windows = batch[:2]
        shape = (len(windows), batch[0].length, batch[0].num_scored, batch[0].remembered)
        counts[shape] += 1
        windows_by_shape[shape] = windows
    warmed_up = [windows_by_shape[shape] for shape, _ in counts.most_common(MOST_SHAPES)]
    for _ in score_batches(score, tensors, warmed_up):
        pass  # the losses are not needed


def speed_of_single_windows(
    score: Scorer, tensors: SplitTensors, batches: list[list[Window]]
) -> float:
    """Return the tokens per second at batch size 1, as in the paper's Tables 2 to 4.

    The first windows are timed: one, and a twentieth of all, but at most eight. The first one is
    computed once before, to warm up.

    Args:
        score: computes the losses of a batch.
        tensors: the split on the device of the model.
        batches: all windows of the measurement.
    """
    windows = [window for batch in batches for window in batch]
    num_timed = min(8, 1 + len(windows) // 20)
    timed = windows[:num_timed]
    single_windows = [[window] for window in timed]
    list(score_batches(score, tensors, single_windows[:1]))  # list() runs the generator to its end
    began = time.perf_counter()
    list(score_batches(score, tensors, single_windows))
    seconds = time.perf_counter() - began
    num_tokens = sum(window.num_scored for window in timed)
    return round(num_tokens / seconds, 1)
