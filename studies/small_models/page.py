"""The page of the study: ``results/small_models/README.md`` and its figures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from alibi_fairseq.paper import published
from alibi_fairseq.positions.display_names import method_name
from alibi_fairseq.reporting import markdown
from alibi_fairseq.reporting.table import Column, Table
from alibi_fairseq.results.result import TextValues

from ..changes import changes_alt, draw_length_changes, length_changes
from ..context_gain import context_gain_section
from ..cost_and_lead import (
    ClaimKeys,
    EffectsRow,
    cost_and_lead_table,
    estimate_cost_and_lead,
)
from ..estimates import Estimate, change_between, percent
from ..findings import findings_of_small_models
from ..losses import EvaluationKey, Losses
from ..origins import divergence_sentence, origins_table, seeds_by_model, trials_table
from ..pages import section, sections, write_page
from ..paper_claim import perplexity, table5_pair
from ..primary_tests import NOT_SUPPORTED, SEEDS, SUPPORTED, Condition, run_tests
from ..prose import change_in_words, interval_in_words
from ..published_gaps import published_gap_range
from ..ranking import ranking_section
from ..six_tests import location_cell, outcomes_list, tests_section
from ..study_results import FinishedModel, StudyResults, TrainingOrigin
from ..t5_context import t5_context_section
from ..tables import (
    CHANGE_COLUMNS,
    NamedChange,
    at_train_length,
    change_cell,
    draw_method_lengths,
    interval_cell,
    lengths_alt,
    perplexity_table,
)
from .groups import CORPUS, MODELS, EstimatedChange, read_groups

PAGE = Path(__file__).with_name("page.md")
#: Template of the second page, with what only those need who judge or repeat the study.
DISCLOSURE = PAGE.with_name("disclosure.md")
#: Template of the third page, with the tables of the secondary models.
ESTIMATES = PAGE.with_name("secondary.md")
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
#: Methods and training lengths of the primary models, in the order of the protocol.
PROTOCOL_MODELS = (
    ("alibi", 128),
    ("sinusoidal", 128),
    ("rotary", 128),
    ("t5", 128),
    ("none", 128),
    ("sinusoidal", 512),
    ("alibi", 512),
    ("none", 512),
)
#: Short and long training lengths of the secondary models that compare the title's claim.
CLAIM_LENGTHS = ((128, 256), (128, 512), (256, 512))
#: Evaluation lengths of the tables and figures.
LENGTHS = (128, 256, 512, 1024, 2048)

#: Evaluation length of the figure of changes, as a multiple of the training length.
CHANGES_MULTIPLE = 16
#: Groups of changes of which the paper's Table 5 has some.
GROUPS_IN_PAPER = ("at_train_length", "longer_training")


def write_small_models_page(folder: Path) -> Path:
    """Write the page and its figures from the JSON in ``folder``; returns the page's path."""
    studies = {part: StudyResults.load(folder / part) for part in TRIALS}
    _write_disclosure(folder, studies)
    _write_estimates(folder, studies[SECONDARY])
    study = studies[PRIMARY]
    primary = study.losses
    secondary = studies[SECONDARY].losses
    hours = sum(origin.hours for origin in study.origins.values())
    at_length = at_train_length(primary, CORPUS, MODELS.train_length)
    lengths = perplexities = ""
    if at_length:
        draw_method_lengths(at_length, LENGTHS, MODELS.train_length, folder / FIGURE)
        lengths = f"![{lengths_alt(at_length, LENGTHS)}]({FIGURE})"
        perplexities = perplexity_table(at_length, LENGTHS)
    return write_page(
        folder,
        PAGE,
        lengths=lengths,
        findings=findings_of_small_models(primary, MODELS, 100) if at_length else "",
        outcomes=outcomes_list(run_tests(primary, MODELS)),
        primary=len(study.models),
        secondary=len(studies[SECONDARY].models),
        notation=section("notation"),
        hours=f"{hours:.1f}",
        not_trained=_models_not_trained(study.models),
        diverged_primary=divergence_sentence(study.diverged),
        six_tests=tests_section(primary, MODELS),
        e6_in_paper=_paper_on_e6(),
        context_gain=context_gain_section(primary, MODELS),
        perplexity=perplexities,
        ranking=ranking_section(folder, study.curves, CORPUS, MODELS.train_length),
        beyond_tests=_estimates_beyond_the_tests(primary),
        t5_context=t5_context_section(study, MODELS),
        **_rotary_order(primary),
        **_leads(primary),
        changes=_changes_figure(folder, secondary),
    )


