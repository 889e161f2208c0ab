"""The page of a study of larger models, next to its results."""

from __future__ import annotations

from pathlib import Path

from ..added_methods import added_methods_sections
from ..config import StudyConfig
from ..context_gain import ModelSet, context_gain_by_budget, context_gain_sections
from ..losses import (
    Losses,
    diverged_models,
    load_curves,
    load_losses,
    load_provenance,
    load_tuning,
)
from ..primary_tests import StudiedModels, run_tests
from ..published_gaps import published_gaps_sentence, published_gaps_table
from ..ranking import ranking_sections
from ..small_models.groups import MODELS
from ..small_models.page import PRIMARY, SECONDARY
from ..tables import (
    DISCLOSURE_PAGE,
    NOTATION,
    at_train_length,
    divergence_section,
    draw_method_lengths,
    lengths_alt,
    origins_table,
    outcomes_list,
    perplexity_table,
    tests_sections,
    trials_table,
    write_page,
)
from ..title_claim import claim_summary, title_claim_sections

#: Published results of the small models, which this page compares with its own.
SMALL_MODELS = Path(__file__).resolve().parents[2] / "results" / "small_models"

INTRODUCTION = """\
This page applies the tests of `studies/small_models/protocol.md` to other models."""

DISCLOSURE = """\
[Disclosure](disclosure.md) has the learning-rate trials, and the commit and processor of each
model."""

#: Link to the first page.
STUDY = "the [study](README.md)"

PUBLISHED_GAPS = """\
Each row compares published models, one for each method, evaluated at L without overlap. Percentages
are differences from ALiBi. The last column is the share of ALiBi's gain over no positions that
sinusoidal embeddings recover."""


def write_gpu_page(folder: Path, config: StudyConfig) -> Path:
    """Write the page and its figures from the JSON of a study.

    Args:
        folder: results of the study; holds ``cells/`` and ``tuning/``.
        config: configuration of the study, with the models of the six tests.

    Returns:
        The path of the page.
    """
    models = config.tests
    assert models is not None
    losses = load_losses(folder)
    introduction = config.introduction.strip() or INTRODUCTION
    outcomes = outcomes_list(run_tests(losses, models))
    sections = [f"# {config.title}", *claim_summary(losses, models), outcomes]
    sections += ["## Setup", introduction, DISCLOSURE]
    sections += ["## How to read the tables", NOTATION]
    sections.append(f"In the tests, L is {models.train_length}.")
    sections += title_claim_sections(folder, losses, models)
    sections += ["## The six tests", *tests_sections(losses, models)]
    sections += context_gain_sections(losses, models)
    sections += context_gain_by_budget(
        [
            ModelSet(SMALL_MODELS / SECONDARY, StudiedModels("books", 128)),
            ModelSet(SMALL_MODELS / SECONDARY, MODELS),
            ModelSet(SMALL_MODELS / PRIMARY, MODELS),
            ModelSet(folder, models),
        ]
    )
    sections += divergence_section(diverged_models(folder))
    sections += ["## Perplexity", *_perplexity_sections(losses, folder)]
    curves = load_curves(folder)
    sections += ranking_sections(folder, curves, models.corpus, models.train_length)
    gaps = [PUBLISHED_GAPS, published_gaps_table(), published_gaps_sentence()]
    sections += ["## Published differences at the training length", *gaps]
    sections += added_methods_sections(folder, models)
    _write_disclosure(folder, config)
    return write_page(folder, sections)


def _write_disclosure(folder: Path, config: StudyConfig) -> None:
    """Write the second page: the trials of learning rates, and the origin of each model."""
    sections = [f"# {config.title}: disclosure", f"What you need to judge or repeat {STUDY}."]
    provenance = load_provenance(folder)
    if provenance:
        sections += ["## Origin of the models", origins_table(provenance)]
    tuning = load_tuning(folder)
    if tuning:
        sections += ["## Learning rates", trials_table(tuning)]
    write_page(folder, sections, DISCLOSURE_PAGE)


def _perplexity_sections(losses: Losses, folder: Path) -> list[str]:
    """Return a table and a figure for each text and training length, and draw the figures."""
    groups = sorted({(key.corpus, key.tested_on, key.train_length) for key in losses})
    if not groups:
        return ["No model is finished yet."]
    sections = []
    for corpus, tested_on, train_length in groups:
        models = at_train_length(losses, corpus, train_length, tested_on)
        all_lengths: set[int] = set()
        for losses_by_length in models.values():
            all_lengths.update(losses_by_length)
        lengths = sorted(all_lengths)
        sections.append(f"Trained on {corpus} with L = {train_length}, tested on {tested_on}:")
        sections.append(perplexity_table(models, lengths))
        name = _figure_stem(corpus, train_length, tested_on)
        if len(models) > 1:  # a single line shows no more than the table
            draw_method_lengths(models, lengths, train_length, folder / f"{name}.svg")
            sections.append(f"![{lengths_alt(models, lengths)}]({name}.svg)")
    return sections


def _figure_stem(corpus: str, train_length: int, tested_on: str) -> str:
    return f"{corpus}-{train_length}-on-{tested_on}"
