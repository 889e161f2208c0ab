"""Evaluations of the models of a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from ..data.probes import MULTIPLES
from ..evaluation.config import SweepConfig
from ..evaluation.option_types import parse_stride
from .eval_step import EvalStep
from .schema import Evaluation, Model
from .values import tokens_at


def plan_eval_steps(
    model: Model,
    results_folder: Path,
    other_data: Mapping[str, Path] = MappingProxyType({}),
) -> Iterator[EvalStep]:
    """Yield the evaluations of a model.

    Args:
        results_folder: folder of the results files.
        other_data: binary data of each other corpus to evaluate on.
    """
    overrides: dict = {}
    if "learned" in model.method.names:
        # The table of positions ends at the training length.
        overrides["clamp_learned_positions"] = True
    flags: tuple[str, ...] = ()
    if model.group.user_dir:
        flags = ("--user-dir", model.group.user_dir)
    path = results_folder / "results.json"
    if model.corpus.probe:
        lengths = tuple(multiple * model.train_length for multiple in MULTIPLES)
        probe_config = SweepConfig(lengths=lengths, overrides=overrides)
        yield EvalStep(path, probe_config, flags=flags)
        return
    for evaluation in model.group.select_evaluations(model.method, model.train_length):
        config = _sweep_config(evaluation, model.train_length, overrides)
        as_trained = EvalStep(path, config, flags=flags)
        yield as_trained
        yield from _sliding_steps(evaluation, model, as_trained)
        yield from _variant_steps(evaluation, model, as_trained)
        for corpus, data in other_data.items():
            if corpus in evaluation.also_on:
                yield replace(
                    as_trained,
                    results_path=results_folder / f"results-on-{corpus}.json",
                    name=f"on {corpus}",
                    corpus=corpus,
                    data=str(data),
                )


def _sweep_config(evaluation: Evaluation, train_length: int, overrides: dict) -> SweepConfig:
    """Return the settings of an evaluation of a model as it was trained."""
    return SweepConfig(
        lengths=tokens_at(evaluation.eval_lengths, train_length),
        strides=tuple(parse_stride(stride) for stride in evaluation.strides),
        subsets=(evaluation.subset,),
        per_document=evaluation.per_document,
        score_from=evaluation.score_from,
        score_to=evaluation.score_to,
        overrides=overrides,
    )


def _sliding_steps(
    evaluation: Evaluation, model: Model, as_trained: EvalStep
) -> Iterator[EvalStep]:
    """Yield the evaluations with additional strides, in overlapping windows."""
    if "transformer_xl" in model.method.names:
        return  # its memory requires windows that do not overlap
    for stride, eval_lengths in evaluation.sliding.items():
        lengths = tokens_at(eval_lengths, model.train_length)
        longer = tuple(length for length in lengths if length > stride)
        if longer:
            config = replace(as_trained.config, lengths=longer, strides=(stride,))
            yield replace(as_trained, config=config)


def _variant_steps(
    evaluation: Evaluation, model: Model, as_trained: EvalStep
) -> Iterator[EvalStep]:
    """Yield the evaluations with overridden options of the model, one per variant."""
    for name, options in evaluation.variants.get(model.method, {}).items():
        overrides = dict(as_trained.config.overrides or {})
        for option, value in options.items():
            overrides[option] = model.train_length if value == "train_length" else value
        yield replace(
            as_trained,
            name=name,
            results_path=as_trained.results_path.with_name(f"results-{name}.json"),
            config=replace(as_trained.config, overrides=overrides),
        )
