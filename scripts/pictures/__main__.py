"""Draw the pictures of the documentation to ``docs/pictures/``: ``python -m scripts.pictures``."""

from __future__ import annotations

from pathlib import Path

from studies.small_models.models import PRIMARY

from .bias import draw_bias
from .blocks import draw_blocks
from .layers import draw_layers
from .paper_and_ours import draw_paper_and_ours
from .position_loss import draw_position_loss
from .windows import draw_windows

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results" / "small_models" / PRIMARY
EXAMPLES = ROOT / "results" / "examples"


def draw_pictures(folder: Path) -> None:
    """Draw all pictures to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    draw_paper_and_ours(RESULTS, folder / "paper-and-ours.svg")
    draw_bias(folder / "alibi-bias.svg")
    draw_blocks(EXAMPLES, folder / "blocks.svg")
    draw_windows(folder / "windows.svg")
    draw_layers(folder / "layers.svg")
    draw_position_loss(RESULTS, folder / "loss-by-position.svg")


if __name__ == "__main__":
    draw_pictures(ROOT / "docs" / "pictures")
