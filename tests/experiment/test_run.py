"""A run and its folder."""

import torch

from alibi_fairseq.experiment.run import Run


def test_saved_updates_of_last_checkpoint(tmp_path):
    run = Run("alibi", tmp_path, data="data-bin", flags=(), request={}, updates=10, tokens=160)
    assert run.saved_updates() == 0
    torch.save({"optimizer_history": [{"num_updates": 7}]}, tmp_path / "checkpoint_last.pt")
    assert run.saved_updates() == 7
