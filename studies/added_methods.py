"""Methods that others trained with a study's configuration, next to the study's own.

The results of a method are a folder like that of the study. They are comparable if the data and all
settings, except those of the method, are the same as those of the study's ALiBi models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.positions.display_names import method_name
from alibi_fairseq.reporting import markdown
from alibi_fairseq.reporting.table import Column, Table
from alibi_fairseq.results.settings import canonical

from .estimates import Estimate, change_between
from .losses import Losses
from .origins import origins_table, trials_table
from .pages import SECTIONS, section, write_page
from .primary_tests import StudiedModels, alibi_model
from .study_results import CELLS, FinishedModel, StudyResults, losses_of
from .tables import (
    at_train_length,
    change_cell,
    draw_method_lengths,
    interval_cell,
    lengths_alt,
    perplexity_table,
)

#: Folder in a study's results with one folder of results per added method.
ADDED = "added"
FIGURE = "added-methods"
#: Settings in which the models of a method may differ from the study's.
_SETTINGS_OF_METHOD = (
    *("method", "method_versions", "plugin"),
    "optimization.lr",  # chosen by trials
    # Of models that are trained at 4 L; the tokens per update are compared.
    *("task.tokens_per_sample", "sequences_per_update"),
)


def added_methods_section(study: StudyResults, models: StudiedModels) -> str:
    """Return the methods in ``added/`` next to the study's, and draw their figure."""
    folders = sorted(path.parent for path in study.folder.glob(f"{ADDED}/*/{CELLS}"))
    added = [StudyResults.load(folder) for folder in folders]
    return _section(study, added, models, study.folder) if added else ""


def write_added_page(folder: Path, added: Path, title: str, models: StudiedModels) -> Path:
    """Write a page that compares a method with the study; return its path, in the method's folder.

    Args:
        folder: results of the study.
        added: results of the method.
        title: title of the study.
        models: models of the six tests.
    """
    method = StudyResults.load(added)
    return write_page(
        added,
        SECTIONS / "added-page.md",
        title=title,
        notation=section("notation"),
        methods=_section(StudyResults.load(folder), [method], models, added),
        origins=origins_table(method.origins),
        trials=trials_table(method.trials),
    )


def _section(
    study: StudyResults, added: Sequence[StudyResults], models: StudiedModels, figures: Path
) -> str:
    """Return perplexities and changes of the added methods, after checking their settings."""
    studied = {finished.model.method for finished in study.models}
    reference = alibi_model(study, models)
    options: dict[str, None] = {}
    methods: dict[str, None] = {}
    finished_models = list(study.models)
    for results in added:
        for finished in results.models:
            method = finished.model.method
            if method in studied:
                raise UserInputError(
                    f"{finished.folder} is a model of '{method}', which the study has. Give the "
                    "method another name."
                )
            check_same_settings(reference, finished)
            options.update(dict.fromkeys(_options_of_method(finished)))
            methods[method] = None
            finished_models.append(finished)
    losses = losses_of(finished_models)
    shown = at_train_length(losses, models.corpus, models.train_length)
    lengths = sorted({length for by_length in shown.values() for length in by_length})
    draw_method_lengths(shown, lengths, models.train_length, figures / f"{FIGURE}.svg")
    return section(
        "added-methods",
        options=", ".join(f"`{option}`" for option in options) or "none",
        perplexity=perplexity_table(shown, lengths),
        figure_text=lengths_alt(shown, lengths),
        changes=_changes_table(losses, list(methods), models),
    )


def check_same_settings(reference: FinishedModel, added: FinishedModel) -> None:
    """Check that a model was trained as the reference was.

    Raises:
        UserInputError: the data or an option of the training differs.
    """
    ours = _comparable_settings(reference)
    theirs = _comparable_settings(added)
    for name in sorted({*ours, *theirs}):
        if ours.get(name) != theirs.get(name):
            raise UserInputError(
                f"{added.folder} is not comparable with {reference.folder}: {name} is "
                f"{theirs.get(name, 'the default')} instead of {ours.get(name, 'the default')}. "
                "Train it with the configuration and the text of the study."
            )


def _comparable_settings(model: FinishedModel) -> dict[str, object]:
    """Return the settings that the models of all methods share."""
    last = model.last_validation
    shared = {"tokens per update": last.series.tokens_per_update, "updates": last.updates}
    for name, value in canonical(last.series.settings).items():
        if name not in _SETTINGS_OF_METHOD:
            shared[name] = value
    return shared


def _options_of_method(model: FinishedModel) -> list[str]:
    """Return the options of a model's position method that differ from their defaults."""
    (layer,) = canonical(model.last_validation.series.settings)["method"]["layers"]
    return [f"{name} = {value}" for name, value in layer.get("options", {}).items()]


class _Comparison(NamedTuple):
    """An added method, and one of the study that it is compared with."""

    method: str
    other: str


def _changes_table(losses: Losses, methods: Sequence[str], models: StudiedModels) -> str:
    """Write the changes from each method of the study to each added one at L, 4 L, and 16 L."""
    present = at_train_length(losses, models.corpus, models.train_length)
    rows = []
    for method in methods:
        for other in present:
            if other not in methods:
                rows.append(_Comparison(method, other))

    def change(multiple: int, row: _Comparison) -> Estimate | None:
        """Return the change between both methods at a multiple of L; None if it is not known."""
        return change_between(
            losses, models.key(row.method, multiple), models.key(row.other, multiple)
        )

    columns = [
        Column[_Comparison](
            "", lambda row: f"{method_name(row.method)} vs. {method_name(row.other)}"
        )
    ]
    for multiple in (1, 4, 16):
        estimate = partial(change, multiple)
        name = "L" if multiple == 1 else f"{multiple} L"
        columns.append(Column(f"at {name}", partial(_cell, change_cell, estimate)))
        columns.append(Column("95% interval", partial(_cell, interval_cell, estimate)))
    return markdown.to_markdown([Table(columns, rows)])


def _cell(
    text: Callable[[Estimate | None], str],
    estimate: Callable[[_Comparison], Estimate | None],
    row: _Comparison,
) -> str:
    """Return the text of a row's estimate."""
    return text(estimate(row))