def _write_estimates(folder: Path, study: StudyResults) -> None:
    """Write the page of the secondary models."""
    losses = study.losses
    write_page(
        folder,
        ESTIMATES,
        ESTIMATES.name,
        diverged_secondary=divergence_sentence(study.diverged),
        cost_and_lead=section("cost-and-lead"),
        claim=_claim_table(losses),
        **_group_tables(losses),
        secondary_perplexity=_secondary_perplexities(losses),
    )


def _write_disclosure(folder: Path, studies: Mapping[str, StudyResults]) -> None:
    """Write the second page: what was known before, trials, and the origin of each model."""
    primary = studies[PRIMARY]
    secondary = studies[SECONDARY]
    write_page(
        folder,
        DISCLOSURE,
        DISCLOSURE.name,
        **_known_before(primary.losses, secondary.losses),
        **_test_text(primary.models),
        trials=_trials(studies),
        **_rate_check(studies),
        primary_origins=origins_table(primary.origins),
        primary_changes=_uncommitted_changes(PRIMARY, primary.origins),
        secondary_origins=origins_table(secondary.origins),
        secondary_changes=_uncommitted_changes(SECONDARY, secondary.origins),
    )


# Primary models


def _models_not_trained(models: Iterable[FinishedModel]) -> str:
    """Return a list of the protocol's models without all seeds; empty if all have all seeds."""
    seeds = Counter((model.model.method, model.model.train_length) for model in models)
    lines = []
    for method, train_length in PROTOCOL_MODELS:
        count = seeds[method, train_length]
        if count < SEEDS:
            name = method_name(method)
            lines.append(f"- {name}, L = {train_length} ({count} of {SEEDS} seeds)")
    return "\n".join(lines)


def _paper_on_e6() -> str:
    """Return E6 of the paper's own models if it contradicts the title; else empty."""
    pair = table5_pair(MODELS.train_length, 4 * MODELS.train_length)
    assert pair is not None, "Table 5 has these lengths"
    return "" if pair.e6 < 0 else change_in_words(pair.e6)


class _KnownCondition(NamedTuple):
    """Condition of a test, with the secondary models and with the primary ones."""

    test: str
    location: str
    known: Condition
    condition: Condition


def _known_before(primary: Losses, secondary: Losses) -> dict[str, object]:
    """Return the table of the tests' conditions with both sets of models, and what it shows."""
    rows = []
    confirmed = []
    reversed_outcomes = []
    for before, after in zip(run_tests(secondary, MODELS), run_tests(primary, MODELS)):
        locations = {location_cell(before, known) for known in before.conditions}
        if locations == {"inside"} and after.outcome == SUPPORTED:
            confirmed.append(after.name)
        if locations == {"inside"} and after.outcome == NOT_SUPPORTED:
            reversed_outcomes.append(after.name)
        for known, condition in zip(before.conditions, after.conditions):
            location = location_cell(before, known)
            rows.append(_KnownCondition(after.name, location, known, condition))
    columns = [
        Column[_KnownCondition]("", lambda row: row.test),
        Column[_KnownCondition]("condition", lambda row: row.condition.description),
        Column[_KnownCondition]("location, 3.1M tokens", lambda row: row.location),
        Column[_KnownCondition]("3.1M tokens", lambda row: change_cell(row.known.estimate)),
        Column[_KnownCondition]("95% interval", lambda row: interval_cell(row.known.estimate)),
        Column[_KnownCondition]("24.0M tokens", lambda row: change_cell(row.condition.estimate)),
        Column[_KnownCondition]("95% interval", lambda row: interval_cell(row.condition.estimate)),
    ]
    return {
        "known_before": markdown.to_markdown([Table(columns, rows, left=2)]),
        "confirmed": " and ".join(confirmed),
        "reversed": " and ".join(reversed_outcomes),
    }


