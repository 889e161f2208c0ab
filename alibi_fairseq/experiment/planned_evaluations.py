"""Evaluations of the models of a comparison."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ..data.probes import MULTIPLES
from ..evaluation.config import SweepConfig
from ..results.file_names import RESULTS_FILE
from .eval_step import EvalStep
from .run import Run
from .schema import Evaluation, Model
from .values import tokens_at


class PlannedSweep(NamedTuple):
    """Evaluation that a model needs.

    Attributes:
        config: settings of the sweep.
        variant: name of a variant of the model with other options. Empty: as it was trained.
        corpus: name of the corpus, if it is not that of the training.
    """

    config: SweepConfig
    variant: str = ""
    corpus: str = ""


def plan_sweeps(model: Model, other_corpora: Collection[str] = ()) -> Iterator[PlannedSweep]:
    """Yield the evaluations that a model needs.

    Args:
        other_corpora: names of the corpora that it is not trained on.
    """
    overrides: dict = {}
    if "learned" in model.method.names:
        # The table of positions ends at the training length.
        overrides["clamp_learned_positions"] = True
    if model.corpus.probe:
        lengths = tuple(multiple * model.train_length for multiple in MULTIPLES)
        yield PlannedSweep(SweepConfig(lengths=lengths, overrides=overrides))
        return
    for evaluation in model.group.select_evaluations(model.method, model.train_length):
        as_trained = evaluation.sweep_config(model.train_length, overrides)
        yield PlannedSweep(as_trained)
        yield from _sliding_sweeps(evaluation, model, as_trained)
        yield from _variant_sweeps(evaluation, model, as_trained)
        for corpus in other_corpora:
            if corpus in evaluation.also_on:
                yield PlannedSweep(as_trained, corpus=corpus)


def _sliding_sweeps(
    evaluation: Evaluation, model: Model, as_trained: SweepConfig
) -> Iterator[PlannedSweep]:
    """Yield the evaluations with additional strides, in overlapping windows."""
    if "transformer_xl" in model.method.names:
        return  # its memory requires windows that do not overlap
    for stride, eval_lengths in evaluation.sliding.items():
        lengths = tokens_at(eval_lengths, model.train_length)
        longer = tuple(length for length in lengths if length > stride)
        if longer:
            yield PlannedSweep(replace(as_trained, lengths=longer, strides=(stride,)))


def _variant_sweeps(
    evaluation: Evaluation, model: Model, as_trained: SweepConfig
) -> Iterator[PlannedSweep]:
    """Yield the evaluations with overridden options of the model, one per variant."""
    for name, options in evaluation.variants.get(model.method, {}).items():
        overrides = dict(as_trained.overrides or {})
        for option, value in options.items():
            overrides[option] = model.train_length if value == "train_length" else value
        yield PlannedSweep(replace(as_trained, overrides=overrides), variant=name)


def plan_eval_steps(model: Model, run: Run, other_data: Mapping[str, Path]) -> Iterator[EvalStep]:
    """Yield the evaluation steps of the run that trains a model.

    Args:
        other_data: binary data of each corpus that the model is not trained on.
    """
    flags: tuple[str, ...] = ()
    if model.group.user_dir:
        flags = ("--user-dir", model.group.user_dir)
    for planned in plan_sweeps(model, other_data):
        data = run.data
        results = RESULTS_FILE
        if planned.variant:
            results = f"results-{planned.variant}.json"
        if planned.corpus:
            data = str(other_data[planned.corpus])
            results = f"results-on-{planned.corpus}.json"
        yield EvalStep(
            checkpoint=run.checkpoint_path(run.updates),
            training_marker_path=run.training_marker(run.updates).path,
            data=data,
            results_path=run.folder / results,
            config=planned.config,
            flags=flags,
            variant=planned.variant,
            corpus=planned.corpus,
        )
