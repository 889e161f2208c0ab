"""Damage to ``checkpoint_last.pt``."""

from __future__ import annotations

import random
from pathlib import Path

from alibi_fairseq.checkpoints.loading import updates_of
from alibi_fairseq.fairseq_fixes.saving_durably import damage


def _flipped(content: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(content))
    return (
        content[:place] + bytes([content[place] ^ 1 << chance.randrange(8)]) + content[place + 1 :]
    )


DAMAGES = {
    "emptied": lambda content, chance: b"",
    "cut off": lambda content, chance: content[: chance.randrange(1, len(content))],
    "with one bit flipped": _flipped,
}


def damage_last(folder: Path, kind: str, chance: random.Random) -> int | None:
    """Damage the last checkpoint of a training if another one can replace it.

    Returns:
        How many updates the newest whole checkpoint is behind; None if nothing was changed.
    """
    last = folder / "checkpoint_last.pt"
    others = [path for path in folder.glob("checkpoint*.pt") if path != last]
    others = [path for path in others if damage(path) is None]
    if not last.exists() or not others:
        return None
    before, content = updates_of(last), last.read_bytes()
    last.write_bytes(DAMAGES[kind](content, chance))
    if damage(last) is None:  # a bit that nothing depends on, such as one of padding
        last.write_bytes(content)
        return None
    newest = max(others, key=lambda path: path.stat().st_mtime)
    return max(0, before - updates_of(newest))
