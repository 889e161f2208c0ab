"""Continued training with ``configs/extend``, at the size of ``cpu_smoke``."""

from __future__ import annotations

import pytest
import torch
from commands import ROOT, as_process, make_data

pytestmark = pytest.mark.slow


def hydra_train(recipe: str, data, folder, *overrides: str) -> None:
    """Train with the documented recipe at the size of ``cpu_smoke``."""
    corpus, _, name = recipe.partition("/")
    command = ["-m", "alibi_fairseq", "hydra-train", "--config-dir", ROOT / "configs" / corpus]
    command += ["--config-name", name, "+run_config=cpu_smoke", f"task.data={data}"]
    done = as_process(*command, f"checkpoint.save_dir={folder}", *overrides, PYTHONPATH=ROOT)
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
    hydra_train(f"wikitext-103/{first}", data, start)
    checkpoint = start / "checkpoint_last.pt"
    change = f"checkpoint.finetune_from_model={checkpoint}"
    # One update at a tiny learning rate leaves the initial weights nearly unchanged.
    one_update = (
        "optimization.max_update=1",
        "optimization.lr=[1e-9]",
        "lr_scheduler.min_lr=1e-10",
    )
    hydra_train(f"extend/{recipe}", data, longer, change, *one_update)
    before = state_of(start)
    after = state_of(longer)
    assert after["cfg"]["model"]["train_length"] == length
    assert after["cfg"]["model"]["position_method"] == method
    assert after["optimizer_history"][-1]["num_updates"] == 1
    for name, tensor in before["model"].items():
        torch.testing.assert_close(after["model"][name], tensor, rtol=0, atol=1e-6, msg=name)
