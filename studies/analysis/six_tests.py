"""The six tests of ``small_models/protocol.md``, which ``six_tests.yaml`` declares."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from alibi_fairseq.positions.display_names import method_name

from .baseline import baseline_evaluations, baseline_is_trained, estimate_lead, recovered_gain
from .compared_models import ComparedLosses, ComparedModels
from .estimates import Estimate, percent, percent_to_nats
from .evaluation_key import EvaluationKey
from .losses import Losses

#: Seeds per model; fewer count as "not run".
SEEDS = 3
#: Family-wise error rate of the six tests.
ALPHA = 0.05

SUPPORTED = "supported"
NOT_SUPPORTED = "not supported"
INCONCLUSIVE = "inconclusive"
BASELINE_NOT_TRAINED = "baseline not trained"
NOT_RUN = "not run"

#: Statement and conditions of each test.
DECLARED: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parents[1] / "six_tests.yaml").read_text(encoding="utf-8")
)


@dataclass(frozen=True)
class Condition:
    """One condition of a test.

    Attributes:
        description: what is compared.
        estimate: the change; None while models are missing.
        low: lower bound of the claimed change, in nats; None: unbounded.
        high: upper bound; None: unbounded.
        missing: models without all seeds.
        evaluations: the two evaluations that are compared, in training lengths.
        label: what distinguishes it from the other conditions of its test.
    """

    description: str
    estimate: Estimate | None
    low: float | None = None
    high: float | None = None
    missing: tuple[str, ...] = ()
    evaluations: tuple[str, ...] = ()
    label: str = ""

    @property
    def p_value(self) -> float:
        """p value of "the change lies outside the range"."""
        assert self.estimate is not None
        sides = []
        if self.low is not None:
            sides.append(self.estimate.p_above(self.low))
        if self.high is not None:
            sides.append(self.estimate.p_below(self.high))
        return max(sides)

    def interval_location(self, level: float) -> str:
        """Return where the confidence interval at this level lies relative to the range.

        Returns:
            ``inside``, ``below``, ``above``, or ``across`` for an interval across an end.
        """
        assert self.estimate is not None
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        lowest, highest = self.estimate.interval(level)
        if highest < low:
            return "below"
        if lowest > high:
            return "above"
        if low <= lowest and highest <= high:
            return "inside"
        return "across"


@dataclass(frozen=True)
class HypothesisTest:
    """One of the six tests, and its outcome.

    Attributes:
        name: ``E1`` to ``E6``.
        statement: what is tested.
        conditions: must all hold.
        found_instead: what an interval ``below`` or ``above`` the range of a condition shows.
        baseline_trained: False if the baseline has not learned positions.
        baseline_size: what the rule for baselines compares, in parentheses; empty while unknown.
        missing_baselines: models without all seeds that only ``baseline_trained`` depends on.
        adjusted_p: p value after Holm's correction; None while models are missing.
        topic: what it is about.
    """

    name: str
    statement: str
    conditions: tuple[Condition, ...]
    found_instead: Mapping[str, str] = field(default_factory=dict)
    baseline_trained: bool = True
    baseline_size: str = ""
    missing_baselines: tuple[str, ...] = ()
    adjusted_p: float | None = None
    topic: str = ""

    @property
    def title(self) -> str:
        """What the test is about, with its name in the protocol."""
        return f"{self.topic} ({self.name})"

    @property
    def missing(self) -> list[str]:
        """Models without all seeds, each once."""
        models: list[str] = []
        for condition in self.conditions:
            models += condition.missing
        models += self.missing_baselines
        return list(dict.fromkeys(models))

    @property
    def complete(self) -> bool:
        """True if all models have all seeds."""
        return not self.missing

    @property
    def p_value(self) -> float:
        """p value of the intersection-union test: the largest of its conditions."""
        return max(condition.p_value for condition in self.conditions)

    def location(self, condition: Condition) -> str:
        """Return the location of the interval that decides whether the test is not supported."""
        return condition.interval_location(1 - ALPHA / len(self.conditions))

    @property
    def outcome(self) -> str:
        """The outcome, by the rules of the protocol."""
        if not self.complete or self.adjusted_p is None:
            return NOT_RUN
        if not self.baseline_trained:
            return BASELINE_NOT_TRAINED
        if self.adjusted_p < ALPHA:
            return SUPPORTED
        locations = {self.location(condition) for condition in self.conditions}
        if locations & {"below", "above"}:
            return NOT_SUPPORTED
        return INCONCLUSIVE

    @property
    def verdict(self) -> str:
        """The outcome with the estimated changes that it rests on, and what was found instead."""
        if self.outcome == NOT_RUN:
            return self.outcome
        if self.outcome == BASELINE_NOT_TRAINED:
            return f"{self.outcome}{self.baseline_size}"
        if self.outcome != NOT_SUPPORTED:
            return f"{self.outcome} ({_sizes(self.conditions)})"
        found = []
        for name, finding in self.found_instead.items():
            deciding = [each for each in self.conditions if self.location(each) == name]
            if deciding:
                found.append(f"{finding} ({_sizes(deciding)})")
        return f"{self.outcome}: {', '.join(found)}"


def _sizes(conditions: Iterable[Condition]) -> str:
    """Return the estimated changes of conditions, with their labels."""
    sizes = []
    for condition in conditions:
        assert condition.estimate is not None
        sizes.append(f"{percent(condition.estimate.value)} {condition.label}".rstrip())
    return ", ".join(sizes)


def run_tests(losses: ComparedLosses) -> list[HypothesisTest]:
    """Evaluate all six tests; Holm's correction counts those without models with p = 1."""
    tests = [_build_test(declared, losses) for declared in DECLARED]
    p_values = [test.p_value if test.complete else 1.0 for test in tests]
    # Imported here, so that a machine without statsmodels can train the models of a study.
    from statsmodels.stats.multitest import multipletests

    _, adjusted, _, _ = multipletests(p_values, alpha=ALPHA, method="holm")
    return [
        replace(test, adjusted_p=float(p)) if test.complete else test
        for test, p in zip(tests, adjusted)
    ]


