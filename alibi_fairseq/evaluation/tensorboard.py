"""A sweep's points in TensorBoard, beside those of the training run."""

from __future__ import annotations

from pathlib import Path

from torch.utils.tensorboard import SummaryWriter


def log_cell(folder: Path, cell: dict) -> None:
    """Add a cell as a point; TensorBoard's step is the window length.

    Args:
        folder: where the training run logged; the points get folders of their own in it, one per
            checkpoint, so that curves of several checkpoints can be told apart.
    """
    whole = cell["stride"] == cell["length"]
    series = f"{cell['subset']}/{'non-overlapping' if whole else 'stride ' + str(cell['stride'])}"
    name = f"eval_{cell['position_method']}_{Path(cell['checkpoint']).stem}"
    with SummaryWriter(str(folder / name)) as writer:
        for key in ("loss_bits", "perplexity"):
            writer.add_scalar(f"{key} by length/{series}", cell[key], cell["length"])
