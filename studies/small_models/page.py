"""The page of the study: ``results/small_models/README.md`` and its figures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from alibi_fairseq.paper import published
from alibi_fairseq.positions.spec import method_name
from alibi_fairseq.reporting import markdown
from alibi_fairseq.results.file import load
from alibi_fairseq.results.result import TextValues

from ..changes import changes_alt, draw_length_changes, length_changes
from ..context_gain import context_gain_sections
from ..cost_and_lead import (
    HELP,
    ClaimKeys,
    claim_models,
    cost_and_lead_table,
    estimate_cost_and_lead,
)
from ..estimates import estimate_change, percent
from ..experiment import EVALUATION_FILE
from ..findings import findings_of_small_models
from ..losses import (
    EvaluationKey,
    FinishedModel,
    Losses,
    TrainingOrigin,
    diverged_models,
    finished_models,
    load_curves,
    load_losses,
    load_provenance,
    load_tuning,
)
from ..paper_claim import perplexity, table5_pair
from ..primary_tests import NOT_SUPPORTED, SEEDS, SUPPORTED, run_tests
from ..published_gaps import published_gaps_sentence, published_gaps_table
from ..ranking import ranking_sections
from ..t5_context import t5_context_section
from ..tables import (
    DISCLOSURE_PAGE,
    NOTATION,
    at_train_length,
    divergence_section,
    draw_method_lengths,
    estimate_cells,
    lengths_alt,
    location_cell,
    origins_table,
    outcomes_list,
    perplexity_table,
    seeds_by_model,
    tests_sections,
    trials_table,
    wrap,
    write_page,
)
from .groups import CORPUS, GROUPS, MODELS, Group, key

#: Models that read 24.0M tokens, and those that read 3.1M.
PRIMARY = "primary"
SECONDARY = "secondary"
#: Figure of the primary models, and of the changes of all methods.
FIGURE = "lengths.svg"
CHANGES_FIGURE = "changes.svg"
#: Folders with the outcomes of learning-rate trials, and their descriptions on the page.
TRIALS = {
    PRIMARY: "the primary models, 3.0M tokens",
    "sinusoidal-3M": "sinusoidal embeddings, 3.0M tokens",
    "sinusoidal-12M": "sinusoidal embeddings, 12.0M tokens",
    SECONDARY: "the secondary models, 0.77M tokens",
}
#: Methods and training lengths of the primary models, in the order of the protocol.
PROTOCOL_MODELS = (
    ("alibi", 128),
    ("sinusoidal", 128),
    ("rotary", 128),
    ("t5", 128),
    ("none", 128),
    ("sinusoidal", 512),
    ("alibi", 512),
    ("none", 512),
)
#: Short and long training lengths of the secondary models that compare the title's claim.
CLAIM_LENGTHS = ((128, 256), (128, 512), (256, 512))
#: Evaluation lengths of the tables and figures.
LENGTHS = (128, 256, 512, 1024, 2048)

#: Evaluation length of the figure of changes, as a multiple of the training length.
CHANGES_MULTIPLE = 16
#: Number of rows up to which a table of estimates is not folded.
LARGEST_OPEN_TABLE = 20
DETAILS = """\
<details markdown="1">
<summary>{summary}</summary>

{table}

