"""The page of the study: ``results/small_models/README.md`` and its figures."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from alibi_fairseq.paper import published
from alibi_fairseq.positions.display_names import method_name
from alibi_fairseq.reporting import markdown
from alibi_fairseq.results.values import TextValues

from ..analysis.by_length import at_train_length, length_changes
from ..analysis.compared_models import StudiedLosses, StudiedModels
from ..analysis.cost_and_lead import estimate_cost_and_lead, table5_pair
from ..analysis.estimates import estimate_change, percent
from ..analysis.evaluation_key import EvaluationKey
from ..analysis.losses import Losses
from ..analysis.published_gaps import published_gap_range
from ..analysis.six_tests import NOT_SUPPORTED, SUPPORTED, missing_models, run_tests
from ..analysis.study_results import FinishedModel, StudyResults
from ..config import StudyConfig
from ..sections.changes import (
    change_cells,
    change_in_words,
    changes_table,
    interval_in_words,
    percent_cell,
    seeds_cell,
)
from ..sections.changes_figure import draw_length_changes
from ..sections.context_gain import context_gain_section
from ..sections.cost_and_lead import EffectsRow, cost_and_lead_table, effect_cell
from ..sections.perplexity_by_length import draw_method_lengths, perplexity_table
from ..sections.ranking import ranking_section
from ..sections.six_tests import location_cell, tests_section
from ..sections.templates import section, sections, write_page
from ..sections.training import divergence_sentence, origins_table, seeds_by_model, trials_table
from ..sections.wording import join_words, method_in_words, method_label
from .findings import findings_of_small_models
from .t5_context import t5_context_section

PAGE = Path(__file__).with_name("page.md")
#: Template of the second page, with what only those need who judge or repeat the study.
DISCLOSURE = PAGE.with_name("disclosure.md")
#: Template of the third page, with the tables of the secondary models.
ESTIMATES = PAGE.with_name("secondary.md")
#: Text of the articles.
CORPUS = "wikipedia"
#: Models of the six tests.
MODELS = StudiedModels(CORPUS, train_length=128, baseline="share")
#: The same models, whose evaluations are named by tokens.
IN_TOKENS = StudiedModels(CORPUS, train_length=1)
#: Models that read 24.0M tokens, and those that read 3.1M.
PRIMARY = "primary"
SECONDARY = "secondary"
#: Figure of the primary models, and of the changes of all methods.
FIGURE = "lengths.svg"
CHANGES_FIGURE = "changes.svg"
#: Folders with the outcomes of learning-rate trials, and their descriptions on the page.
TRIALS = {
    PRIMARY: "the primary models, 3.0M tokens",
    "sinusoidal-3M": "sinusoidal embeddings, 3.0M tokens",
    "sinusoidal-12M": "sinusoidal embeddings, 12.0M tokens",
    SECONDARY: "the secondary models, 0.77M tokens",
}
#: The primary models, each at its training length, in the order of the protocol.
PROTOCOL_MODELS = (
    *("alibi-1@1", "sinusoidal-1@1", "rotary-1@1", "t5-1@1", "none-1@1"),
    *("sinusoidal-4@4", "alibi-4@4", "none-4@4"),
)
#: Changes of the primary models that no test compares, in training lengths.
BEYOND_TESTS = {
    "T5 bias at 16 L vs. 4 L": ("t5-1@16", "t5-1@4"),
    "T5 bias at 16 L vs. 8 L": ("t5-1@16", "t5-1@8"),
    "T5 bias at 4 L vs. L": ("t5-1@4", "t5-1@1"),
}
#: Changes of the secondary models, in tokens: name and evaluations. A group is a table, whose slot
#: on the page has its name.
CHANGES = Path(__file__).with_name("changes.csv")
#: Groups of changes of which the paper's Table 5 has some.
GROUPS_IN_PAPER = ("at_train_length", "longer_training")
#: Short and long training lengths of the secondary models that compare the title's claim.
CLAIM_LENGTHS = ((128, 256), (128, 512), (256, 512))
#: Training lengths of the secondary models, and the multiples at which they are compared with L.
TRAIN_LENGTHS = (128, 256, 512)
MULTIPLES = (2, 4, 16)
#: Evaluation lengths of the tables and figures.
LENGTHS = (128, 256, 512, 1024, 2048)
#: Evaluation length of the figure of changes, as a multiple of the training length.
CHANGES_MULTIPLE = 16


def write_study_page(_: Path, __: StudyConfig, results: Path) -> Path:
    """Write the page that all configurations share, and return its path."""
    return write_small_models_page(results)


def write_small_models_page(folder: Path) -> Path:
    """Write the page and its figures from the JSON in ``folder``; returns the page's path."""
    studies = {part: StudyResults.load(folder / part) for part in TRIALS}
    study = studies[PRIMARY]
    primary = StudiedLosses(MODELS, study.losses)
    secondary = StudiedLosses(MODELS, studies[SECONDARY].losses)
    _write_disclosure(folder, studies, primary, secondary)
    _write_estimates(folder, studies[SECONDARY], secondary)
    at_length = at_train_length(study.losses, CORPUS, MODELS.train_length)
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
        six_tests=tests_section(primary),
        context_gain=context_gain_section(primary),
        perplexity=perplexities,
        beyond_tests=changes_table(_beyond_tests(primary)),
        **_rotary_order(primary),
        **_leads(primary),
        changes=_changes_figure(folder, secondary.by_key),
    )


