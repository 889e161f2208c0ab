"""Losses of a stream's tokens, window by window, and their exact sums.

Token losses are fp32; they are summed in float64 within a window, and window sums are added as
exact fractions. A total therefore does not depend on the order of addition.

Shapes: N tokens of the stream, B windows of a batch, T inputs of a window, S tokens it scores.
"""

from __future__ import annotations

import re
import resource
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import UserInputError
from .loss_by_position import LossByPosition
from .windows import Span, Window


class SplitTensors(NamedTuple):
    """A split on the evaluation device.

    Attributes:
        inputs: (N,) int64, the input at every position.
        targets: (N,) int64, the token to predict at every position.
        name: for messages.
    """

    inputs: Tensor
    targets: Tensor
    name: str


#: Maps (B, T) inputs and (B, S) targets of the last S inputs to (B, S) losses in nats.
Scorer = Callable[[Tensor, Tensor], Tensor]


@torch.no_grad()
def losses_of(
    score: Scorer, stream: SplitTensors, batches: list[list[Window]]
) -> Iterator[tuple[list[Window], Tensor]]:
    """Yield each batch, windows of one length and stride, and its (B, S) float64 losses in nats.

    Raises:
        UserInputError: a loss is not finite.
    """
    device = stream.inputs.device
    for batch in batches:
        starts = torch.tensor([window.start for window in batch], device=device)
        positions = starts[:, None] + torch.arange(batch[0].length, device=device)  # (B, T)
        targets = stream.targets[positions[:, -batch[0].scores :]]  # (B, S)
        losses = score(stream.inputs[positions], targets).double()
        finite = losses.isfinite().all(dim=1)
        if not finite.all():
            start, scored, stop = batch[int((~finite).nonzero()[0])]
            raise UserInputError(
                f"The model's score of some token from {scored} to {stop - 1} of '{stream.name}' "
                f"is not finite (window of inputs {start} to {stop - 1}), so there is no result. "
                "Half precision may overflow where fp32 does not: try --precision fp32."
            )
        yield batch, losses


def sum_losses(
    score: Scorer,
    stream: SplitTensors,
    batches: list[list[Window]],
    spans: Sequence[Span],
    positions: LossByPosition,
    progress: Callable[[int], object] = lambda inputs: None,
) -> list[Fraction]:
    """Return the exact sum of −ln p over the tokens of each span, in nats.

    Args:
        spans: in the order of the stream; what windows score between them is left out.
        positions: also receives the loss of these tokens.
        progress: called after each batch with its number of inputs.
    """
    edges = []
    for span in spans:
        edges += [span.first, span.last]
    sums = [Fraction(0) for _ in spans]
    for batch, losses in losses_of(score, stream, batches):
        # The columns where a bucket of positions begins, or a span begins or ends in any window.
        cuts = {0, batch[0].scores, *positions.cuts(batch[0])}
        for _, scored, stop in batch:
            inside = edges[bisect_right(edges, scored) : bisect_left(edges, stop)]
            cuts.update(edge - scored for edge in inside)
        for begin, end in pairwise(sorted(cuts)):
            for window, total in zip(batch, losses[:, begin:end].sum(dim=1).tolist()):
                edges_before = bisect_right(edges, window.scored + begin)
                # Edges alternate, so after an odd number of them a span has begun and not ended.
                if edges_before % 2 == 1:
                    sums[edges_before // 2] += Fraction(total)
                    positions.add(window, begin, end, Fraction(total))
        progress(len(batch) * batch[0].length)
    return sums


class PeakMemory:
    """Peak memory since construction, in MB (10^6 bytes).

    On a GPU, the memory allocated by torch. On a CPU, the resident memory of the whole process,
    including model and program; except on Linux, since the start of the process.
    """

    def __init__(self, device: torch.device):
        self.device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        else:
            with suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")

    def mb(self) -> float:
        """Return the peak so far."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) / 1e6
        with suppress(OSError):
            peak = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
            return int(peak[0]) * 1024 / 1e6
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most / 1e6 if sys.platform == "darwin" else most * 1024 / 1e6
