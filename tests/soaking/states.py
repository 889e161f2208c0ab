"""The final states of interrupted work, as text that is equal for equal bits."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch
from killing import files_of

#: What differs from run to run in a cell.
_NOISE = (
    *("seconds", "tokens_per_second", "tokens_per_second_batch_1", "peak_memory_mb"),
    *("train_command", "checkpoint", "checkpoint_sha256", "hours", "gpu_hours"),
)


def of_checkpoint(path: Path) -> str:
    """Weights, state of the optimiser and place in the data; times are left out."""
    state = torch.load(path, weights_only=True)
    last = state["optimizer_history"][-1]
    parts = [
        *(state["model"], state["last_optimizer_state"], last),
        *(state["extra_state"]["train_iterator"], state["extra_state"]["val_loss"]),
    ]
    return hashlib.sha256("".join(map(_text, parts)).encode()).hexdigest()


def _text(value) -> str:
    if isinstance(value, dict):
        return str([(_text(key), _text(item)) for key, item in value.items()])
    if isinstance(value, (list, tuple)):
        return str([_text(item) for item in value])
    if torch.is_tensor(value):
        content = value.contiguous().numpy().tobytes()
        return f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(content).hexdigest()}"
    return repr(value)


def of_results(path: Path) -> str:
    """The cells of a results document without times."""
    cells = json.loads(path.read_text())["cells"]
    kept = [{key: value for key, value in cell.items() if key not in _NOISE} for cell in cells]
    return json.dumps(sorted(kept, key=lambda cell: json.dumps(cell, sort_keys=True)))


def of_data(folder: Path) -> str:
    """The bytes of prepared data, and what its manifest says but for times."""
    manifest = json.loads((folder / "manifest.json").read_text())
    files = {
        name: hashlib.sha256(content).hexdigest() for name, content in files_of(folder).items()
    }
    return json.dumps([files, {**manifest, "provenance": None, "throughput": None}], sort_keys=True)