def _write_estimates(folder: Path, study: StudyResults, studied: StudiedLosses) -> None:
    """Write the page of the secondary models."""
    losses = study.losses
    write_page(
        folder,
        ESTIMATES,
        ESTIMATES.name,
        **_directions(studied),
        diverged_secondary=divergence_sentence(study.diverged),
        cost_and_lead=section("cost_and_lead"),
        claim=_claim_table(losses),
        beyond=_beyond_table(losses),
        **_group_tables(losses),
        secondary_perplexity=_secondary_perplexities(losses),
    )


def _write_disclosure(
    folder: Path,
    studies: Mapping[str, StudyResults],
    primary: StudiedLosses,
    secondary: StudiedLosses,
) -> None:
    """Write the second page: what was known before, trials, and the origin of each model."""
    write_page(
        folder,
        DISCLOSURE,
        DISCLOSURE.name,
        **_known_before(primary, secondary),
        not_trained="\n".join(f"- {model}" for model in missing_models(primary, PROTOCOL_MODELS)),
        hours=f"{sum(model.hours for model in studies[PRIMARY].models):.1f}",
        ranking=ranking_section(studies[PRIMARY], MODELS, folder),
        **_test_text(studies[PRIMARY].models),
        trials=_trials(studies, [part for part in TRIALS if part != SECONDARY]),
        secondary_trials=_trials(studies, [SECONDARY]),
        **_rate_check(studies),
        t5_context=t5_context_section(studies[PRIMARY], MODELS),
        primary_origins=origins_table(studies[PRIMARY].models),
        primary_changes=_uncommitted_changes(PRIMARY, studies[PRIMARY].models),
        secondary_origins=origins_table(studies[SECONDARY].models),
        secondary_changes=_uncommitted_changes(SECONDARY, studies[SECONDARY].models),
    )


# Primary models


def _leads(losses: StudiedLosses) -> dict[str, str]:
    """Return how far sinusoidal embeddings are from ALiBi at L, in the paper and here."""
    sinusoidal = losses.find("sinusoidal-1@1")
    alibi = losses.find("alibi-1@1")
    ours = ""
    if sinusoidal is not None and alibi is not None:
        ours = change_in_words(sinusoidal.nats.mean() - alibi.nats.mean())
    paper = _paper_change(losses.models.key("sinusoidal-1@1"), losses.models.key("alibi-1@1"))
    assert paper is not None, "Table 5 has both models"
    lowest, highest = published_gap_range()
    return {
        "paper_lead": change_in_words(paper),
        "our_lead": ours,
        "lowest": percent(lowest),
        "highest": percent(highest),
    }


def _beyond_tests(losses: StudiedLosses) -> list[list[str]]:
    """Return rows of the changes of the primary models that no test compares."""
    rows = []
    for name, evaluations in BEYOND_TESTS.items():
        estimate = losses.change(*evaluations)
        if estimate is not None:
            rows.append([name, *change_cells(estimate), seeds_cell(estimate)])
    return rows


def _rotary_order(losses: StudiedLosses) -> dict[str, object]:
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


# Secondary models


def _changes_figure(folder: Path, losses: Losses) -> str:
    """Return the figure of each method's change from L to 16 L, and draw it."""
    changes = length_changes(losses, MODELS, CHANGES_MULTIPLE)
    if not changes:
        return ""
    length = MODELS.train_length
    longer = CHANGES_MULTIPLE * length
    title = f"Perplexity at {longer:,} tokens compared with {length}, the training length"
    return draw_length_changes(changes, title, folder / CHANGES_FIGURE)


