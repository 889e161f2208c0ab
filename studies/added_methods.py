"""Methods that others trained with a study's configuration, next to the study's own.

The results of a method are a folder like that of the study, with ``cells/``. They are comparable if
the data and all settings, except options of the method, equal those that the study's ALiBi models
have.
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

from .estimates import Estimate, estimate_change
from .losses import (
    FinishedModel,
    Losses,
    finished_models,
    load_losses,
    load_provenance,
    load_tuning,
)
from .origins import origins_table, trials_table
from .pages import SECTIONS, section, write_page
from .primary_tests import StudiedModels, alibi_model
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


def added_methods_section(folder: Path, models: StudiedModels) -> str:
    """Return the methods in ``added/`` next to the study's, and draw their figure."""
    added = sorted(path.parent for path in folder.glob(f"{ADDED}/*/cells"))
    return _section(folder, added, models, folder) if added else ""


def write_added_page(folder: Path, added: Path, title: str, models: StudiedModels) -> Path:
    """Write a page that compares a method with the study; return its path, in the method's folder.

    Args:
        folder: results of the study.
        added: results of the method.
        title: title of the study.
        models: models of the six tests.
    """
    return write_page(
        added,
        SECTIONS / "added-page.md",
        title=title,
        notation=section("notation"),
        methods=_section(folder, [added], models, added),
        origins=origins_table(load_provenance(added)),
        trials=trials_table(load_tuning(added)),
    )


def _section(folder: Path, added: Sequence[Path], models: StudiedModels, figures: Path) -> str:
    """Return perplexities and changes of the added methods, after checking their settings."""
    studied = {model.method for model in finished_models(folder)}
    reference = alibi_model(folder, models)
    options: list[str] = []
    methods: list[str] = []
    for path in added:
        for model in finished_models(path):
            if model.method in studied:
                raise UserInputError(
                    f"{model.folder} is a model of '{model.method}', which the study has. Give the "
                    "method another name."
                )
            options += check_same_settings(reference, model)
            if model.method not in methods:
                methods.append(model.method)
    losses = load_losses(folder, *added)
    shown = at_train_length(losses, models.corpus, models.train_length)
    lengths = sorted({length for by_length in shown.values() for length in by_length})
    names = ", ".join(f"`{option}`" for option in dict.fromkeys(options)) or "none"
    draw_method_lengths(shown, lengths, models.train_length, figures / f"{FIGURE}.svg")
    return section(
        "added-methods",
        options=names,
        perplexity=perplexity_table(shown, lengths),
        figure_text=lengths_alt(shown, lengths),
        changes=_changes_table(losses, methods, models),
    )


def check_same_settings(reference: FinishedModel, added: FinishedModel) -> list[str]:
    """Check that a model was trained and evaluated as the reference was.

    Returns:
        The options that only the added model has, such as options of its method.

    Raises:
        UserInputError: the data, an option of the training, or the evaluation differs.
    """
    for kind in ("data", "evaluations", "options"):
        ours = _comparable_settings(reference, kind)
        theirs = _comparable_settings(added, kind)
        for name, value in ours.items():
            if theirs.get(name) != value:
                raise UserInputError(
                    f"{added.folder} is not comparable with {reference.folder}: {kind}: {name} is "
                    f"{theirs.get(name, 'missing')} instead of {value}. Train it with the "
                    "configuration and the text of the study."
                )
    ours = _comparable_settings(reference, "options")
    theirs = _comparable_settings(added, "options")
    return [f"{name} {value}".strip() for name, value in theirs.items() if name not in ours]


def _comparable_settings(model: FinishedModel, kind: str) -> dict[str, object]:
    """Return the settings that all methods share, by name.

    Args:
        kind: ``data``, ``evaluations``, or ``options``.
    """
    settings = model.settings[kind]
    if kind == "data":
        return dict(settings)
    if kind == "evaluations":
        # Variants and sliding windows belong to the tests of ALiBi.
        plain = [step for step in settings if not step["name"] and _is_plain(step)]
        return {"without overlap": plain}
    options = {}
    for index, word in enumerate(settings):
        if word.startswith("--"):
            following = settings[index + 1 : index + 2]
            is_flag = not following or following[0].startswith("--")
            options[word] = "" if is_flag else following[0]
    for name in ("--position-method", "--seed"):
        options.pop(name, None)
    # Its length is that of the model, which may be 4 L.
    options.pop("--tokens-per-sample", None)
    return options


def _is_plain(step: dict) -> bool:
    """Return True if the windows of an evaluation do not overlap."""
    return all(length == stride for _, length, stride in step["points"])


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
        first = models.key(row.method, multiple)
        second = models.key(row.other, multiple)
        if first not in losses or second not in losses:
            return None
        return estimate_change(losses[first], losses[second])

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