def _leads(losses: Losses) -> dict[str, str]:
    """Return how far sinusoidal embeddings are from ALiBi at L, in the paper and here."""
    lowest, highest = published_gap_range()
    sinusoidal = losses.get(MODELS.key("sinusoidal"))
    alibi = losses.get(MODELS.key("alibi"))
    length = MODELS.train_length
    paper = math.log(perplexity("sinusoidal", length, length) / perplexity("alibi", length, length))
    ours = ""
    if sinusoidal is not None and alibi is not None:
        ours = change_in_words(sinusoidal.nats.mean() - alibi.nats.mean())
    return {
        "paper_lead": change_in_words(paper),
        "our_lead": ours,
        "lowest": percent(lowest),
        "highest": percent(highest),
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


def _estimates_beyond_the_tests(losses: Losses) -> str:
    """Write changes of the primary models that no test compares; empty without any."""
    rows = []
    for method, first, second in (("t5", 16, 4), ("t5", 16, 8), ("t5", 4, 1)):
        multiple = "L" if second == 1 else f"{second} L"
        name = f"{method_name(method)} at {first} L vs. {multiple}"
        estimate = change_between(losses, MODELS.key(method, first), MODELS.key(method, second))
        if estimate is not None:
            rows.append(NamedChange(name, estimate))
    return markdown.to_markdown([Table(CHANGE_COLUMNS, rows)]) if rows else ""


def _rotary_order(losses: Losses) -> dict[str, object]:
    """Return the change from sinusoidal to rotary embeddings at 16 L, here and in the paper."""
    estimate = change_between(losses, MODELS.key("rotary", 16), MODELS.key("sinusoidal", 16))
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


# Estimates of the secondary models


def _changes_figure(folder: Path, losses: Losses) -> str:
    """Return the figure of each method's change from L to 16 L, and draw it."""
    changes = length_changes(losses, MODELS, CHANGES_MULTIPLE)
    if not changes:
        return ""
    length = MODELS.train_length
    longer = CHANGES_MULTIPLE * length
    title = f"Perplexity at {longer:,} tokens compared with {length}, the training length"
    draw_length_changes(changes, title, folder / CHANGES_FIGURE)
    return f"![{changes_alt(changes)}]({CHANGES_FIGURE})"


class _PairRow(NamedTuple):
    """Change from the second to the first evaluation, next to the paper's."""

    name: str
    estimate: Estimate
    paper: str


def _group_tables(losses: Losses) -> dict[str, object]:
    """Return the table of each group of changes, and how many changes are beyond L."""
    slots: dict[str, object] = {}
    for name, changes in read_groups().items():
        rows = _estimates(changes, losses)
        columns = list(CHANGE_COLUMNS)
        if name in GROUPS_IN_PAPER:
            columns.append(Column("paper (Table 5)", lambda row: row.paper))
        slots[name] = markdown.to_markdown([Table(columns, rows)]) if rows else ""
        slots[f"num_{name}"] = len(rows)
    return slots


def _estimates(changes: Iterable[EstimatedChange], losses: Losses) -> list[_PairRow]:
    """Return the estimate of each change whose models are finished, next to the paper's."""
    rows = []
    for name, first, second in changes:
        estimate = change_between(losses, first, second)
        if estimate is not None:
            rows.append(_PairRow(name, estimate, _paper_change(first, second)))
    return rows


def _paper_change(first: EvaluationKey, second: EvaluationKey) -> str:
    """Return the same change in the paper's Table 5; a dash if the table does not have it."""
    try:
        of_first = perplexity(first.method, first.train_length, first.length)
        of_second = perplexity(second.method, second.train_length, second.length)
    except KeyError:
        return markdown.NOTHING
    return percent(math.log(of_first / of_second))


def _claim_table(losses: Losses) -> str:
    """Write cost, lead, and E6 of the secondary models next to the paper's; empty without any."""
    rows = []
    for short, long in CLAIM_LENGTHS:
        keys = []
        for model in (f"alibi-{short}", f"alibi-{long}", f"sinusoidal-{long}"):
            keys.append(EvaluationKey.parse(f"{model}@{long}", CORPUS))
        effects = estimate_cost_and_lead(losses, ClaimKeys(*keys))
        if effects is None:
            continue
        lengths = f"{short} and {long}"
        rows.append(EffectsRow([lengths, "3.1M tokens"], effects))
        pair = table5_pair(short, long)
        if pair is not None:
            rows.append(EffectsRow([lengths, "paper (Table 5)"], pair))
    if not rows:
        return ""
    return cost_and_lead_table(["trained short and long", "models"], rows)


def _secondary_perplexities(losses: Losses) -> str:
    """Return a table of perplexities for each training length."""
    parts = []
    for train_length in (128, 256, 512):
        models = at_train_length(losses, CORPUS, train_length)
        if models:
            parts += [f"L = {train_length}:", perplexity_table(models, LENGTHS)]
    return sections(*parts)


# Disclosure


def _trials(studies: Mapping[str, StudyResults]) -> str:
    """Return a table of each set of learning-rate trials, and which of them lack an origin."""
    parts = []
    for part, description in TRIALS.items():
        tuning = studies[part].trials
        if tuning:
            parts += [f"Learning-rate trials of {description}:", trials_table(tuning)]
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
        return "The results files do not record the commit or the processor of these trials."
    trials = ", ".join(recorded)
    return f"The results files record the commit and the processor only for the trials of {trials}."


def _uncommitted_changes(part: str, origins: Mapping[str, TrainingOrigin]) -> str:
    """Return a sentence about the models from a working tree with changes; empty without any."""
    names = [name for name, origin in origins.items() if not origin.provenance.git_clean]
    if not names:
        return ""
    return (
        f"{len(names)} of {len(origins)} {part} models were trained from a working tree with "
        f"uncommitted changes: {seeds_by_model(names)}."
    )
