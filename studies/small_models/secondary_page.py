"""The page of the secondary models: ``results/small_models/secondary.md``."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

from alibi_fairseq.reporting import markdown

from ..analysis.by_length import MethodChange, length_changes, method_losses
from ..analysis.compared_models import ComparedLosses, ComparedModels
from ..analysis.cost_and_lead import estimate_cost_and_lead, table5_pair
from ..analysis.estimates import estimate_change, percent
from ..analysis.losses import Losses
from ..analysis.paper_changes import table5_change
from ..analysis.study_results import StudyResults
from ..sections.changes import change_cells, changes_table, percent_cell, seeds_cell
from ..sections.cost_and_lead import EffectsRow, cost_and_lead_table, effect_cell
from ..sections.perplexity_by_length import perplexity_table
from ..sections.templates import join_parts, section, write_page
from ..sections.training import divergence_sentence
from ..sections.wording import join_words, method_in_words, method_label
from .models import CHANGES_MULTIPLE, CORPUS, LENGTHS

TEMPLATE = Path(__file__).with_name("secondary.md")
#: The models of the pages, whose evaluations are named in tokens.
IN_TOKENS = ComparedModels(CORPUS, train_length=1)
#: Changes of the secondary models, in tokens: name and evaluations. A group is a table, whose slot
#: on the page has its name.
CHANGES = Path(__file__).with_name("secondary_changes.csv")
#: Groups of changes of which the paper's Table 5 has some.
GROUPS_IN_PAPER = ("at_train_length", "longer_training")
#: Short and long training lengths at which the title's claim is compared.
CLAIM_LENGTHS = ((128, 256), (128, 512), (256, 512))
#: Training lengths of the secondary models, and the multiples at which they are compared with L.
TRAIN_LENGTHS = (128, 256, 512)
MULTIPLES = (2, 4, 16)


def write_secondary_page(folder: Path, study: StudyResults, losses: ComparedLosses) -> None:
    """Write the estimates of the secondary models.

    Args:
        folder: folder of the page.
        study: results of the secondary models.
        losses: their losses.
    """
    claim = _claim_table(losses.by_key)
    groups = _group_tables(losses.by_key)
    write_page(
        folder,
        TEMPLATE,
        TEMPLATE.name,
        **_directions(losses),
        diverged_secondary=divergence_sentence(study.diverged),
        cost_and_lead=section("cost_and_lead"),
        claim=claim,
        undertrained=any((claim, *(groups[name] for name in GROUPS_IN_PAPER))),
        beyond=_beyond_table(losses.by_key),
        **groups,
        secondary_perplexity=_secondary_perplexities(losses.by_key),
    )


def _directions(losses: ComparedLosses) -> dict[str, object]:
    """Return for how many methods perplexity falls or rises from L to 16 L, and for which most.

    ``level`` names the methods for which it does neither clearly.
    """
    changes = length_changes(losses.by_key, losses.models, CHANGES_MULTIPLE)
    falling = [change for change in changes if change.estimate.interval()[1] < 0]
    rising = [change for change in changes if change.estimate.interval()[0] > 0]
    level = [change for change in changes if change not in (*falling, *rising)]
    return {
        "variants": len(changes),
        "falling": len(falling),
        "best": _with_change(falling[0]) if falling else "",
        "rising": len(rising),
        "worst": _with_change(rising[-1]) if rising else "",
        "level": join_words([method_in_words(change.method) for change in level]),
    }


def _with_change(change: MethodChange) -> str:
    """Return a method with its change, such as ``ALiBi with cap 50 (-3.1%)``."""
    name = method_in_words(change.method)
    value = percent(change.estimate.value)
    # An abbreviation is in parentheses already: "rotary embeddings (RoPE; +90.7%)".
    return f"{name[:-1]}; {value})" if name.endswith(")") else f"{name} ({value})"


def _beyond_table(losses: Losses) -> str:
    """Write the change of each model beyond its training length; empty without any."""
    rows = []
    for train_length in TRAIN_LENGTHS:
        for method, by_length in method_losses(losses, CORPUS, train_length).items():
            row = [method_label(method), str(train_length)]
            for multiple in MULTIPLES:
                change = None
                if train_length in by_length and multiple * train_length in by_length:
                    longer = by_length[multiple * train_length]
                    change = estimate_change(longer, by_length[train_length])
                row.append(effect_cell(change))
            rows.append(row)
    headers = ["", "L", *(f"{multiple} L vs. L" for multiple in MULTIPLES)]
    return markdown.table(headers, rows) if rows else ""


def _group_tables(losses: Losses) -> dict[str, str]:
    """Return the table of each group of changes."""
    in_tokens = ComparedLosses(IN_TOKENS, losses)
    rows: dict[str, list[list[str]]] = defaultdict(list)
    with CHANGES.open(encoding="utf-8", newline="") as stream:
        for declared in csv.DictReader(stream, strict=True):
            of_group = rows[declared["group"]]
            estimate = in_tokens.change(declared["first"], declared["second"])
            if estimate is None:
                continue
            row = [declared["name"], *change_cells(estimate), seeds_cell(estimate)]
            if declared["group"] in GROUPS_IN_PAPER:
                keys = (IN_TOKENS.key(declared[side]) for side in ("first", "second"))
                row.append(percent_cell(table5_change(*keys)))
            of_group.append(row)
    slots = {}
    for group, of_group in rows.items():
        paper = ["paper (Table 5)"] if group in GROUPS_IN_PAPER else []
        slots[group] = changes_table(of_group, *paper)
    return slots


def _claim_table(losses: Losses) -> str:
    """Write the cost and lead of the secondary models next to the paper's; empty without any."""
    rows = []
    for short, long in CLAIM_LENGTHS:
        effects = estimate_cost_and_lead(ComparedLosses(IN_TOKENS, losses), short, long)
        if effects is None:
            continue
        lengths = f"{short} and {long}"
        rows.append(EffectsRow([lengths, "3.1M tokens"], effects))
        pair = table5_pair(short, long)
        if pair is not None:
            rows.append(EffectsRow([lengths, "paper (Table 5)"], pair))
    return cost_and_lead_table(["trained short and long", "models"], rows)


def _secondary_perplexities(losses: Losses) -> str:
    """Return a table of perplexities for each training length."""
    parts = []
    for train_length in TRAIN_LENGTHS:
        models = method_losses(losses, CORPUS, train_length)
        if models:
            parts += [f"L = {train_length}:", perplexity_table(models, LENGTHS)]
    return join_parts(*parts)
