"""Corrupted checkpoints: one sentence, exit code 2, and no traceback."""

from __future__ import annotations

import pytest
import torch
from bad_input_cases import eval_command

#: Functions that change the contents of a checkpoint. None: the first bytes of the file, by number.
CHECKPOINTS = {
    "an unknown model": lambda state: {
        **state,
        "cfg": {**state["cfg"], "model": {**state["cfg"]["model"], "_name": "unknown"}},
    },
    "5": None,
    "5000": None,
}


@pytest.mark.ci
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_corrupted_checkpoints_are_rejected(data_bin, checkpoint, tmp_path, refuse, name):
    path = tmp_path / "corrupted.pt"
    change = CHECKPOINTS[name]
    if change:
        torch.save(change(torch.load(checkpoint, weights_only=True)), path)
    else:
        path.write_bytes(checkpoint.read_bytes()[: int(name)])
    assert refuse(*eval_command(data_bin, path, tmp_path / "out.json"))
    flags = ["--dict", data_bin / "dict.txt", "--out", tmp_path]
    assert refuse("import-checkpoint", path, *flags)
    assert [file.name for file in tmp_path.iterdir()] == ["corrupted.pt"]
