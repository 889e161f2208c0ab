"""The page of a study whose folder has no ``page.py``, next to its results."""

from __future__ import annotations

from pathlib import Path

from .analysis.by_length import method_losses
from .analysis.compared_models import ComparedLosses
from .analysis.study_results import StudyResults
from .config import StudyFile
from .sections.context_gain import context_gain_by_budget, context_gain_section
from .sections.gap_during_training import gap_during_training_section
from .sections.perplexity_by_length import draw_method_lengths, perplexity_table
from .sections.ranking import ranking_section
from .sections.six_tests import six_tests_section
from .sections.templates import join_parts, section, write_page
from .sections.title_claim import title_claim_figure, title_claim_section, title_claim_summary
from .sections.training import divergence_sentence, origins_table, trials_table
from .small_models.models import published_sets

PAGE = Path(__file__).with_name("page.md")
DISCLOSURE = PAGE.with_name("disclosure.md")


def write_study_page(file: StudyFile) -> Path:
    """Write the page and its figures from the JSON of a study, and return its path."""
    folder = file.results
    own_template = file.path.with_suffix(".md")
    template = own_template if own_template.is_file() else PAGE
    config = file.config
    models = config.tests
    assert models is not None, "this page is about the six tests"
    study = StudyResults.load(folder)
    losses = ComparedLosses(models, study.losses)
    write_page(
        folder,
        DISCLOSURE,
        DISCLOSURE.name,
        title=config.title,
        gap_during_training=gap_during_training_section(study, models),
        ranking=ranking_section(study, models, folder),
        context_gain_by_budget=context_gain_by_budget([*published_sets(), (study, models)]),
        origins=origins_table(study.models),
        trials=trials_table(study.trials),
    )
    return write_page(
        folder,
        template,
        title=config.title,
        introduction=config.introduction.strip(),
        claim_summary=title_claim_summary(losses),
        claim_figure=title_claim_figure(study, losses),
        notation=section("notation"),
        train_length=models.train_length,
        title_claim=title_claim_section(losses),
        six_tests=six_tests_section(losses),
        context_gain=context_gain_section(losses),
        diverged=divergence_sentence(study.diverged),
        perplexity=_perplexities(study),
    )


def _perplexities(study: StudyResults) -> str:
    """Return a table and a figure for each text and training length, and draw the figures."""
    groups = sorted({(key.corpus, key.tested_on, key.train_length) for key in study.losses})
    parts = []
    for corpus, tested_on, train_length in groups:
        models = method_losses(study.losses, corpus, train_length, tested_on)
        lengths = sorted({length for by_length in models.values() for length in by_length})
        parts.append(f"Trained on {corpus} with L = {train_length:,}, tested on {tested_on}:")
        parts.append(perplexity_table(models, lengths))
        if len(models) > 1:  # a single line shows no more than the table
            path = study.folder / f"{corpus}-{train_length}-on-{tested_on}.svg"
            parts.append(draw_method_lengths(models, lengths, train_length, path))
    return join_parts(*parts)
