"""All tables and figures of the paper on one page, each with numbers of ours or why there are none."""

from __future__ import annotations

from pathlib import Path

from ..files import atomic_write
from .outcome import table_of
from .pipeline import Pipeline
from .plan import DIAGRAMS, DRAWN, SPEED, SPEED_COMMAND, paper_name

#: Everything that the paper numbers.
NUMBERED = tuple(
    f"{kind}{number:02d}"
    for kind, last in (("table", 15), ("figure", 11))
    for number in range(1, last + 1)
)


def write_overview(pipeline: Pipeline, items: tuple[str, ...]) -> Path:
    """Write the page.

    Args:
        items: those that were made.
    """
    scale = pipeline.scale
    parts = [f"# The paper's tables and figures at the scale '{scale.name}'", f"{scale.worth}."]
    parts += [section(pipeline, item, item in items) for item in NUMBERED]
    path = pipeline.page.with_name(f"{scale.name}.md")
    with atomic_write(path) as stream:
        stream.write("\n\n".join(parts) + "\n")
    return path


def section(pipeline: Pipeline, item: str, made: bool) -> str:
    """An item under its heading."""
    if made:
        heading, _, body = table_of(pipeline, item).read_text(encoding="utf-8").partition("\n")
        drawn = "" if item not in DRAWN else "The numbers that the figure draws.\n\n"
        return f"#{heading}\n\n{drawn}{body.strip()}"
    return f"## {paper_name(item)}\n\n{why_none(item)}"


def why_none(item: str) -> str:
    """Why there is no number of ours."""
    if item in DIAGRAMS:
        return f"A diagram of {DIAGRAMS[item]}: it holds no data."
    if item in SPEED:
        return (
            "Speed and memory of models of the paper's size, untrained: a model of another size cannot "
            f"stand beside them. `{SPEED_COMMAND}` measures them on a GPU."
        )
    return "Not asked for."
