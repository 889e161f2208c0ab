"""Tokens per update, kept whatever the number of GPUs. Pure arithmetic.

An update sees ``gpus × sequences × update_freq`` sequences of ``length`` tokens: each GPU runs
``update_freq`` passes over ``sequences`` sequences and then all gradients are added up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..errors import BadInput


@dataclass(frozen=True)
class Batch:
    """How the sequences of one update are dealt out.

    Attributes:
        length: tokens per sequence.
        sequences: sequences in one pass of one GPU.
        update_freq: passes of each GPU per update.
        gpus: GPUs of all nodes together.
        room: fairseq's ``--max-tokens`` where the published value is larger than the sequences.
    """

    length: int
    sequences: int
    update_freq: int
    gpus: int
    room: int | None = None

    @property
    def max_tokens(self) -> int:
        """fairseq's ``--max-tokens``: most tokens in one pass of one GPU."""
        return self.room or self.length * self.sequences

    @property
    def sequences_per_update(self) -> int:
        return self.gpus * self.sequences * self.update_freq

    @property
    def tokens_per_update(self) -> int:
        return self.length * self.sequences_per_update

    def on(self, gpus: int) -> Batch:
        """The same sequences per update on another number of GPUs.

        Takes as few passes as possible without ever giving a GPU more sequences at once than the
        recipe does, so that it fits where the recipe fits.

        Raises:
            BadInput: the sequences of an update cannot be dealt out evenly.
        """
        if gpus < 1:
            raise BadInput(f"The number of GPUs must be at least 1, not {gpus}.")
        if gpus == self.gpus:
            return self
        total = self.sequences_per_update
        if total % gpus:
            possible = [n for n in range(1, total + 1) if total % n == 0]
            nearest = sorted(sorted(possible, key=lambda n: abs(n - gpus))[:4])
            offered = " or ".join(", ".join(str(n) for n in nearest).rsplit(", ", 1))
            raise BadInput(
                f"{gpus} GPUs cannot keep {self.tokens_per_update:,} tokens per update: its {total} "
                f"sequences of {self.length} tokens cannot be dealt out evenly; "
                f"use {offered}."
            )
        share = total // gpus
        sequences = max(n for n in range(1, self.sequences + 1) if share % n == 0)
        return replace(
            self,
            sequences=sequences,
            update_freq=share // sequences,
            gpus=gpus,
            room=self.room if sequences == self.sequences else None,
        )

    def arithmetic(self) -> str:
        """The product spelled out, e.g. ``8 GPUs × 18 sequences × 512 tokens = 73,728 tokens``."""
        gpus = f"{self.gpus} GPU" + ("s" if self.gpus > 1 else "")
        sequences = f"{self.sequences} sequence" + ("s" if self.sequences > 1 else "")
        passes = f" × {self.update_freq} passes" if self.update_freq > 1 else ""
        return (
            f"{gpus} × {sequences} × {self.length} tokens{passes} "
            f"= {self.tokens_per_update:,} tokens"
        )
