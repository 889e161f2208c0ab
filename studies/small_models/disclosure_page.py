"""The disclosure: ``results/small_models/disclosure.md``.

It has what only those need who judge or repeat the study: what was known before, the learning-rate
trials, and the origin of each model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from alibi_fairseq.reporting import markdown
from alibi_fairseq.results.values import TextValues

from ..analysis.compared_models import ComparedLosses
from ..analysis.estimates import percent_to_nats
from ..analysis.six_tests import NOT_SUPPORTED, SUPPORTED, missing_models, run_tests
from ..analysis.study_results import FinishedModel, StudyResults
from ..sections.changes import change_cells, change_in_words
from ..sections.ranking import ranking_section
from ..sections.six_tests import location_cell
from ..sections.templates import join_parts, write_page
from ..sections.training import origins_table, seeds_by_model, trials_table
from ..sections.wording import join_words, method_in_words
from .models import CORPUS, MODELS, PRIMARY, SECONDARY
from .t5_context import t5_context_section

TEMPLATE = Path(__file__).with_name("disclosure.md")
#: What the learning-rate trials of each configuration were for.
TRIALS = {
    PRIMARY: "the primary models, 3.0M tokens",
    "sinusoidal-3M": "sinusoidal embeddings, 3.0M tokens",
    "sinusoidal-12M": "sinusoidal embeddings, 12.0M tokens",
    "rates-12M": "ALiBi and T5 bias, 12.0M tokens, made after all primary models",
    SECONDARY: "the secondary models, 0.77M tokens",
}
#: The method whose primary models were trained beyond the time limit of the protocol.
LATE_METHOD = "none"
#: Margin of E3 in six_tests.yaml, in percent.
E3_MARGIN = 2.0
#: Commit ce84c3f5, the first version of the protocol.
PROTOCOL_DATE = "2026-11-24T18:05:00Z"
#: The primary models, each at its training length, in the order of the protocol.
PROTOCOL_MODELS = (
    *("alibi-1@1", "sinusoidal-1@1", "rotary-1@1", "t5-1@1", "none-1@1"),
    *("sinusoidal-4@4", "alibi-4@4", "none-4@4"),
)


def write_disclosure_page(
    folder: Path,
    studies: Mapping[str, StudyResults],
    primary: ComparedLosses,
    secondary: ComparedLosses,
) -> None:
    """Write the disclosure.

    Args:
        folder: folder of the page.
        studies: results of each configuration.
        primary: losses of the primary models.
        secondary: losses of the secondary models.
    """
    write_page(
        folder,
        TEMPLATE,
        TEMPLATE.name,
        unknown_before=_unknown_before(studies[SECONDARY].models),
        **_known_before(primary, secondary),
        not_trained="\n".join(f"- {model}" for model in missing_models(primary, PROTOCOL_MODELS)),
        **_late_models(studies[PRIMARY].models),
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


def _unknown_before(models: Iterable[FinishedModel]) -> str:
    """Return the methods of which no model was trained when the protocol was committed."""
    first: dict[str, str] = {}
    for model in models:
        method = method_in_words(model.model.method)
        date = model.provenance.date
        first[method] = min(date, first.get(method, date))
    return join_words([method for method, date in first.items() if date > PROTOCOL_DATE])


def _known_before(primary: ComparedLosses, secondary: ComparedLosses) -> dict[str, object]:
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


def _late_models(models: Iterable[FinishedModel]) -> dict[str, str]:
    """Return how long the models within the protocol's time limit took, and those beyond it."""
    hours = 0.0
    late = set()
    for model in models:
        if model.model.method == LATE_METHOD:
            late.add(str(model.model.train_length))
        else:
            hours += model.hours
    return {"hours": f"{hours:.1f}", "late_lengths": join_words(sorted(late))}


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
    return join_parts(*parts)


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
    """Return what trials at 12.0M tokens say about the rates that trials at 3.0M tokens chose.

    The values are empty if both choose the same rate for sinusoidal embeddings.
    """
    sinusoidal = f"{CORPUS}/sinusoidal-{MODELS.train_length}"
    first = studies["sinusoidal-3M"].trials.get(sinusoidal)
    second = studies["sinusoidal-12M"].trials.get(sinusoidal)
    names = ("short_rate", "long_rate", "rate_change", "later_checks", "unchecked", "e3")
    if first is None or second is None or first["lr"] == second["lr"]:
        return dict.fromkeys(names, "")
    checks = []
    changes = []
    unchecked = []
    for path, outcome in studies[PRIMARY].trials.items():
        method = path.split("/")[1].rsplit("-", 1)[0]
        if outcome["lr"] != first["lr"] or method == LATE_METHOD:  # which E3 doesn't compare
            continue
        name = method_in_words(method)
        later = studies["rates-12M"].trials.get(path)
        if later is None:
            unchecked.append(name)
            continue
        changes.append(_rate_gain(outcome["lr"], later))
        checks.append(_checked_rate(name, outcome["lr"], later))
    sinusoidal_change = _rate_gain(first["lr"], second)
    if unchecked:  # their rates may matter as much
        changes.append(sinusoidal_change)
    return {
        "short_rate": f"{first['lr']:g}",
        "long_rate": f"{second['lr']:g}",
        "rate_change": change_in_words(-sinusoidal_change),
        "later_checks": " ".join(checks),
        "unchecked": join_words(unchecked),
        "e3": _effect_on_e3(changes),
    }


def _rate_gain(used: float, trials: Mapping) -> float:
    """Return the change in log perplexity from a rate to the best one of later trials."""
    bits = {trial["lr"]: trial["loss_bits"] for trial in trials["trials"]}
    return (bits[trials["lr"]] - bits[used]) * math.log(2)


def _checked_rate(method: str, used: float, trials: Mapping) -> str:
    """Return a sentence about the rate that later trials choose for a method."""
    if trials["lr"] == used:
        return f"For {method}, {used:g} has the lowest loss there as well."
    change = change_in_words(_rate_gain(used, trials))
    return f"For {method}, the perplexity of {trials['lr']:g} is {change} than that of {used:g}."


def _effect_on_e3(changes: Sequence[float]) -> str:
    """Return a sentence about E3 if other rates change log perplexity by these values, if any."""
    if not changes:
        return ""
    if max(map(abs, changes)) < percent_to_nats(E3_MARGIN):
        return f"This is less than the margin of E3 ({E3_MARGIN:g}%)."
    return (
        f"A difference of this size is larger than the margin of E3 ({E3_MARGIN:g}%), so E3 could "
        "come out differently with rates chosen at 12.0M tokens."
    )


def _uncommitted_changes(part: str, models: Sequence[FinishedModel]) -> str:
    """Return a sentence about the models from a working tree with changes; empty without any."""
    changed = [model for model in models if not model.provenance.git_clean]
    if not changed:
        return ""
    commits = {model.provenance.git_commit for model in changed}
    of_commits = [model for model in models if model.provenance.git_commit in commits]
    which = seeds_by_model(changed)
    if len(of_commits) == len(changed) and None not in commits:
        which = (
            f"all those of commit {join_words(sorted(commit[:7] for commit in commits if commit))}"
        )
    return (
        f"{len(changed)} of {len(models)} {part} models were trained from a working tree with "
        f"uncommitted changes: {which}."
    )