def _directions(losses: StudiedLosses) -> dict[str, str]:
    """Return the methods whose perplexity falls, rises, or does neither clearly from L to 16 L."""
    names: dict[str, list[str]] = {"falling": [], "rising": [], "level": []}
    for method, estimate in length_changes(losses.by_key, losses.models, CHANGES_MULTIPLE):
        low, high = estimate.interval()
        direction = "falling" if high < 0 else "rising" if low > 0 else "level"
        names[direction].append(method_in_words(method))
    return {direction: join_words(methods) for direction, methods in names.items()}


def _beyond_table(losses: Losses) -> str:
    """Write the change of each model beyond its training length; empty without any."""
    rows = []
    for train_length in TRAIN_LENGTHS:
        for method, by_length in at_train_length(losses, CORPUS, train_length).items():
            row = [method_label(method), str(train_length)]
            for multiple in MULTIPLES:
                change = None
                if train_length in by_length and multiple * train_length in by_length:
                    longer = by_length[multiple * train_length]
                    change = estimate_change(longer, by_length[train_length])
                row.append(effect_cell(change))
            rows.append(row)
    headers = ["", "L", *(f"{multiple} L vs. L" for multiple in MULTIPLES)]
    return markdown.table(headers, rows) if rows else ""


def _group_tables(losses: Losses) -> dict[str, str]:
    """Return the table of each group of changes."""
    in_tokens = StudiedLosses(IN_TOKENS, losses)
    rows: dict[str, list[list[str]]] = defaultdict(list)
    with CHANGES.open(encoding="utf-8", newline="") as stream:
        for declared in csv.DictReader(stream, strict=True):
            of_group = rows[declared["group"]]
            estimate = in_tokens.change(declared["first"], declared["second"])
            if estimate is None:
                continue
            row = [declared["name"], *change_cells(estimate), seeds_cell(estimate)]
            if declared["group"] in GROUPS_IN_PAPER:
                keys = (IN_TOKENS.key(declared[side]) for side in ("first", "second"))
                row.append(percent_cell(_paper_change(*keys)))
            of_group.append(row)
    slots = {}
    for group, of_group in rows.items():
        paper = ["paper (Table 5)"] if group in GROUPS_IN_PAPER else []
        slots[group] = changes_table(of_group, *paper)
    return slots


def _paper_change(first: EvaluationKey, second: EvaluationKey) -> float | None:
    """Return a change in the paper's Table 5, in nats; None if the table does not have it."""
    perplexities = {}
    for row in published.rows("table05"):
        evaluation = (row["position_method"], row["train_length"], row["length"])
        perplexities[evaluation] = row["perplexity"]
    of_first = perplexities.get((first.method, first.train_length, first.length))
    of_second = perplexities.get((second.method, second.train_length, second.length))
    if of_first is None or of_second is None:
        return None
    return math.log(of_first / of_second)


def _claim_table(losses: Losses) -> str:
    """Write cost, lead, and E6 of the secondary models next to the paper's; empty without any."""
    rows = []
    for short, long in CLAIM_LENGTHS:
        effects = estimate_cost_and_lead(StudiedLosses(IN_TOKENS, losses), short, long)
        if effects is None:
            continue
        lengths = f"{short} and {long}"
        rows.append(EffectsRow([lengths, "3.1M tokens"], effects))
        pair = table5_pair(short, long)
        if pair is not None:
            rows.append(EffectsRow([lengths, "paper (Table 5)"], pair))
    return cost_and_lead_table(["trained short and long", "models"], rows)


def _secondary_perplexities(losses: Losses) -> str:
    """Return a table of perplexities for each training length."""
    parts = []
    for train_length in TRAIN_LENGTHS:
        models = at_train_length(losses, CORPUS, train_length)
        if models:
            parts += [f"L = {train_length}:", perplexity_table(models, LENGTHS)]
    return sections(*parts)


# Disclosure


