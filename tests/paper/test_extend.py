"""Continued training with ``configs/extend``, at the scale ``smoke``."""

from __future__ import annotations

import pytest
import torch
from commands import ROOT, as_process, make_data

pytestmark = pytest.mark.slow


def train(recipe: str, data, folder, *options: object) -> None:
    """Train a recipe at the scale ``smoke``."""
    command = ["-m", "alibi_fairseq", "train", "--recipe", recipe, data, "--save-dir", folder]
    done = as_process(*command, "--scale", "smoke", "--cpu", 1, *options, PYTHONPATH=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]


def state_of(folder) -> dict:
    return torch.load(folder / "checkpoint_last.pt", weights_only=True)


@pytest.mark.parametrize(
    ("first", "recipe", "length", "method"),
    [
        ("alibi-512", "alibi-512-at-512", 512, "alibi"),
        ("alibi-512", "alibi-512-at-2048", 2048, "alibi"),
        ("rotary-512", "rotary-512-without-positions", 512, "none"),
    ],
)
def test_recipe_continues_trained_model(first, recipe, length, method, tmp_path):
    data = make_data(tmp_path, words=700)
    start = tmp_path / "start"
    longer = tmp_path / "longer"
    train(f"wikitext-103/{first}", data, start)
    checkpoint = start / "checkpoint_last.pt"
    # One update at a tiny learning rate leaves the initial weights nearly unchanged.
    one_update = ("--max-update", 1, "--lr", 1e-9, "--min-lr", 1e-10)
    train(f"extend/{recipe}", data, longer, "--finetune-from-model", checkpoint, *one_update)
    before = state_of(start)
    after = state_of(longer)
    assert after["cfg"]["model"]["train_length"] == length
    assert after["cfg"]["model"]["position_method"] == method
    assert after["optimizer_history"][-1]["num_updates"] == 1
    for name, tensor in before["model"].items():
        torch.testing.assert_close(after["model"][name], tensor, rtol=0, atol=1e-6, msg=name)
