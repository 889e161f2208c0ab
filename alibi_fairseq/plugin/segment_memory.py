"""Memory that is carried from each segment to the next.

It belongs to the batch iterator and travels with each batch. The model therefore stays stateless,
training and validation cannot see each other's past, and an interrupted run restores its memory
together with its position in the data.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import distributed, nn

from ..models.decoder import State


class SegmentMemory:
    """States of one process after its last segment, and before its last update.

    fairseq may repeat an update, after an overflow with ``--amp``, or a batch, when validation runs
    out of memory. With both states, repeated batches read the same past. A segment that does not
    follow the last one has no past.

    The models of an ensemble read the same batches. The first one has this memory, and each of the
    others a separate one.
    """

    def __init__(self):
        self.kept: dict[int, State] = {}
        self._before: int | None = None
        self._model: nn.Module | None = None
        self._others: dict[nn.Module, SegmentMemory] = {}
        self._gathered: tuple[int, dict[int, State]] | None = None

    def of(self, model: nn.Module) -> SegmentMemory:
        """Return the memory of one model of an ensemble."""
        if self._model is None:
            self._model = model
        if model is self._model:
            return self
        return self._others.setdefault(model, SegmentMemory())

    def begin_update(self) -> None:
        """Note that the batches read from now on follow the newest state.

        All batches of an update are read before the first of them is computed, so this may be
        called for each of them.
        """
        self._before = max(self.kept, default=None)

    def add(self, segment: int, state: State) -> None:
        """Store the state of a segment, and keep that before its update."""
        before = segment - 1 if self._before is None else self._before
        kept = {segment: state}
        if before < segment and before in self.kept:
            kept[before] = self.kept[before]
        self.kept = kept

    def gather(self) -> None:
        """Gather the states of all processes on rank 0, which saves them.

        All processes must call this together.
        """
        if world_size() == 1 or not self.kept:
            return
        newest = max(self.kept)
        gathered: list | None = [None] * world_size() if rank() == 0 else None
        distributed.gather_object(to_cpu(self.kept[newest]), gathered)
        self._gathered = (newest, dict(enumerate(gathered or ())))

    def state_dict(self) -> dict:
        """Return the newest states, on the CPU; empty before the first segment.

        They are those of all processes if these were gathered since.
        """
        if not self.kept:
            return {}
        newest = max(self.kept)
        states = {rank(): to_cpu(self.kept[newest])}
        if self._gathered is not None and self._gathered[0] == newest:
            states = self._gathered[1]
        return {"segment": newest, "states": states}

    def load_state_dict(self, state: dict, rows: range) -> None:
        """Restore the states of some rows, unless the checkpoint lacks one of them.

        Args:
            state: memory of all processes, each with equally many rows.
            rows: rows of this process, counted over all processes.
        """
        self.kept = {}
        states = state.get("states")
        if not states:
            return
        layers = next(iter(states.values()))
        rows_per_process = layers[0].shape[1]
        places = [divmod(row, rows_per_process) for row in rows]
        if any(process not in states for process, _ in places):
            return
        own = []
        for layer in range(len(layers)):
            of_rows = [states[process][layer][:, row] for process, row in places]
            own.append(torch.stack(of_rows, dim=1))
        self.kept = {state["segment"]: own}


@dataclass(frozen=True)
class Segment:
    """Position of a batch in the text: its number, and the memory it reads and writes."""

    number: int
    memory: SegmentMemory

    def of(self, model: nn.Module) -> Segment:
        """Return this position with the memory of one model of an ensemble."""
        return Segment(self.number, self.memory.of(model))

    def past(self) -> State | None:
        """Return the state of the previous segment, or None."""
        return self.memory.kept.get(self.number - 1)

    def leave(self, state: State | None) -> None:
        """Store the state of this segment, which is None for a method without a memory."""
        if state is not None:
            self.memory.add(self.number, state)


def world_size() -> int:
    """Return the number of processes in this run; 1 without torch.distributed."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def rank() -> int:
    """Return the rank of this process; 0 without torch.distributed."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def to_cpu(state: State) -> State:
    return [inputs.detach().cpu() for inputs in state]
