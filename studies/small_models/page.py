"""The page of the study: ``results/small_models/README.md`` and its figures."""

from __future__ import annotations

from pathlib import Path

from alibi_fairseq.paper import published
from alibi_fairseq.reporting import markdown

from ..analysis.baseline import TRAINED_SHORT, recovered_gain
from ..analysis.by_length import length_changes, method_losses
from ..analysis.compared_models import ComparedLosses
from ..analysis.estimates import Estimate, percent
from ..analysis.losses import Losses
from ..analysis.paper_changes import table5_change
from ..analysis.published_gaps import published_gap_range
from ..analysis.study_results import StudyResults
from ..config import StudyFile
from ..sections.changes import (
    change_as_verb,
    change_cells,
    change_in_words,
    changes_table,
    interval_in_words,
    seeds_cell,
)
from ..sections.changes_figure import draw_length_changes
from ..sections.context_gain import context_gain_section
from ..sections.perplexity_by_length import draw_method_lengths, perplexity_table
from ..sections.six_tests import six_tests_section
from ..sections.templates import section, write_page
from ..sections.training import divergence_sentence
from ..sections.wording import method_in_words
from .disclosure_page import write_disclosure_page
from .findings import findings_of_small_models
from .models import CHANGES_MULTIPLE, CONFIGURATIONS, CORPUS, LENGTHS, MODELS, PRIMARY, SECONDARY
from .secondary_page import write_secondary_page

PAGE = Path(__file__).with_name("page.md")
#: Figure of the primary models, and of the changes of all methods.
FIGURE = "lengths.svg"
CHANGES_FIGURE = "changes.svg"
#: Methods of the primary models.
PRIMARY_METHODS = ("alibi", "sinusoidal", "rotary", "t5", "none")
#: Changes of the primary models that no test compares, in training lengths.
BEYOND_TESTS = {
    "T5 bias at 16 L vs. 4 L": ("t5-1@16", "t5-1@4"),
    "T5 bias at 16 L vs. 8 L": ("t5-1@16", "t5-1@8"),
    "T5 bias at 4 L vs. L": ("t5-1@4", "t5-1@1"),
    "No positions at 4 L vs. L": ("none-1@4", "none-1@1"),
    "No positions at 16 L vs. L": ("none-1@16", "none-1@1"),
    "Sinusoidal vs. No positions at L": ("sinusoidal-1@1", "none-1@1"),
}


def write_study_page(file: StudyFile) -> Path:
    """Write the page that all configurations share, and return its path."""
    return write_small_models_page(file.all_results)


def write_small_models_page(folder: Path) -> Path:
    """Write the three pages and their figures from the results in a folder.

    Args:
        folder: holds the results of each configuration.

    Returns:
        The path of the first page.
    """
    studies = {part: StudyResults.load(folder / part) for part in CONFIGURATIONS}
    study = studies[PRIMARY]
    primary = ComparedLosses(MODELS, study.losses)
    secondary = ComparedLosses(MODELS, studies[SECONDARY].losses)
    write_disclosure_page(folder, studies, primary, secondary)
    write_secondary_page(folder, studies[SECONDARY], secondary)
    at_length = method_losses(study.losses, CORPUS, MODELS.train_length)
    lengths = perplexities = ""
    if at_length:
        lengths = draw_method_lengths(at_length, LENGTHS, MODELS.train_length, folder / FIGURE)
        perplexities = perplexity_table(at_length, LENGTHS)
    return write_page(
        folder,
        PAGE,
        lengths=lengths,
        findings=findings_of_small_models(primary, 100),
        primary=len(study.models),
        secondary=len(studies[SECONDARY].models),
        notation=section("notation"),
        diverged_primary=divergence_sentence(study.diverged),
        six_tests=six_tests_section(primary),
        context_gain=context_gain_section(primary),
        perplexity=perplexities,
        beyond_tests=changes_table(_beyond_tests(primary)),
        **_rotary_order(primary),
        **_leads(primary),
        changes=_changes_figure(folder, secondary.by_key),
        turned=_turned_changes(secondary, primary),
    )


def _leads(losses: ComparedLosses) -> dict[str, str]:
    """Return how far sinusoidal embeddings are from ALiBi at L, in the paper and here."""
    sinusoidal = losses.find("sinusoidal-1@1")
    alibi = losses.find("alibi-1@1")
    ours = ""
    if sinusoidal is not None and alibi is not None:
        ours = change_in_words(sinusoidal.nats.mean() - alibi.nats.mean())
    paper = table5_change(losses.models.key("sinusoidal-1@1"), losses.models.key("alibi-1@1"))
    assert paper is not None, "Table 5 has both models"
    lowest, highest = published_gap_range()
    recovered = recovered_gain(losses, TRAINED_SHORT)
    return {
        "paper_lead": change_in_words(paper),
        "our_lead": ours,
        "recovered": "" if recovered is None else f"{recovered:.0%}",
        "lowest": percent(lowest),
        "highest": percent(highest),
    }


def _beyond_tests(losses: ComparedLosses) -> list[list[str]]:
    """Return rows of the changes of the primary models that no test compares."""
    rows = []
    for name, evaluations in BEYOND_TESTS.items():
        estimate = losses.change(*evaluations)
        if estimate is not None:
            rows.append([name, *change_cells(estimate), seeds_cell(estimate)])
    return rows


def _rotary_order(losses: ComparedLosses) -> dict[str, str]:
    """Return the change from sinusoidal to rotary embeddings at 16 L, here and in the paper."""
    estimate = losses.change("rotary-1@16", "sinusoidal-1@16")
    printed = published.rows("table02")
    length = min((row["length"] for row in printed), key=lambda known: abs(known - 16 * 512))
    paper = {
        row["position_method"]: row["perplexity"] for row in printed if row["length"] == length
    }
    return {
        "rotary_change": "" if estimate is None else change_in_words(estimate.value),
        "rotary_interval": "" if estimate is None else interval_in_words(estimate),
        "paper_length": f"{length:,}",
        "paper_rotary": markdown.perplexity(paper["rotary"]),
        "paper_sinusoidal": markdown.perplexity(paper["sinusoidal"]),
    }


def _turned_changes(short: ComparedLosses, long: ComparedLosses) -> str:
    """Return the changes from L to 16 L that have another sign after longer training, in words.

    A change counts if its interval does not contain zero.
    """
    turned = []
    for method in PRIMARY_METHODS:
        evaluations = (f"{method}-1@{CHANGES_MULTIPLE}", f"{method}-1@1")
        first = short.change(*evaluations)
        later = long.change(*evaluations)
        if first is None or later is None:
            continue
        if _sign(first) * _sign(later) < 0:
            turned.append(
                f"with {method_in_words(method)}, perplexity {change_as_verb(first.value)} here, "
                f"but {change_as_verb(later.value)} after the 24.0M tokens of the primary models"
            )
    return "; ".join(turned)


def _sign(estimate: Estimate) -> int:
    """Return 1 or -1 if the interval of a change lies above or below zero; else 0."""
    low, high = estimate.interval()
    if low > 0:
        return 1
    return -1 if high < 0 else 0


def _changes_figure(folder: Path, losses: Losses) -> str:
    """Return the figure of each method's change from L to 16 L, and draw it."""
    changes = length_changes(losses, MODELS, CHANGES_MULTIPLE)
    if not changes:
        return ""
    length = MODELS.train_length
    longer = CHANGES_MULTIPLE * length
    title = f"Perplexity at {longer:,} tokens compared with {length}, the training length"
    return draw_length_changes(changes, title, folder / CHANGES_FIGURE)
