"""The page of the study: ``results/small_models/README.md`` and its figures."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from alibi_fairseq.files import atomic_write
from alibi_fairseq.reporting import markdown
from alibi_fairseq.reporting.plots import Panel, PlotLine, draw, method_style
from alibi_fairseq.results.measurements import METHOD_NAMES

from .estimates import Estimate, estimate_change, nats_to_percent
from .losses import (
    EvaluationKey,
    Losses,
    load_curves,
    load_losses,
    load_provenance,
    load_tuning,
)
from .primary_tests import CORPUS, LENGTH, PrimaryTest, recovered_gain, run_tests

#: Models that read 24.0M tokens, and those that read 3.1M.
PRIMARY, SECONDARY = "primary", "secondary"

SCOPE = """\
The models have about one million parameters. They can show how a method's perplexity changes beyond the training
length, because each model is then compared with itself on the same tokens. They cannot show how good a method is at its
training length, how fast it is, or what larger models do: at this size and budget those differences still change with
every further token of training. The paper's models have 247 million parameters.
[protocol.md](../../studies/small_models/protocol.md) fixed the tests, models, and statistics before any primary model
was trained."""

DISCLOSURE = """\
The secondary models belong to an earlier version of this study. Its training lengths of 128 and 512 were planned;
L = 256, the stride of 64, and the order of training were decided after results at 128 and 512 had been seen. Its
learning rates come from a grid of factor 2 and trials of 0.77M tokens, which favors ALiBi by 1 to 1.7 percentage points
over sinusoidal embeddings. Its verdicts were withdrawn, because they counted a larger effect than the paper's as a
contradiction and tested statements about levels that models of this size cannot test."""


def write_page(folder: Path) -> Path:
    """Write the page and its figures from the JSON in ``folder``; returns the page's path."""
    primary = load_losses(folder / PRIMARY)
    secondary = load_losses(folder / SECONDARY)
    tests = run_tests(primary)
    sections = ["# What small models show about length extrapolation", SCOPE]
    sections += ["## The six tests", _tests_table(tests), _conditions_table(tests)]
    sections += _primary_sections(folder, primary)
    sections += ["## Estimates without an outcome", _estimates_intro()]
    for group in GROUPS:
        sections += _group_section(group, secondary)
    sections += _secondary_levels(folder, secondary)
    sections += ["## Disclosure", DISCLOSURE, *_disclosure_tables(folder)]
    path = folder / "README.md"
    with atomic_write(path) as stream:
        stream.write("\n\n".join(section.rstrip() for section in sections if section) + "\n")
    return path


# The six tests


def _tests_table(tests: Sequence[PrimaryTest]) -> str:
    rows = []
    for test in tests:
        p = markdown.NOTHING if test.adjusted_p is None else _p_value(test.adjusted_p)
        rows.append([test.name, test.statement, p, test.outcome])
    table = markdown.table(["", "statement", "p (Holm)", "outcome"], rows, left=2)
    return f"L = {LENGTH}, 24.0M tokens, three seeds.\n\n{table}"


def _conditions_table(tests: Sequence[PrimaryTest]) -> str:
    rows = []
    for test in tests:
        for condition in test.conditions:
            claimed = _range(condition.low, condition.high)
            rows.append([test.name, condition.description, claimed, *_estimate(condition.estimate)])
    headers = ["", "condition", "stated", "change", "95% interval", "seeds"]
    return "Changes of perplexity:\n\n" + markdown.table(headers, rows, left=2)


def _range(low: float | None, high: float | None) -> str:
    if low is None:
        return f"below {percent(high or 0.0)}"
    if high is None:
        return f"above {percent(low)}"
    return f"{percent(low)} … {percent(high)}"


