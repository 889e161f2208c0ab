"""Whether the sinusoidal baseline of E6 counts as trained."""

from __future__ import annotations

from .compared_models import ComparedLosses, ComparedModels
from .estimates import Estimate, percent_to_nats

#: Largest lead of ALiBi at equal length with which a baseline counts as trained, in percent. It is
#: the largest published one without overlap: 14.46 and 13.15 on BookCorpus, L = 3,072 (Table 8).
LARGEST_LEAD = 10.0
#: Smallest share of ALiBi's gain over no positions with which a baseline counts as trained, by the
#: rule of the first two protocols.
SMALLEST_SHARE = 0.5

#: Evaluations at 4 L of the models that are trained at 4 L: no positions, sinusoidal, and ALiBi.
TRAINED_LONG = ("none-4@4", "sinusoidal-4@4", "alibi-4@4")
#: The same methods, trained and evaluated at L.
TRAINED_SHORT = ("none-1@1", "sinusoidal-1@1", "alibi-1@1")


def baseline_is_trained(losses: ComparedLosses) -> bool:
    """Return True if E6's baseline counts as trained by the rule of the study."""
    if losses.models.baseline == "share":
        recovered = recovered_gain(losses)
        return recovered is not None and recovered >= SMALLEST_SHARE
    lead = estimate_lead(losses)
    return lead is not None and is_published_lead(lead)


def is_published_lead(lead: Estimate) -> bool:
    """Return True if the 95% interval of a lead ends at the largest published one or below."""
    _, high = lead.interval()
    return high <= percent_to_nats(LARGEST_LEAD)


def baseline_evaluations(models: ComparedModels) -> tuple[str, ...]:
    """Return the evaluations at 4 L of models trained at 4 L that the rule for baselines needs."""
    if models.baseline == "share":
        return TRAINED_LONG
    return TRAINED_LONG[1:]


def estimate_lead(losses: ComparedLosses) -> Estimate | None:
    """Estimate how far sinusoidal embeddings are behind ALiBi, both trained and evaluated at 4 L.

    Returns:
        None while one of them is missing.
    """
    _, sinusoidal, alibi = TRAINED_LONG
    return losses.change(sinusoidal, alibi)


def recovered_gain(
    losses: ComparedLosses, evaluations: tuple[str, str, str] = TRAINED_LONG
) -> float | None:
    """Return the fraction of ALiBi's gain over no positions that sinusoidal embeddings have.

    Args:
        losses: losses of the models.
        evaluations: evaluations of no positions, sinusoidal embeddings, and ALiBi.

    Returns:
        None while one of the evaluations is missing, and if ALiBi gains nothing.
    """
    means = []
    for evaluation in evaluations:
        found = losses.find(evaluation)
        if found is None:
            return None
        means.append(found.nats.mean())
    none, sinusoidal, alibi = means
    gain = none - alibi
    if gain <= 0:
        return None
    return float((none - sinusoidal) / gain)
