"""How much of T5 bias's decrease in longer windows comes from longer context.

T5 bias was not evaluated with sliding windows. Its losses by position give an estimate: in the same
windows, T5 bias is compared with ALiBi, whose gain from longer context is known from sliding
windows.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from alibi_fairseq.reporting.page import fill_file
from alibi_fairseq.results.estimates import t_quantile
from alibi_fairseq.results.values import TextValues

from ..analysis.compared_models import ComparedModels
from ..analysis.study_results import StudyResults

TEMPLATE = Path(__file__).with_name("t5_context.md")


def t5_context_section(study: StudyResults, models: ComparedModels) -> str:
    """Return the estimated gain of T5 bias from longer context; empty without its evaluations.

    Args:
        study: results of the study.
        models: models of the six tests.
    """
    short = models.train_length
    long = 4 * short
    t5 = _losses_by_seed(study, models, "t5")
    alibi = _losses_by_seed(study, models, "alibi")
    seeds = sorted({*t5} & {*alibi})
    if len(seeds) < 2:
        return ""
    relative = []
    alibi_gains = []
    decreases = []
    for seed in seeds:
        of_t5 = t5[seed]
        of_alibi = alibi[seed]
        within = _bits(of_t5[short, short], short // 2, short)
        within -= _bits(of_alibi[short, short], short // 2, short)
        past = _bits(of_t5[long, long], short, long)
        past -= _bits(of_alibi[long, long], short, long)
        relative.append(past - within)
        stride = short // 8
        alibi_gains.append(of_alibi[short, stride].loss_bits - of_alibi[long, stride].loss_bits)
        decreases.append(of_t5[short, short].loss_bits - of_t5[long, long].loss_bits)
    gains = np.array(alibi_gains) - np.array(relative)
    margin = t_quantile(0.975, len(gains) - 1) * gains.std(ddof=1) / math.sqrt(len(gains))
    slots = {
        "relative": f"{np.mean(relative):.3f}",
        "half": short // 2 + 1,
        "short": short,
        "long": long,
        "alibi": f"{np.mean(alibi_gains):.3f}",
        "gain": f"{gains.mean():.3f}",
        "low": f"{gains.mean() - margin:.3f}",
        "high": f"{gains.mean() + margin:.3f}",
        "decrease": f"{np.mean(decreases):.3f}",
    }
    return fill_file(TEMPLATE, slots)


def _losses_by_seed(
    study: StudyResults, models: ComparedModels, method: str
) -> dict[int, dict[tuple[int, int], TextValues]]:
    """Return the losses of a method as trained by seed, and then by length and stride."""
    by_seed: dict[int, dict[tuple[int, int], TextValues]] = {}
    wanted = (models.corpus, method, models.train_length)
    for model in study.models:
        if model.model != wanted:
            continue
        for result in model.own_results:
            if result.reading.variant:
                continue
            assert result.seed is not None, "a study seeds its models"
            assert isinstance(result.values, TextValues), "a study evaluates its models on text"
            of_seed = by_seed.setdefault(result.seed, {})
            of_seed[result.case.length, result.case.stride] = result.values
    return by_seed


def _bits(values: TextValues, after: int, end: int) -> float:
    """Return the mean loss, in bits per token, at the positions from after + 1 to end."""
    bits = 0.0
    tokens = 0
    for position_end, num_tokens, sum_of_bits in zip(
        values.position_ends, values.position_tokens, values.position_bits, strict=True
    ):
        if after < position_end <= end:
            bits += sum_of_bits
            tokens += num_tokens
    return bits / tokens
