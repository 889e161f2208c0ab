"""The page of a study of larger models, next to its results."""

from __future__ import annotations

from pathlib import Path

from alibi_fairseq.files import atomic_write

from ..losses import Losses, load_curves, load_losses, load_provenance, load_tuning
from ..primary_tests import StudiedModels
from ..tables import (
    NOTATION,
    at_train_length,
    draw_method_lengths,
    origins_table,
    perplexity_table,
    published_gaps_table,
    tests_sections,
    training_gaps_table,
    trials_table,
)

INTRODUCTION = """\
This page applies the tests of `studies/small_models/protocol.md` to other models."""


def write_gpu_page(folder: Path, title: str, models: StudiedModels) -> Path:
    """Write the page and its figures from the JSON of a study.

    Args:
        folder: results of the study; holds ``cells/`` and ``tuning/``.
        models: the models of the six tests.

    Returns:
        The path of the page.
    """
    losses = load_losses(folder)
    sections = [f"# {title}", INTRODUCTION, "## How to read the tables", NOTATION]
    sections.append(f"The tests have L = {models.train_length}.")
    sections += ["## The six tests", *tests_sections(losses, models)]
    sections += ["## Perplexity", *_perplexity_sections(losses, models, folder)]
    gaps = training_gaps_table(load_curves(folder), models.corpus, models.train_length)
    if gaps:
        sections += ["## Validation perplexity during training", gaps]
    sections += ["## Published differences at the training length", published_gaps_table()]
    provenance = load_provenance(folder)
    if provenance:
        sections += ["## Origin of the models", origins_table(provenance)]
    tuning = load_tuning(folder)
    if tuning:
        sections += ["## Learning rates", trials_table(tuning)]
    path = folder / "README.md"
    with atomic_write(path) as stream:
        stream.write("\n\n".join(section.rstrip() for section in sections) + "\n")
    return path


def _perplexity_sections(losses: Losses, models: StudiedModels, folder: Path) -> list[str]:
    """Return a table and a figure for each training length, and draw the figures."""
    train_lengths = sorted({key.train_length for key in losses})
    if not train_lengths:
        return ["No model is finished yet."]
    sections = []
    for train_length in train_lengths:
        of_length = at_train_length(losses, models.corpus, train_length)
        all_lengths: set[int] = set()
        for losses_by_length in of_length.values():
            all_lengths.update(losses_by_length)
        lengths = sorted(all_lengths)
        sections += [f"L = {train_length}:", perplexity_table(of_length, lengths)]
        name = f"lengths-{train_length}"
        draw_method_lengths(
            of_length, lengths, train_length, folder / f"{name}.png", folder / f"{name}.svg"
        )
        sections.append(f"![Perplexity by evaluation length, L = {train_length}]({name}.png)")
    return sections