def _p_value(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def percent(nats: float) -> str:
    """Write a change in nats as a change of perplexity."""
    value = nats_to_percent(nats)
    digits = 2 if abs(value) < 1 else 1 if abs(value) < 100 else 0
    return f"{value:+.{digits}f}%"


def _estimate(estimate: Estimate | None) -> list[str]:
    """Return the table cells of an estimate: change, interval, seeds."""
    if estimate is None:
        return [markdown.NOTHING] * 3
    low, high = estimate.interval()
    seeds = " and ".join(str(count) for count in dict.fromkeys(estimate.seeds))
    return [percent(estimate.value), f"{percent(low)} … {percent(high)}", seeds]


# Primary models


def _primary_sections(folder: Path, losses: Losses) -> list[str]:
    lengths = [LENGTH, 2 * LENGTH, 4 * LENGTH, 8 * LENGTH, 16 * LENGTH]
    short = _at_length(losses, CORPUS, LENGTH)
    sections = ["## Primary models"]
    if not short:
        return [*sections, "None is finished yet."]
    sections.append(results_table(short, lengths))
    draw_lengths(short, lengths, folder / "lengths.png", folder / "lengths.svg")
    sections.append("![Perplexity by evaluation length, 24.0M tokens](lengths.png)")
    curves = load_curves(folder / PRIMARY)
    if gaps := _gap_table(curves):
        sections += ["### Differences during training", gaps]
    recovered = recovered_gain(losses, 4 * LENGTH)
    if recovered is not None:
        sections.append(
            f"At L = {4 * LENGTH}, sinusoidal embeddings recover {100 * recovered:.0f}% of ALiBi's gain "
            "over no positions."
        )
    return sections


def _at_length(losses: Losses, corpus: str, length: int) -> dict[str, dict[int, EvaluationKey]]:
    """Return the evaluations without overlap and variant: method -> evaluation length -> key."""
    found: dict[str, dict[int, EvaluationKey]] = defaultdict(dict)
    for key in losses:
        plain = key.stride == key.length and not key.variant
        if plain and (key.corpus, key.tested_on, key.train_length) == (corpus, corpus, length):
            found[key.method][key.length] = key
    return {
        method: {at: losses[key] for at, key in sorted(keys.items())}
        for method, keys in sorted(found.items())
    }


def results_table(models: Mapping, lengths: Sequence[int]) -> str:
    """Write perplexity by method and evaluation length; the mean of the seeds."""
    rows = []
    for method, at in models.items():
        cells = [markdown.perplexity(at[n].perplexity) if n in at else "–" for n in lengths]
        seeds = max(len(losses.seeds) for losses in at.values())
        rows.append([METHOD_NAMES[method], *cells, str(seeds)])
    return markdown.table(["evaluated at →", *map(str, lengths), "seeds"], rows)


def draw_lengths(models: Mapping, lengths: Sequence[int], *paths: Path) -> None:
    """Draw perplexity by evaluation length, a line per method with its range over seeds."""
    lines = []
    for method, at in models.items():
        x = [n for n in lengths if n in at]
        y = [at[n].perplexity for n in x]
        spread = [_spread(at[n]) for n in x]
        lines.append(PlotLine(METHOD_NAMES[method], x, y, method_style(method), spread))
    draw("", [Panel("", lines, trained_at=LENGTH)], *paths)


def _spread(losses) -> float:
    """Return the standard deviation of perplexity over seeds."""
    if len(losses.seeds) < 2:
        return 0.0
    return losses.perplexity * float(losses.nats.mean(axis=1).std(ddof=1))


def _gap_table(curves: Mapping) -> str:
    """Write how far each method is from ALiBi in validation perplexity as training goes on."""
    alibi = curves.get((CORPUS, "alibi", LENGTH))
    if not alibi:
        return ""
    updates = [count for count in (732, 1464, 2928, 5856) if count in alibi]
    rows = []
    for (corpus, method, length), curve in sorted(curves.items()):
        if (corpus, length) != (CORPUS, LENGTH) or method == "alibi":
            continue
        cells = []
        for count in updates:
            if count not in curve:
                cells.append(markdown.NOTHING)
                continue
            bits = statistics.mean(curve[count]) - statistics.mean(alibi[count])
            cells.append(percent(bits * 0.6931471805599453))
        rows.append([METHOD_NAMES[method], *cells])
    headers = ["against ALiBi, tokens →", *(f"{count * 4096 / 1e6:.1f}M" for count in updates)]
    return "Validation perplexity at L = 128 without overlap:\n\n" + markdown.table(headers, rows)


# Estimates of the secondary models


@dataclass(frozen=True)
class Group:
    """Estimates that belong together, and why they are no test of the paper.

    Attributes:
        pairs: description, first and second evaluation.
    """

    title: str
    reason: str
    pairs: tuple[tuple[str, EvaluationKey, EvaluationKey], ...]


def key(
    method: str,
    trained: int,
    length: int,
    stride: int = 0,
    variant: str = "",
    corpus: str = CORPUS,
    tested_on: str = "",
) -> EvaluationKey:
    """Return the key of an evaluation, without overlap unless a stride is given."""
    return EvaluationKey(
        corpus, method, trained, length, stride or length, variant, tested_on or corpus
    )


def _levels(method: str, other: str, lengths: Iterable[int]) -> list[tuple]:
    return [
        (
            f"{METHOD_NAMES[method]} against {METHOD_NAMES[other]}, L = {n}, at L",
            key(method, n, n),
            key(other, n, n),
        )
        for n in lengths
    ]


def _beyond(method: str, trained: int, multiples: Iterable[int]) -> list[tuple]:
    return [
        (
            f"{METHOD_NAMES[method]}, L = {trained}, at {multiple} L against L",
            key(method, trained, multiple * trained),
            key(method, trained, trained),
        )
        for multiple in multiples
    ]


GROUPS = (
    Group(
        "Beyond the training length",
        "The same models are compared with themselves, as in the tests above, after an eighth of the tokens.",
        (
            *_beyond("alibi", 128, (2, 4, 16)),
            *_beyond("alibi", 256, (2, 4)),
            *_beyond("alibi", 512, (2, 4)),
            *_beyond("sinusoidal", 128, (2, 4, 16)),
            *_beyond("rotary", 128, (2, 4, 16)),
            *_beyond("t5", 128, (2, 4, 16)),
            *_beyond("none", 128, (2, 4, 16)),
            *_beyond("kerple", 128, (2, 4, 16)),
            *_beyond("fox", 128, (2, 4, 16)),
            *_beyond("xpos", 128, (2, 4, 16)),
            *_beyond("fire", 128, (2, 4, 16)),
            *_beyond("sandwich", 128, (2, 4, 16)),
            *_beyond("cope", 128, (2, 4, 16)),
            *_beyond("bam", 128, (2, 4, 16)),
        ),
    ),
    Group(
        "At the training length",
        "How far methods are apart at L depends on how much they have learned: models that read 3.1M tokens "
        "do not test the paper's comparisons of levels.",
        (
            *_levels("alibi", "sinusoidal", (128, 256, 512)),
            *_levels("alibi", "rotary", (128, 512)),
            *_levels("alibi", "t5", (128, 512)),
            *_levels("sinusoidal", "none", (128, 256, 512)),
        ),
    ),
    Group(
        "Trained short against trained long",
        "The paper's statement needs a baseline that has learned its positions; at 3.1M tokens, sinusoidal "
        "embeddings at L = 512 have learned almost none.",
        tuple(
            (
                f"ALiBi, L = {short}, against sinusoidal, L = {long}, both at {long}",
                key("alibi", short, long),
                key("sinusoidal", long, long),
            )
            for short, long in ((128, 256), (128, 512), (256, 512))
        ),
    ),
    Group(
        "Longer training lengths",
        "At equal tokens a longer training length means fewer sequences per update, which hurts a model "
        "that is far from converged; the paper's models are not.",
        tuple(
            (
                f"{METHOD_NAMES[method]}, L = {long} against {short}, each at its L",
                key(method, long, long),
                key(method, short, short),
            )
            for method in ("alibi", "sinusoidal")
            for short, long in ((128, 256), (256, 512))
        ),
    ),
    Group(
        "Sliding windows",
        "With S small, every token has nearly full context. The change is then that of more context alone.",
        (
            (
                "ALiBi, L = 128, S = 16, at 256 against 128",
                key("alibi", 128, 256, 16),
                key("alibi", 128, 128, 16),
            ),
            (
                "ALiBi, L = 128, S = 16, at 512 against 128",
                key("alibi", 128, 512, 16),
                key("alibi", 128, 128, 16),
            ),
            (
                "ALiBi, L = 512, S = 32, at 1024 against 512",
                key("alibi", 512, 1024, 32),
                key("alibi", 512, 512, 32),
            ),
        ),
    ),
    Group(
        "Attention limited to the training length",
        "Whether a larger model uses context beyond L cannot be concluded from these.",
        tuple(
            (
                f"ALiBi, L = {trained}, at {length}: limited against unlimited",
                key("alibi", trained, length, variant="limited"),
                key("alibi", trained, length),
            )
            for trained, length in ((128, 256), (128, 512), (256, 512), (512, 1024))
        ),
    ),
    Group(
        "Interpolated slopes",
        "A later proposal; the paper makes no statement about it.",
        (
            (
                "ALiBi, L = 128, at 256: interpolated against not",
                key("alibi", 128, 256, variant="interpolated"),
                key("alibi", 128, 256),
            ),
            (
                "ALiBi, L = 128, at 256: four shallowest slopes interpolated against not",
                key("alibi", 128, 256, variant="interpolated_shallow"),
                key("alibi", 128, 256),
            ),
        ),
    ),
    Group(
        "Later methods",
        "Each of these papers used other models and texts; these are levels at 4 L, not a replication.",
        tuple(
            (
                f"{METHOD_NAMES[method]} against ALiBi, L = 128, at 512",
                key(method, 128, 512),
                key("alibi", 128, 512),
            )
            for method in ("kerple", "fox", "xpos", "fire", "sandwich", "cope", "bam")
        ),
    ),
    Group(
        "Another text",
        "Books instead of articles. The paper's comparison of levels on books is not tested, for the reason "
        "above.",
        (
            *(
                (
                    f"ALiBi, L = 128, on books, at {multiple} L against L",
                    key("alibi", 128, multiple * 128, corpus="books"),
                    key("alibi", 128, 128, corpus="books"),
                )
                for multiple in (2, 4, 16)
            ),
            (
                "ALiBi against sinusoidal, L = 128, on books, at L",
                key("alibi", 128, 128, corpus="books"),
                key("sinusoidal", 128, 128, corpus="books"),
            ),
        ),
    ),
)


def _estimates_intro() -> str:
    return (
        "Models that read 3.1M tokens (750 updates of 4,096), three seeds each. These are estimates with "
        "95% intervals, not tests: no correction for their number is made, and no outcome is stated."
    )


def _group_section(group: Group, losses: Losses) -> list[str]:
    rows = []
    for description, first, second in group.pairs:
        if first not in losses or second not in losses:
            continue
        estimate = estimate_change(losses[first], losses[second])
        if estimate is not None:
            rows.append([description, *_estimate(estimate)])
    if not rows:
        return []
    table = markdown.table(["", "change", "95% interval", "seeds"], rows)
    return [f"### {group.title}", group.reason, table]


def _secondary_levels(folder: Path, losses: Losses) -> list[str]:
    lengths = [128, 256, 512, 1024, 2048]
    sections = ["### Perplexity"]
    for length in (128, 256, 512):
        models = _at_length(losses, CORPUS, length)
        if models:
            sections += [f"L = {length}:", results_table(models, lengths)]
    short = _at_length(losses, CORPUS, 128)
    if short:
        draw_lengths(short, lengths, folder / "secondary.png", folder / "secondary.svg")
        sections.append("![Perplexity by evaluation length, 3.1M tokens](secondary.png)")
    return sections


# Disclosure


def _disclosure_tables(folder: Path) -> list[str]:
    sections = []
    for part in (PRIMARY, SECONDARY):
        provenance = load_provenance(folder / part)
        if not provenance:
            continue
        by_processor: dict[str, list[str]] = defaultdict(list)
        dirty = []
        for name, facts in provenance.items():
            by_processor[_processor(facts["hardware"])].append(name)
            if not facts.get("git_clean"):
                dirty.append(name)
        rows = [[processor, str(len(names))] for processor, names in by_processor.items()]
        sections.append(f"Processors of the {part} models:")
        sections.append(markdown.table(["processor", "models"], rows))
        if dirty:
            sections.append(
                f"{len(dirty)} of {len(provenance)} {part} models come from a work tree with uncommitted "
                f"changes: {', '.join(f'`{name}`' for name in dirty)}."
            )
        tuning = load_tuning(folder / part)
        if tuning:
            sections += [f"Learning rates of the {part} models:", _tuning_table(tuning)]
    return sections


def _processor(hardware: Mapping) -> str:
    family = f"family {hardware['cpu_family']}, model {hardware['cpu_model']}"
    return f"{hardware['cpu']} ({family})" if hardware.get("cpu_family") else hardware["cpu"]


def _tuning_table(tuning: Mapping[str, dict]) -> str:
    rates = sorted({trial["lr"] for outcome in tuning.values() for trial in outcome["trials"]})
    rows = []
    for name, outcome in tuning.items():
        losses = {trial["lr"]: trial["loss_bits"] for trial in outcome["trials"]}
        cells = []
        for rate in rates:
            bits = losses.get(rate)
            cells.append(markdown.NOTHING if bits is None else markdown.perplexity(2**bits))
        edge = " (edge of the grid)" if outcome["at_edge"] else ""
        rows.append([name, *cells, f"{outcome['lr']:g}{edge}"])
    return markdown.table(
        ["perplexity after the trial", *(f"{r:g}" for r in rates), "chosen"], rows
    )
