"""Batches of consecutive segments of one corpus.

Shapes: B rows of this process, T tokens per segment.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import torch
from fairseq.data import FairseqDataset
from fairseq.data.iterators import CountingIterator, EpochBatchIterator
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ..errors import UserInputError
from .segment_memory import Segment, SegmentMemory


@dataclass(frozen=True)
class SegmentPlan:
    """Assignment of contiguous text to batch rows.

    Each row of all processes reads one contiguous part of the N tokens. The lengths of the parts
    differ by at most one token. Segment s of a row is its tokens s·T … s·T + T − 1. Each token is
    the target of exactly one position for any N, T, and number of rows.

    Attributes:
        tokens: tokens N of the corpus, at least one per row.
        rows: rows of all processes together.
        length: tokens T per segment.
    """

    tokens: int
    rows: int
    length: int

    @property
    def segments(self) -> int:
        """Number of segments per row, equal for all rows to keep the processes in step."""
        longest = -(-self.tokens // self.rows)
        return -(-longest // self.length)

    def targets(self, row: int, segment: int) -> range:
        """Return the positions in the corpus that a row predicts in a segment.

        The last segment of a row may be shorter than T, or empty where another row has one token
        more.
        """
        part = range(self.tokens * row // self.rows, self.tokens * (row + 1) // self.rows)
        return part[segment * self.length : (segment + 1) * self.length]


class TokenStream(FairseqDataset):
    """Lines of an indexed dataset as one stream of tokens."""

    def __init__(self, lines, pad: int, eos: int):
        self.lines = lines
        self.pad = pad
        self.eos = eos
        self._ends = np.cumsum(lines.sizes)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def read(self, start: int, stop: int) -> Tensor:
        """Read tokens ``start … stop − 1``; token −1 is the end-of-sentence symbol."""
        if start < 0:
            return torch.cat([torch.tensor([self.eos]), self.read(0, stop)])
        if start == stop:
            return torch.empty(0, dtype=torch.long)
        first = int(np.searchsorted(self._ends, start, side="right"))
        last = int(np.searchsorted(self._ends, stop - 1, side="right"))
        tokens = torch.cat([self.lines[line] for line in range(first, last + 1)]).long()
        skipped = start - (self._ends[first] - len(self.lines[first]))
        return tokens[skipped : skipped + stop - start]


class SegmentDataset(FairseqDataset):
    """Dataset whose item s is a whole batch: segment s of all rows of one process.

    Args:
        stream: the tokens of the corpus.
        plan: how the corpus is divided among the rows of all processes.
        rows: the rows that belong to this process.
    """

    def __init__(self, stream: TokenStream, plan: SegmentPlan, rows: range):
        self.stream = stream
        self.plan = plan
        self.rows = rows

    def __len__(self) -> int:
        return self.plan.segments

    def __getitem__(self, segment: int) -> dict:
        """Return a fairseq batch; short rows of the last segment are padded on the right."""
        spans = [self.plan.targets(row, segment) for row in self.rows]
        targets = [self.stream.read(span.start, span.stop) for span in spans]
        # Inputs start one token earlier, so that every token is a target exactly once.
        inputs = [
            self.stream.read(span.start - 1, span.stop - 1) if span else target
            for span, target in zip(spans, targets)
        ]
        lengths = torch.tensor([len(span) for span in spans])
        return {
            "id": torch.tensor(self.rows),
            "nsentences": len(self.rows),
            "ntokens": int(lengths.sum()),
            "segment": segment,
            "net_input": {"src_tokens": self._pad(inputs), "src_lengths": lengths},
            "target": self._pad(targets),
        }

    def _pad(self, rows: list[Tensor]) -> Tensor:
        """Return the rows as a tensor (B, T).

        If all rows of a process have ended, one column of padding keeps it in step with the others.
        """
        if not any(len(row) for row in rows):
            return torch.full((len(rows), 1), self.stream.pad)
        return pad_sequence(rows, batch_first=True, padding_value=self.stream.pad)

    def collater(self, samples: list[dict]) -> dict:
        """Return the only sample, which already is a batch."""
        return samples[0]


class SequentialBatches(CountingIterator):
    """Iterator that counts batches and attaches the memory to each.

    The dataset cannot attach it, since batches may be loaded in worker processes.
    """

    def __init__(self, batches: CountingIterator, memory: SegmentMemory):
        def with_memory(batch: dict) -> dict:
            memory.begin_update()
            segment = Segment(batch["segment"], memory)
            return {**batch, "net_input": {**batch["net_input"], "segment": segment}}

        self._batches = batches
        super().__init__(map(with_memory, batches), start=batches.n, total=len(batches))

    def take(self, n: int):
        """End after n batches; the underlying iterator has to know as well."""
        self._batches.take(n)
        return super().take(n)


class SegmentIterator(EpochBatchIterator):
    """Iterator over batches in order, each with the memory.

    Its state is its position and the memory.
    """

    def __init__(self, dataset: SegmentDataset, **kwargs):
        order = [[segment] for segment in range(len(dataset))]
        super().__init__(dataset, dataset.collater, order, disable_shuffling=True, **kwargs)
        self.memory = SegmentMemory()

    def next_epoch_itr(self, shuffle=False, fix_batches_to_gpus=False, set_dataset_epoch=True):
        """Iterate over an epoch as in fairseq, but never shuffled."""
        batches = super().next_epoch_itr(False, fix_batches_to_gpus, set_dataset_epoch)
        return SequentialBatches(batches, self.memory)

    def state_dict(self) -> dict:
        """Return the position in the epoch, and the memory unless the epoch is over."""
        memory = {} if self.end_of_epoch() else self.memory.state_dict()
        return {**super().state_dict(), "memory": memory, "plan": asdict(self.dataset.plan)}

    def load_state_dict(self, state_dict: dict) -> None:
        """Restore the position and the memory.

        Raises:
            UserInputError: the epoch began with another division of the text, so that some text
                would be read twice, or not at all.
        """
        plan = asdict(self.dataset.plan)
        saved_plan = state_dict.get("plan", plan)
        mid_epoch = state_dict.get("iterations_in_epoch", 0) > 0
        if mid_epoch and saved_plan != plan:
            division = "{tokens:,} tokens of text in {rows} rows and segments of {length}"
            raise UserInputError(
                f"The checkpoint was saved mid-epoch with {division.format(**saved_plan)}. This "
                f"command would read {division.format(**plan)}. Resume with the old data, length, "
                "batch size, and number of GPUs or processes until the epoch ends, or pass "
                "--reset-dataloader once to start over with the first epoch's data."
            )
        super().load_state_dict(state_dict)
        if mid_epoch:
            self.memory.load_state_dict(state_dict.get("memory", {}), self.dataset.rows)