</details>"""

SETUP = """\
> **Setup.** The models have about 1.1 million parameters (3 layers, width 128, 8 heads); the ALiBi
> paper ([Press et al., 2022](https://arxiv.org/abs/2108.12409)) uses 247 million and 1.3 billion.
> The {primary} **primary models** were each trained on 24.0M tokens of English Wikipedia, and only
> they decide the tests. A [protocol](../../studies/small_models/protocol.md) fixed tests, training,
> and statistics before any of them was trained, though after results at 3.1M tokens were known
> ([what was known](disclosure.md#what-was-known-before)). The {secondary} **secondary models** were
> trained on 3.1M tokens of Wikipedia or of books. They cover more methods and training lengths, as
> estimates without an outcome."""

SCOPE = """\
These models can show whether the perplexity of a method rises or falls beyond the training length,
because each model is compared with itself on the same tokens. They can't show which method is best
at the training length, or what larger models do. The size of a change depends on how much a model
has learned, and so do the differences between methods at the training length. E3 and E6 compare
different methods at 4 L, so they also depend on how well each method does at its own training
length. The study does not measure speed; the [benchmarks](../../benchmarks/README.md) do.

To repeat it on WikiText-103
([instructions](../../studies/README.md#repeating-the-study-of-small-models)):

```bash
scripts/reproduce.sh study --corpus wikipedia=wikitext-103-v1.zip
```

[Disclosure](disclosure.md) has what was known before the study, the learning-rate trials, and the
commit and processor of each model."""

METHODS = """\
- [position-methods.md](../../docs/position-methods.md) describes the methods."""

TESTS_SCOPE = """\
E1 to E5 compare models trained at L = 128. E6 also needs models trained at L = 512. The protocol
gives the order in which the primary models are trained, and allows at most 24 hours of one core,
without the learning-rate trials. The models of this page took {hours:.1f} hours."""

NOT_TRAINED = """\
We didn't train these models of the protocol, because its 24 hours were used up. We decided this
before the last T5 bias model was finished. The protocol's order was a mistake: no test needs no
positions at L = 128, yet they came before all models of E6."""

E6_IN_PAPER = """\
For the lengths of E6, {short} and {long} tokens, the paper's own models do not confirm its title:
E6 is {e6} (Table 5). An E6 that is supported would contradict these models."""

KNOWN_BEFORE = """\
When the protocol was written, the changes of the secondary models were known. This table shows the
conditions of the [six tests](README.md#the-six-tests) with both sets of models. {findings} The
table also shows how a change depends on the number of training tokens. However, the two sets of
models differ in more than that ([below](#how-the-models-were-trained))."""

TEST_TEXT = """\
The primary models are tested on {tokens:,} tokens: tokens {begin:,} to {end:,} of each of the first
{articles} whole articles of the test split that are long enough. The tokens before them are context
only. SHA-256 of the test data: `{digest}`."""

ROTARY_ORDER = """\
At 16 L, the perplexity of rotary embeddings differs from that of sinusoidal ones by {change}
({interval}). The paper has the opposite order. Its models, trained at {length} tokens and evaluated
at {longer:,}, have a perplexity of {rotary} (rotary) and {sinusoidal} (sinusoidal; Table 2)."""

UNDERTRAINED = """\
At L = {length}, the paper's sinusoidal models differ from ALiBi by {paper}. Those of this page
differ by {ours} on the test split, so they are probably undertrained after {tokens} tokens.
Comparisons with them at 4 L (E3) depend on that."""

PROCESSORS = """\
Methods and processors are confounded: as the table shows, most methods were trained on one kind of
processor only. Processors round differently, which changes a training. The size of this effect was
not measured separately from the seeds."""

RATE_CHECK = """\
Trials of 3.0M tokens can choose a rate that is too high. For sinusoidal embeddings, {rate:g} had
the lowest loss after 3.0M tokens. After 12.0M tokens, its perplexity differed from that of {best:g}
by {change}. {methods} use {rate:g} without such a check. An error of this size in one of them is
larger than the margin of E3 (2%). With rates chosen at 12.0M tokens, E3 could therefore come out
differently."""

ESTIMATES = """\
The secondary models are a separate set, trained for 750 updates of 4,096 tokens with three seeds
each. They have the setup of an earlier version of this study ([disclosure](disclosure.md)). Their
changes are estimates and have no outcome."""

CLAIM = """\
The title's claim needs a baseline that has learned to use its positions. These sinusoidal
embeddings are much further behind ALiBi than the paper's, so E6 says nothing about the paper here.
Cost needs no baseline; but a model that is far from converged does not profit from longer training
sequences either."""

DISCLOSURE_SCOPE = """\
What you need to judge or repeat the [study of small models](README.md), apart from its
[protocol](../../studies/small_models/protocol.md)."""

DISCLOSURE = """\
**What was known.** The protocol was written before any primary model was trained. At that time, the
results of the secondary models were known, except those of learned embeddings, Transformer-XL,
FIRE, Sandwich, CoPE, and BAM. The results of one ALiBi and one sinusoidal model after 20.5M tokens
were also known; they are not used here. The protocol lists its corrections at the end, with the
results that were known then.

**Primary models.** The training split has 20.7M tokens, so all primary models see 3.3M of their
24.0M training tokens a second time. Their learning rates come from trials of 3.0M tokens. Short
trials can choose a rate that is too high for a method that learns slowly. The protocol therefore
adds trials of 12.0M tokens for sinusoidal embeddings, and their rate is used. If the best rate is
at the edge of the grid, a rate outside the grid may be better.

**Secondary models.** They have the setup of an earlier version of this study:

- The learning rate decays with the inverse square root of the updates and does not reach zero.
- The vocabulary is different.
- The test text is 40 articles, or 20 books from Project Gutenberg.
- The learning rates come from trials of 0.77M tokens on a grid with a spacing of 2.

Training lengths of 128 and 512 were planned. L = 256, evaluations with S = 64 (which this page does
not show), and the order of training were decided after results at 128 and 512 had been seen. Later
still, the three ALiBi models at L = 128 were retrained on another processor, to evaluate them with
one more stride. Only the retrained models are used; the results of the first ones are in commit
8ce4af7. Learned embeddings, Transformer-XL, FIRE, Sandwich, CoPE, and BAM were added after the
primary models of ALiBi, sinusoidal, and rotary embeddings.

Four secondary models (rotary 512, seed 3; sinusoidal 128, seed 3; T5 bias 512, seeds 1 and 2)
started before the commit that their files record, because it was read at the first validation.
Their code may be that of an earlier commit.

The outcomes of that version were withdrawn. They counted a larger effect than the paper's as a
contradiction, and tested claims about perplexity at the training length, which models of this size
cannot test. Several of the contradictions were more than larger effects: they had the opposite sign
of the paper's result. This concerns E6 and the cost ([trained short and trained
long](README.md#trained-short-and-trained-long)), [longer training
lengths](README.md#longer-training-lengths), and the order of rotary and sinusoidal embeddings at
16 L ([estimates beyond the tests](README.md#estimates-beyond-the-tests)), where the page has both
signs."""

PUBLISHED_GAPS = """\
For reference, this table has the perplexity of larger models at their training length, and the
difference from ALiBi. The models were trained on far more tokens. The numbers were published by
Press et al. (Tables 5, 8, and 12, validation split) and by [Haviv et al.
(2022)](https://arxiv.org/abs/2203.16634) (Tables 1 to 3). The perplexities themselves are not
comparable with those of this page. The last column is the share of ALiBi's gain over no positions
that sinusoidal embeddings recover."""


def write_small_models_page(folder: Path) -> Path:
    """Write the page and its figures from the JSON in ``folder``; returns the page's path."""
    primary = load_losses(folder / PRIMARY)
    secondary = load_losses(folder / SECONDARY)
    primary_origins = load_provenance(folder / PRIMARY)
    secondary_origins = load_provenance(folder / SECONDARY)
    sections = ["# What small models show about length extrapolation"]
    sections += _findings(folder, primary)
    sections.append(outcomes_list(run_tests(primary, MODELS)))
    sections.append(SETUP.format(primary=len(primary_origins), secondary=len(secondary_origins)))
    sections += [SCOPE, "## How to read the tables", f"{NOTATION}\n{METHODS}"]
    hours = sum(origin.hours for origin in primary_origins.values())
    sections += ["## The six tests", TESTS_SCOPE.format(hours=hours)]
    sections += _models_not_trained(finished_models(folder / PRIMARY))
    sections += divergence_section(diverged_models(folder / PRIMARY))
    sections += tests_sections(primary, MODELS)
    sections += _paper_on_e6()
    sections += context_gain_sections(primary, MODELS)
    sections += _primary_sections(folder, primary)
    sections += ["### Published differences at the training length", PUBLISHED_GAPS]
    sections += [published_gaps_table(), published_gaps_sentence(), *_undertrained(primary)]
    sections += ["## Estimates of the secondary models", ESTIMATES]
    sections += divergence_section(diverged_models(folder / SECONDARY))
    sections += _changes_section(folder, secondary)
    sections += _claim_section(secondary)
    for group in GROUPS:
        sections += _group_section(group, secondary)
    sections += _secondary_perplexities(secondary)
    _write_disclosure(folder, primary, secondary)
    return write_page(folder, sections)


def _write_disclosure(folder: Path, primary: Losses, secondary: Losses) -> None:
    """Write the second page: what was known before, trials, and the origin of each model."""
    sections = ["# Disclosure", DISCLOSURE_SCOPE]
    sections += _known_before(primary, secondary)
    sections += ["## How the models were trained", DISCLOSURE]
    sections += _test_text(folder)
    sections += ["## Learning rates and origins", *_disclosure_tables(folder)]
    write_page(folder, sections, DISCLOSURE_PAGE)


def _findings(folder: Path, losses: Losses) -> list[str]:
    """Return the figure of the primary models and what it shows; empty while none is finished."""
    models = at_train_length(losses, CORPUS, MODELS.train_length)
    if not models:
        return []
    draw_method_lengths(models, LENGTHS, MODELS.train_length, folder / FIGURE)
    figure = f"![{lengths_alt(models, LENGTHS)}]({FIGURE})"
    return [figure, "\n".join(findings_of_small_models(losses, MODELS, 100))]


# Primary models


def _models_not_trained(models: Iterable[FinishedModel]) -> list[str]:
    """Return a list of the protocol's models without all seeds; empty if all have all seeds."""
    seeds = Counter((model.method, model.train_length) for model in models)
    lines = []
    for method, train_length in PROTOCOL_MODELS:
        count = seeds[method, train_length]
        if count < SEEDS:
            name = method_name(method)
            lines.append(f"- {name}, L = {train_length} ({count} of {SEEDS} seeds)")
    if not lines:
        return []
    return [NOT_TRAINED, "\n".join(lines)]


def _paper_on_e6() -> list[str]:
    """Return what the paper's own models say about E6, if they contradict it."""
    pair = table5_pair(MODELS.train_length, 4 * MODELS.train_length)
    assert pair is not None, "Table 5 has these lengths"
    if pair.e6 < 0:
        return []
    return [wrap(E6_IN_PAPER.format(short=pair.short, long=pair.long, e6=percent(pair.e6)))]


def _known_before(primary: Losses, secondary: Losses) -> list[str]:
    """Return the table of the tests' conditions with the secondary and the primary models."""
    rows = []
    confirmed = []
    reversed_outcomes = []
    for before, after in zip(run_tests(secondary, MODELS), run_tests(primary, MODELS)):
        locations = {location_cell(before, known) for known in before.conditions}
        if locations == {"inside"} and after.outcome == SUPPORTED:
            confirmed.append(after.name)
        if locations == {"inside"} and after.outcome == NOT_SUPPORTED:
            reversed_outcomes.append(after.name)
        for known, condition in zip(before.conditions, after.conditions):
            row = [after.name, condition.description, location_cell(before, known)]
            for estimate in (known.estimate, condition.estimate):
                row += estimate_cells(estimate)[:2]
            rows.append(row)
    headers = ["", "condition", "location, 3.1M tokens", "3.1M tokens", "95% interval"]
    headers += ["24.0M tokens", "95% interval"]
    findings = ""
    if confirmed:
        findings = (
            f"{' and '.join(confirmed)} confirm with eight times the tokens what was known, so "
            "these outcomes are no blind predictions."
        )
    if reversed_outcomes:
        findings += (
            f" {' and '.join(reversed_outcomes)} came out the other way: the known changes were "
            "inside the ranges, and those of the primary models are not."
        )
    text = wrap(KNOWN_BEFORE.format(findings=findings.strip()))
    return ["## What was known before", text, markdown.table(headers, rows, left=2)]


def _undertrained(losses: Losses) -> list[str]:
    """Return how far sinusoidal embeddings are from ALiBi at L, in the paper and here."""
    sinusoidal = losses.get(MODELS.key("sinusoidal"))
    alibi = losses.get(MODELS.key("alibi"))
    if sinusoidal is None or alibi is None:
        return []
    length = MODELS.train_length
    paper = math.log(perplexity("sinusoidal", length, length) / perplexity("alibi", length, length))
    ours = sinusoidal.nats.mean() - alibi.nats.mean()
    sentence = UNDERTRAINED.format(
        length=length, paper=percent(paper), ours=percent(ours), tokens="24.0M"
    )
    return [sentence]


def _test_text(folder: Path) -> list[str]:
    """Return which tokens of which articles the primary models are tested on."""
    models = finished_models(folder / PRIMARY)
    if not models:
        return []
    result = load(models[0].folder / EVALUATION_FILE).results[0]
    assert isinstance(result.values, TextValues), "a study evaluates its models on text"
    assert result.case.score_to is not None, "a study scores a range of each article"
    sentence = TEST_TEXT.format(
        tokens=result.values.tokens,
        begin=result.case.score_from,
        end=result.case.score_to - 1,
        articles=len(result.values.document_bits),
        digest=result.case.text,
    )
    return ["## Test text", sentence]


def _estimates_beyond_the_tests(folder: Path, losses: Losses) -> list[str]:
    """Return changes of the primary models that no test compares, and what they show.

    Args:
        folder: results of the primary models.
        losses: their losses.
    """
    rows = []
    for method, first, second in (("t5", 16, 4), ("t5", 16, 8), ("t5", 4, 1)):
        keys = MODELS.key(method, first), MODELS.key(method, second)
        if all(key in losses for key in keys):
            estimate = estimate_change(*(losses[key] for key in keys))
            multiple = "L" if second == 1 else f"{second} L"
            description = f"{method_name(method)} at {first} L vs. {multiple}"
            rows.append([description, *estimate_cells(estimate)])
    if not rows:
        return []
    table = markdown.table(["", "change", "95% interval", "seeds"], rows)
    sections = ["### Estimates beyond the tests", table, *t5_context_section(folder, MODELS)]
    keys = MODELS.key("rotary", 16), MODELS.key("sinusoidal", 16)
    if all(key in losses for key in keys):
        change, interval, _ = estimate_cells(estimate_change(*(losses[key] for key in keys)))
        paper = min(published.rows("table02"), key=lambda row: abs(row["length"] - 16 * 512))
        sentence = ROTARY_ORDER.format(
            change=change,
            interval=interval,
            length=512,
            longer=paper["length"],
            rotary=markdown.perplexity(paper["rotary_perplexity"]),
            sinusoidal=markdown.perplexity(paper["sinusoidal_perplexity"]),
        )
        sections.append(sentence)
    return sections


def _rate_check(folder: Path) -> list[str]:
    """Return what the second trials of sinusoidal embeddings say about the other rates."""
    name = f"{CORPUS}/sinusoidal-{MODELS.train_length}"
    first = load_tuning(folder / "sinusoidal-3M").get(name)
    second = load_tuning(folder / "sinusoidal-12M").get(name)
    if first is None or second is None or first["lr"] == second["lr"]:
        return []
    bits = {trial["lr"]: trial["loss_bits"] for trial in second["trials"]}
    change = (bits[first["lr"]] - bits[second["lr"]]) * math.log(2)
    methods = []
    for path, outcome in load_tuning(folder / PRIMARY).items():
        method = path.split("/")[1].rsplit("-", 1)[0]
        if outcome["lr"] == first["lr"] and method != "sinusoidal":
            methods.append(method_name(method))
    sentence = RATE_CHECK.format(
        rate=first["lr"],
        change=percent(change),
        best=second["lr"],
        methods=" and ".join(methods),
    )
    return [sentence] if methods else []


def _primary_sections(folder: Path, losses: Losses) -> list[str]:
    models = at_train_length(losses, CORPUS, MODELS.train_length)
    sections = ["## Primary models"]
    if not models:
        return [*sections, "None is finished yet."]
    sections.append(perplexity_table(models, LENGTHS))
    curves = load_curves(folder / PRIMARY)
    sections += ranking_sections(folder, curves, CORPUS, MODELS.train_length)
    sections += _estimates_beyond_the_tests(folder / PRIMARY, losses)
    return sections


# Estimates of the secondary models


def _changes_section(folder: Path, losses: Losses) -> list[str]:
    """Return the figure of each method's change from L to 16 L, and draw it."""
    changes = length_changes(losses, MODELS, CHANGES_MULTIPLE)
    if not changes:
        return []
    length = MODELS.train_length
    longer = CHANGES_MULTIPLE * length
    title = f"Perplexity at {longer:,} tokens compared with {length}, the training length"
    draw_length_changes(changes, title, folder / CHANGES_FIGURE)
    return [f"![{changes_alt(changes)}]({CHANGES_FIGURE})"]


def _group_section(group: Group, losses: Losses) -> list[str]:
    rows = []
    for description, first, second in group.pairs:
        if first not in losses or second not in losses:
            continue
        estimate = estimate_change(losses[first], losses[second])
        if estimate is None:
            continue
        row = [description, *estimate_cells(estimate)]
        if group.paper:
            row.append(_paper_change(first, second))
        rows.append(row)
    if not rows:
        return []
    headers = ["", "change", "95% interval", "seeds"]
    if group.paper:
        headers.append("paper (Table 5)")
    table = markdown.table(headers, rows)
    if len(rows) > LARGEST_OPEN_TABLE:
        table = DETAILS.format(summary=f"Table of {len(rows)} changes", table=table.rstrip())
    return [f"### {group.title}", group.reason, table]


def _paper_change(first: EvaluationKey, second: EvaluationKey) -> str:
    """Return the same change in the paper's Table 5; a dash if the table does not have it."""
    try:
        of_first = perplexity(first.method, first.train_length, first.length)
        of_second = perplexity(second.method, second.train_length, second.length)
    except KeyError:
        return markdown.NOTHING
    return percent(math.log(of_first / of_second))


def _claim_section(losses: Losses) -> list[str]:
    """Return cost, lead, and E6 of the secondary models, next to the paper's."""
    rows = []
    for short, long in CLAIM_LENGTHS:
        keys = ClaimKeys(
            alibi_short=key("alibi", short, long),
            alibi_long=key("alibi", long, long),
            sinusoidal_long=key("sinusoidal", long, long),
        )
        effects = estimate_cost_and_lead(claim_models(losses, keys))
        if effects is None:
            continue
        rows.append(([f"{short} and {long}", "3.1M tokens"], effects))
        pair = table5_pair(short, long)
        if pair is not None:
            rows.append(([f"{short} and {long}", "paper (Table 5)"], pair))
    if not rows:
        return []
    table = cost_and_lead_table(["trained short and long", "models"], rows)
    return ["### Trained short and trained long", CLAIM, HELP, table]


def _secondary_perplexities(losses: Losses) -> list[str]:
    sections = ["### Perplexity"]
    for train_length in (128, 256, 512):
        models = at_train_length(losses, CORPUS, train_length)
        if models:
            sections += [f"L = {train_length}:", perplexity_table(models, LENGTHS)]
    return sections


# Disclosure


def _disclosure_tables(folder: Path) -> list[str]:
    sections = []
    for part, description in TRIALS.items():
        tuning = load_tuning(folder / part)
        if tuning:
            sections += [f"Learning-rate trials of {description}:", trials_table(tuning)]
            sections += trials_without_origin(tuning)
    sections += _rate_check(folder)
    for part in (PRIMARY, SECONDARY):
        provenance = load_provenance(folder / part)
        if provenance:
            sections += [f"Origin of the {part} models:", origins_table(provenance)]
            if part == PRIMARY:
                sections.append(PROCESSORS)
            sections += _uncommitted_changes(part, provenance)
    return sections


def trials_without_origin(tuning: Mapping[str, dict]) -> list[str]:
    """Return a sentence about the trials without provenance; empty if all have it."""
    recorded = []
    for name, outcome in tuning.items():
        if any(trial.get("provenance") for trial in outcome["trials"]):
            recorded.append(f"`{name}`")
    if len(recorded) == len(tuning):
        return []
    if not recorded:
        return ["The results files do not record the commit or the processor of these trials."]
    trials = ", ".join(recorded)
    return [
        f"The results files record the commit and the processor only for the trials of {trials}."
    ]


def _uncommitted_changes(part: str, origins: Mapping[str, TrainingOrigin]) -> list[str]:
    """Return a sentence about the models from a working tree with changes; empty without any."""
    names = [name for name, origin in origins.items() if not origin.provenance.git_clean]
    if not names:
        return []
    return [
        f"{len(names)} of {len(origins)} {part} models were trained from a working tree with "
        f"uncommitted changes: {seeds_by_model(names)}."
    ]