def _known_before(primary: StudiedLosses, secondary: StudiedLosses) -> dict[str, object]:
    """Return the table of the tests' conditions with both sets of models, and what it shows."""
    headers = ["", "condition", "location, 3.1M tokens"]
    headers += ["3.1M tokens", "95% interval", "24.0M tokens"]
    rows = []
    confirmed = []
    reversed_outcomes = []
    for before, after in zip(run_tests(secondary), run_tests(primary)):
        locations = {location_cell(before, known) for known in before.conditions}
        if locations == {"inside"} and after.outcome == SUPPORTED:
            confirmed.append(after.name)
        if locations == {"inside"} and after.outcome == NOT_SUPPORTED:
            reversed_outcomes.append(after.name)
        for known, condition in zip(before.conditions, after.conditions):
            row = [after.name, condition.description, location_cell(before, known)]
            row += change_cells(known.estimate)
            change, _ = change_cells(condition.estimate)
            rows.append([*row, change])
    return {
        "known_before": markdown.table(headers, rows, left=2),
        "confirmed": " and ".join(confirmed),
        "reversed": " and ".join(reversed_outcomes),
    }


def _test_text(models: Sequence[FinishedModel]) -> dict[str, object]:
    """Return which tokens of which articles the primary models are tested on; empty values without.

    All models have the same test text.
    """
    names = ("test_tokens", "first_token", "last_token", "articles", "test_sha256")
    if not models:
        return dict.fromkeys(names, "")
    result = models[0].own_results[0]
    assert isinstance(result.values, TextValues), "a study evaluates its models on text"
    assert result.case.score_to is not None, "a study scores a range of each article"
    return {
        "test_tokens": f"{result.values.tokens:,}",
        "first_token": f"{result.case.score_from:,}",
        "last_token": f"{result.case.score_to - 1:,}",
        "articles": len(result.values.document_bits),
        "test_sha256": result.case.text,
    }


def _trials(studies: Mapping[str, StudyResults], names: Iterable[str]) -> str:
    """Return a table of each set of learning-rate trials, and which of them lack an origin."""
    parts = []
    for name in names:
        tuning = studies[name].trials
        if tuning:
            parts += [f"Learning-rate trials of {TRIALS[name]}:", trials_table(tuning)]
            parts.append(trials_without_origin(tuning))
    return sections(*parts)


def trials_without_origin(tuning: Mapping[str, dict]) -> str:
    """Return a sentence about the trials without provenance; empty if all have it."""
    recorded = []
    for name, outcome in tuning.items():
        if any(trial.get("provenance") for trial in outcome["trials"]):
            recorded.append(f"`{name}`")
    if len(recorded) == len(tuning):
        return ""
    if not recorded:
        return "Their commit and processor are not recorded."
    return f"The commit and processor are recorded only for the trials of {', '.join(recorded)}."


def _rate_check(studies: Mapping[str, StudyResults]) -> dict[str, str]:
    """Return what the second trials of sinusoidal embeddings say about the other rates.

    The values are empty if the second trials chose the same rate.
    """
    name = f"{CORPUS}/sinusoidal-{MODELS.train_length}"
    first = studies["sinusoidal-3M"].trials.get(name)
    second = studies["sinusoidal-12M"].trials.get(name)
    names = ("rate_methods", "short_rate", "long_rate", "rate_change")
    if first is None or second is None or first["lr"] == second["lr"]:
        return dict.fromkeys(names, "")
    bits = {trial["lr"]: trial["loss_bits"] for trial in second["trials"]}
    change = (bits[first["lr"]] - bits[second["lr"]]) * math.log(2)
    methods = []
    for path, outcome in studies[PRIMARY].trials.items():
        method = path.split("/")[1].rsplit("-", 1)[0]
        if outcome["lr"] == first["lr"] and method != "sinusoidal":
            methods.append(method_name(method))
    return {
        "rate_methods": " and ".join(methods),
        "short_rate": f"{first['lr']:g}",
        "long_rate": f"{second['lr']:g}",
        "rate_change": change_in_words(change),
    }


def _uncommitted_changes(part: str, models: Sequence[FinishedModel]) -> str:
    """Return a sentence about the models from a working tree with changes; empty without any."""
    changed = [model for model in models if not model.provenance.git_clean]
    if not changed:
        return ""
    commits = {model.provenance.git_commit for model in changed}
    of_commits = [model for model in models if model.provenance.git_commit in commits]
    which = seeds_by_model(changed)
    if len(of_commits) == len(changed) and None not in commits:
        which = f"all of commit {join_words(sorted(commit[:7] for commit in commits if commit))}"
    return (
        f"{len(changed)} of {len(models)} {part} models were trained from a working tree with "
        f"uncommitted changes: {which}."
    )
