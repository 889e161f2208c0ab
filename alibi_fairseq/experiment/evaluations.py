"""Evaluations of the models of a comparison."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ..data.probes import MULTIPLES
from ..evaluation.config import SweepConfig
from ..evaluation.option_types import parse_stride
from .comparison_config import ComparisonConfig, CorpusConfig, ModelSpec
from .eval_step import EvalStep, ProbeEvalStep
from .values import tokens_at


def eval_steps_of(
    comparison: ComparisonConfig,
    corpus: CorpusConfig,
    spec: ModelSpec,
    results_folder: Path,
) -> Iterator[EvalStep]:
    """Yield the evaluations of a model.

    The model is evaluated as trained, with additional strides, and as each variant.

    Args:
        corpus: the corpus that the model is trained on.
        results_folder: folder of the results files.
    """
    overrides: dict = {}
    if "learned" in spec.method.names:
        # The table of positions ends at the training length.
        overrides["clamp_learned_positions"] = True
    flags: tuple[str, ...] = ()
    if comparison.user_dir:
        flags = ("--user-dir", comparison.user_dir)
    if corpus.probe:
        lengths = tuple(multiple * spec.train_length for multiple in MULTIPLES)
        probe_config = SweepConfig(lengths=lengths, overrides=overrides)
        yield ProbeEvalStep(results_folder / "results.json", probe_config, flags=flags)
        return

    config = SweepConfig(
        lengths=tokens_at(comparison.eval_lengths, spec.train_length),
        strides=tuple(parse_stride(stride) for stride in comparison.strides),
        subsets=(comparison.subset,),
        per_document=comparison.per_document,
        score_from=comparison.score_from,
        score_to=comparison.score_to,
        overrides=overrides,
    )
    as_trained = EvalStep(results_folder / "results.json", config, flags=flags)
    yield as_trained
    yield from _sliding_steps(comparison, spec, as_trained)
    yield from _variant_steps(comparison, spec, as_trained)


def _sliding_steps(
    comparison: ComparisonConfig, spec: ModelSpec, as_trained: EvalStep
) -> Iterator[EvalStep]:
    """Yield the evaluations with additional strides, in overlapping windows."""
    if "transformer_xl" in spec.method.names:
        return  # its memory requires windows that do not overlap
    for stride, eval_lengths in comparison.sliding.items():
        lengths = tokens_at(eval_lengths, spec.train_length)
        longer = tuple(length for length in lengths if length > stride)
        if longer:
            config = replace(as_trained.config, lengths=longer, strides=(stride,))
            yield replace(as_trained, config=config)


def _variant_steps(
    comparison: ComparisonConfig, spec: ModelSpec, as_trained: EvalStep
) -> Iterator[EvalStep]:
    """Yield the evaluations with overridden options of the model, one per variant."""
    for name, options in comparison.variants.get(spec.method, {}).items():
        overrides = dict(as_trained.config.overrides or {})
        for option, value in options.items():
            overrides[option] = spec.train_length if value == "train_length" else value
        yield replace(
            as_trained,
            name=name,
            results_path=as_trained.results_path.with_name(f"results-{name}.json"),
            config=replace(as_trained.config, overrides=overrides),
        )
