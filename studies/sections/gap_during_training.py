"""Whether sinusoidal embeddings catch up with ALiBi during training, both trained at 4 L."""

from __future__ import annotations

from collections.abc import Iterable

from alibi_fairseq.reporting import markdown

from ..analysis.compared_models import ComparedModels
from ..analysis.study_results import StudyResults
from ..analysis.validation_gaps import validation_gaps
from .changes import percent_cell
from .templates import section
from .wording import millions, percentage


def gap_during_training_section(study: StudyResults, models: ComparedModels) -> str:
    """Return a table of how far the models trained at 4 L are behind ALiBi during training.

    The rows are the validations nearest to tenths of the training. It is empty without ALiBi and
    sinusoidal embeddings trained at 4 L.
    """
    tokens, gaps = validation_gaps(study, models.corpus, 4 * models.train_length)
    sinusoidal = gaps.get("sinusoidal", {})
    none = gaps.get("none", {})
    rows = []
    for updates in _tenths(tokens):
        if updates in sinusoidal:
            gain = none.get(updates, 0.0)
            share = markdown.NOTHING
            if gain > 0:
                share = percentage(1 - sinusoidal[updates] / gain)
            cells = [percent_cell(sinusoidal[updates]), percent_cell(none.get(updates))]
            rows.append([f"{updates:,}", millions(tokens[updates]), *cells, share])
    headers = ["updates", "tokens", "sinusoidal vs. ALiBi", "no positions vs. ALiBi", "share"]
    if not rows:
        return ""
    table = markdown.table(headers, rows, left=0)
    return section("gap_during_training", long=f"{4 * models.train_length:,}", gaps=table)


def _tenths(validated: Iterable[int]) -> list[int]:
    """Return the numbers of updates nearest to tenths of the last one, in order."""
    validated = sorted(validated)
    nearest = set()
    for tenth in range(1, 11) if validated else ():
        target = tenth * validated[-1] / 10
        nearest.add(min(validated, key=lambda updates: abs(updates - target)))
    return sorted(nearest)
