"""Batches of consecutive segments of one corpus.

Shapes: B rows of this process, T tokens per segment.
"""

from __future__ import annotations

import numpy as np
import torch
from fairseq.data import FairseqDataset
from fairseq.data.iterators import CountingIterator, EpochBatchIterator
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from .segment_memory import Segment, SegmentMemory
from .stretches import Stretches


class TokenStream(FairseqDataset):
    """The lines of an indexed data set read as one row of tokens."""

    def __init__(self, lines, pad: int, eos: int):
        self.lines = lines
        self.pad = pad
        self.eos = eos
        self._ends = np.cumsum(lines.sizes)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def read(self, start: int, stop: int) -> Tensor:
        """Tokens ``start … stop − 1``; the one before the first is the end-of-sentence symbol."""
        if start < 0:
            return torch.cat([torch.tensor([self.eos]), self.read(0, stop)])
        if start == stop:
            return torch.empty(0, dtype=torch.long)
        first, last = np.searchsorted(self._ends, [start, stop - 1], side="right")
        tokens = torch.cat([self.lines[line] for line in range(first, last + 1)]).long()
        skipped = start - (self._ends[first] - len(self.lines[first]))
        return tokens[skipped : skipped + stop - start]


class SegmentDataset(FairseqDataset):
    """Item number s is a whole batch: segment s of all rows of one process.

    Args:
        stream: the corpus.
        plan: its stretches, for the rows of all processes.
        rows: the rows that belong to this process.
    """

    def __init__(self, stream: TokenStream, plan: Stretches, rows: range):
        self.stream = stream
        self.plan = plan
        self.rows = rows

    def __len__(self) -> int:
        return self.plan.segments

    def __getitem__(self, segment: int) -> dict:
        """A fairseq batch; short rows are padded on the right, which only the last segment has."""
        spans = [self.plan.targets(row, segment) for row in self.rows]
        targets = [self.stream.read(span.start, span.stop) for span in spans]
        # One token of look-back for the input is what makes every token a target exactly once.
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
        """(B, T), T ≥ 1: a process whose rows are all over keeps in step with one of padding."""
        if not any(len(row) for row in rows):
            return torch.full((len(rows), 1), self.stream.pad)
        return pad_sequence(rows, batch_first=True, padding_value=self.stream.pad)

    def collater(self, samples: list[dict]) -> dict:
        """The only sample is a batch already."""
        return samples[0]


class SequentialBatches(CountingIterator):
    """Counts batches, and gives each the memory when it is handed out.

    Only here and not in the data set, since batches may be loaded in other processes.
    """

    def __init__(self, batches: CountingIterator, memory: SegmentMemory):
        self._batches = batches
        handed = (self._with_memory(batch, memory) for batch in batches)
        super().__init__(handed, start=batches.n, total=len(batches))

    @staticmethod
    def _with_memory(batch: dict, memory: SegmentMemory) -> dict:
        segment = Segment(batch["segment"], memory)
        return {**batch, "net_input": {**batch["net_input"], "segment": segment}}

    def take(self, n: int):
        """End after n batches; what is underneath must know that the epoch is over too."""
        self._batches.take(n)
        return super().take(n)


class SegmentIterator(EpochBatchIterator):
    """Hands the batches out in order, each with the memory; saves both its place and the memory."""

    def __init__(self, dataset: SegmentDataset, **kwargs):
        order = [[segment] for segment in range(len(dataset))]
        super().__init__(dataset, dataset.collater, order, disable_shuffling=True, **kwargs)
        self.memory = SegmentMemory()

    def next_epoch_itr(self, shuffle=False, fix_batches_to_gpus=False, set_dataset_epoch=True):
        """As fairseq's; there is nothing to shuffle."""
        batches = super().next_epoch_itr(False, fix_batches_to_gpus, set_dataset_epoch)
        return SequentialBatches(batches, self.memory)

    def state_dict(self) -> dict:
        """Place in the epoch, and the memory unless the epoch is over."""
        memory = {} if self.end_of_epoch() else self.memory.state_dict()
        return {**super().state_dict(), "memory": memory, "plan": self._plan()}

    def load_state_dict(self, state_dict: dict) -> None:
        """Take both up again. Rows that were cut differently then have no past here."""
        super().load_state_dict(state_dict)
        if state_dict.get("plan") == self._plan():
            self.memory.load_state_dict(state_dict["memory"])

    def _plan(self) -> dict:
        plan = self.dataset.plan
        return {"tokens": plan.tokens, "rows": plan.rows, "length": plan.length}