def needed_evaluations(models: ComparedModels) -> list[EvaluationKey]:
    """Return the evaluations that the six tests compare, each once."""
    evaluations = list(baseline_evaluations(models))
    for declared in DECLARED:
        for condition in declared["conditions"]:
            evaluations += [condition["first"], condition["second"]]
    return [models.key(evaluation) for evaluation in dict.fromkeys(evaluations)]


def _build_test(declared: Mapping, losses: ComparedLosses) -> HypothesisTest:
    """Return a declared test. E6 also depends on its baseline."""
    test = HypothesisTest(
        name=declared["name"],
        statement=declared["statement"],
        conditions=tuple(declared_conditions(declared, losses)),
        found_instead=declared["found_instead"],
        topic=declared["title"],
    )
    if test.name != "E6":
        return test
    return replace(
        test,
        baseline_trained=baseline_is_trained(losses),
        baseline_size=_baseline_size(losses),
        missing_baselines=missing_models(losses, baseline_evaluations(losses.models)),
    )


def _baseline_size(losses: ComparedLosses) -> str:
    """Return what the study's rule for E6's baseline compares; empty while it is unknown."""
    if losses.models.baseline == "share":
        share = recovered_gain(losses)
        return "" if share is None else f" (recovers {max(share, 0):.0%})"
    lead = estimate_lead(losses)
    return "" if lead is None else f" (lead {percent(lead.value)})"


def declared_conditions(declared: Mapping, losses: ComparedLosses) -> list[Condition]:
    """Return the conditions of a declared test.

    Args:
        declared: the test in ``six_tests.yaml``.
        losses: losses of all finished models.
    """
    conditions = []
    for each in declared["conditions"]:
        evaluations = (each["first"], each["second"])
        bounds = {}
        for name in ("low", "high", "within"):
            if name in each:
                bounds[name] = percent_to_nats(each[name])
        if "within" in bounds:
            bounds = {"low": -bounds["within"], "high": bounds["within"]}
        condition = Condition(
            description=each["description"].format(stride=losses.models.sliding_stride),
            estimate=losses.change(*evaluations),
            low=bounds.get("low"),
            high=bounds.get("high"),
            missing=missing_models(losses, evaluations),
            evaluations=evaluations,
            label=each["label"],
        )
        conditions.append(condition)
    return conditions


def missing_models(losses: ComparedLosses, evaluations: Iterable[str]) -> tuple[str, ...]:
    """Return the models of evaluations that have fewer than all seeds, with their seeds.

    The evaluation is named if the model has more seeds in other evaluations.
    """
    missing = []
    for evaluation in evaluations:
        found = losses.find(evaluation)
        seeds = 0 if found is None else len(found.seeds)
        if seeds < SEEDS:
            key = losses.models.key(evaluation)
            count = f"{seeds} of {SEEDS} seeds"
            if _trained_seeds(losses.by_key, key) > seeds:
                count += f" evaluated at {evaluation_name(key)}"
            missing.append(f"{method_name(key.method)}, L = {key.train_length} ({count})")
    return tuple(dict.fromkeys(missing))


def _trained_seeds(losses: Losses, key: EvaluationKey) -> int:
    """Return the number of seeds of an evaluation's model in any evaluation."""
    counts = [len(other.seeds) for other in losses.values() if other.model == key.model]
    return max(counts, default=0)


def evaluation_name(key: EvaluationKey) -> str:
    """Return the length, the stride, and the variant of an evaluation, for messages."""
    name = f"{key.length} tokens"
    if key.stride != key.length:
        name += f", S = {key.stride}"
    if key.variant:
        name += f", variant {key.variant}"
    return name
