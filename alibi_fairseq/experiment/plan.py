"""Plan of an experiment: its runs, and the learning-rate trials before them.

:func:`plan` is a function of the description with the files that it names, the data, and the
results of trials. It is called again whenever one of them may have changed: once the data is
prepared, after the last trial of a model, by each SLURM job, and for a dry run. Names of runs
follow from the description and the code of plugins alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from ..files import sha256_if_present
from ..positions.plugin_sources import plugin_sha256
from ..positions.spec import unique_labels
from ..reporting.row import model_label
from ..results.data_folder import DataFolder
from ..results.data_hashes import data_sha256_if_present
from .corpora import data_folder, text_folder
from .planned_evaluations import plan_eval_steps
from .rate_choice import Choice, TrialResult
from .run import Run
from .schema import ExperimentConfig, Model
from .training_flags import flags_for_weights, named_files, other_flags, validation_splits
from .trials import Trials


@dataclass(frozen=True)
class Plan:
    """Runs of an experiment.

    Attributes:
        runs: runs in order of importance.
        models: model that each run trains, by the name of the run. Recipes of the paper have none.
        trials: learning-rate trials of each model whose rate is chosen (:func:`model_name`).
    """

    runs: tuple[Run, ...]
    models: Mapping[str, Model] = field(default_factory=dict, repr=False)
    trials: Mapping[str, Trials] = field(default_factory=dict, repr=False)

    @property
    def trial_runs(self) -> list[Run]:
        """All trials."""
        return [run for trials in self.trials.values() for run in trials.runs.values()]

    @property
    def choices(self) -> list[Choice]:
        """Choices of learning rates that the trials have made."""
        return [run.choice for run in self.runs if run.choice is not None]

    def find(self, name: str) -> Run:
        """Return the run or trial with a name."""
        for run in (*self.runs, *self.trial_runs):
            if run.name == name:
                return run
        raise LookupError(name)

    @cached_property
    def complete(self) -> list[Run]:
        """Runs that had nothing left to train or evaluate when this was first asked.

        Requires prepared data.
        """
        return [run for run in self.runs if run.is_complete]

    @cached_property
    def unfinished(self) -> list[Run]:
        """All other runs."""
        complete = {run.name for run in self.complete}
        return [run for run in self.runs if run.name not in complete]

    def unfinished_trials(self) -> list[Run]:
        """Return the trials for which a run waits."""
        names = {name for run in self.runs for name in run.after}
        return [run for run in self.trial_runs if run.name in names]

    def with_unfinished_trials(self, runs: Iterable[Run]) -> list[Run]:
        """Return runs in order, each after its unfinished trials."""
        ordered: dict[str, Run] = {}
        for run in runs:
            for name in run.after:
                ordered.setdefault(name, self.find(name))
            ordered[run.name] = run
        return list(ordered.values())


def plan_from_folder(
    config: ExperimentConfig, folder: Path, choices_folder: Path | None = None
) -> Plan:
    """Plan the runs of a comparison with the data and the results of trials in its folder."""
    data = read_data(config, folder)
    before_trials = plan(config, folder, data, {}, choices_folder)
    known: dict[str, TrialResult] = {}
    for trials in before_trials.trials.values():
        known.update(trials.read_results())
    return plan(config, folder, data, known, choices_folder)


@dataclass(frozen=True)
class DataFacts:
    """What is known of a data folder. Hashes are None before the files exist.

    Attributes:
        train_sha256: hash of the training split.
        dictionary_sha256: hash of the dictionary.
        valid_tokens: number of tokens of the validation split; None if it is unknown.
        valid_sha256: hash of validation splits by their names (:func:`validation_splits`).
    """

    train_sha256: str | None = None
    dictionary_sha256: str | None = None
    valid_tokens: int | None = None
    valid_sha256: Mapping[tuple[str, ...], str | None] = field(default_factory=dict)


UNPREPARED = DataFacts()


def read_data(config: ExperimentConfig, folder: Path) -> dict[Path, DataFacts]:
    """Return what is known of the data of each model.

    Args:
        folder: output folder of the comparison.
    """
    splits: dict[Path, set[tuple[str, ...]]] = {}
    for model in config.all_models():
        data = data_folder(model.corpus, model.train_length, folder)
        splits.setdefault(data, set()).add(validation_splits(model))
    return {data: _read_facts(data, names) for data, names in splits.items()}


def _read_facts(data: Path, validated: set[tuple[str, ...]]) -> DataFacts:
    """Return what is known of a data folder.

    Args:
        validated: the splits that each run is validated on, by name.
    """
    valid_tokens = None
    manifest = DataFolder.open(data).manifest
    if manifest is not None and "valid" in manifest["splits"]:
        valid_tokens = manifest["splits"]["valid"]["tokens"]
    return DataFacts(
        train_sha256=sha256_if_present(data / "train.bin"),
        dictionary_sha256=sha256_if_present(data / "dict.txt"),
        valid_tokens=valid_tokens,
        valid_sha256={names: data_sha256_if_present(data, names) for names in validated},
    )


def plan(
    config: ExperimentConfig,
    folder: Path,
    data: Mapping[Path, DataFacts],
    known: Mapping[str, TrialResult],
    choices_folder: Path | None = None,
) -> Plan:
    """Plan the runs of a comparison.

    Args:
        folder: output folder.
        data: what is known of each data folder; nothing before it is prepared.
        known: results of finished trials, by the name of the run.
        choices_folder: folder of the chosen learning rates (default: ``folder``).
    """
    runs = []
    models = {}
    trials: dict[str, Trials] = {}
    for model in config.all_models():
        facts = data.get(data_folder(model.corpus, model.train_length, folder), UNPREPARED)
        if len(model.group.lr) == 1:
            run = build_run(model, folder, facts, model.group.lr[0])
        else:
            name = model_name(model)
            if name not in trials:
                trials[name] = _plan_trials(config, model, folder, facts, choices_folder or folder)
            run = _plan_tuned_run(model, folder, facts, trials[name], known)
        other_data = {
            corpus.name: text_folder(corpus, folder)
            for corpus in config.corpora
            if corpus.name != model.corpus.name
        }
        eval_steps = plan_eval_steps(model, run, other_data)
        runs.append(replace(run, eval_steps=tuple(eval_steps)))
        models[run.name] = model
    return Plan(tuple(runs), models, trials)


def build_run(
    model: Model,
    folder: Path,
    facts: DataFacts,
    lr: float,
    updates: int | None = None,
    suffix: str = "",
) -> Run:
    """Return the run that trains a model, without evaluations.

    Args:
        folder: output folder of the comparison.
        facts: what is known of the data folder.
        lr: peak learning rate.
        updates: number of updates (default: those of the model).
        suffix: end of the run's name.
    """
    if updates is None:
        updates = model.group.updates
    name = f"{model_name(model)}-seed{model.seed}{suffix}"
    weight_flags = flags_for_weights(model, lr, updates)
    request: dict = {
        "options": weight_flags,
        "train": facts.train_sha256,
        "dictionary": facts.dictionary_sha256,
    }
    plugin = plugin_sha256(model.method.names)
    if plugin:
        request["plugin"] = plugin
    files = named_files(model)
    if files:
        request["file"] = files
    flags = other_flags(model, updates, folder / name, facts.valid_tokens)
    flags += weight_flags  # the last one of a repeated option counts
    return Run(
        name=name,
        folder=folder / name,
        data=str(data_folder(model.corpus, model.train_length, folder)),
        flags=tuple(flags),
        request=request,
        updates=updates,
        tokens=updates * model.group.tokens_per_update,
        methods=model.method.names,
    )


def model_name(model: Model) -> str:
    """Return the part of a run's name that is the same for all seeds and learning rates.

    It contains the version of a plugin, so that an edited method is trained in another folder.
    """
    # fairseq splits paths at colons.
    method = model.method.notation.replace("/", "-").replace(":", "-")
    name = f"{model.corpus.name}/{method}-{model.train_length}"
    plugin = plugin_sha256(model.method.names)
    return f"{name}-{plugin[:8]}" if plugin else name


def label_of_model(config: ExperimentConfig, model: Model) -> str:
    """Return the name of a model in tables, with its corpus if there are several."""
    labels = unique_labels(config.methods)
    label = model_label(labels[model.method], model.train_length)
    return f"{label} ({model.corpus.name})" if len(config.corpora) > 1 else label


def _plan_trials(
    config: ExperimentConfig, model: Model, folder: Path, facts: DataFacts, choices_folder: Path
) -> Trials:
    """Return the trials of a model's learning rates. They use the first seed."""
    group = model.group
    label = label_of_model(config, model)
    updates = max(1, round(group.tune_share * group.updates))
    first = model._replace(seed=group.seeds[0])
    runs = {}
    for lr in group.lr:
        trial = build_run(first, folder, facts, lr, updates, f"-lr{lr:g}")
        runs[lr] = replace(trial, may_diverge=True)
    path = choices_folder / f"{model_name(model)}-tuning.json"
    return Trials(label, runs, path, facts.valid_sha256.get(validation_splits(model)))


def _plan_tuned_run(
    model: Model,
    folder: Path,
    facts: DataFacts,
    trials: Trials,
    known: Mapping[str, TrialResult],
) -> Run:
    """Return a run at the rate that its trials chose; until then, at the grid's first rate."""
    unknown = tuple(run.name for run in trials.runs.values() if run.name not in known)
    if unknown:
        run = build_run(model, folder, facts, trials.first_rate)
        return replace(run, after=unknown)
    choice = trials.choose(known)
    lr = trials.first_rate if choice is None else choice.lr
    run = build_run(model, folder, facts, lr)
    blocked = trials.why_blocked(known)
    if blocked:
        return replace(run, blocked=blocked)
    return replace(run, choice=choice)
