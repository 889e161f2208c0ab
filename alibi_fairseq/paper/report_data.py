"""Results files gathered for a report: which cells may stand beside the paper's, and which not."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.paper import published as paper
from alibi_fairseq.results.measurements import Measurement, measurements_of, text_names
from alibi_fairseq.results.schema import load_results_file

# Two files may hold the same cell, measured twice: perplexities then agree to this share.
_SAME_CELL = 1e-3

# A run counts as the paper's setting from this share of its updates on: the best checkpoint is
# seldom the last one.
_LEAST_SHARE_OF_UPDATES = 0.85

# The paper rounds the sizes of its texts: "29K", "about 700M tokens", "2.9 GB" (10^9 or 2^30 bytes).
_SIZES = {
    "vocabulary": ("entries in the vocabulary", 0.05),
    "train_tokens": ("tokens", 0.05),
    "train_bytes": ("bytes of text", 0.1),
}

# Options whose change leaves the model the same.
_HARMLESS_OVERRIDES = {"attention_backend"}

#: By position method and length: tokens per second of ``train`` and ``evaluate``, MB of ``memory``.
Cases = Mapping[tuple[str, int], dict[str, float]]


@dataclass
class ReportData:
    """What a report is made of: documents, and every measured perplexity once."""

    documents: list[tuple[Path, dict]] = field(default_factory=list)
    points: list[Measurement] = field(default_factory=list)

    def comparable(self, corpus: str) -> list[Measurement]:
        """The perplexities measured in the paper's setting."""
        return [point for point in self.points if point.corpus == corpus and not point.unlike_paper]

    def by_text(self, corpus: str) -> Iterator[tuple[str, ReportData]]:
        """The results on each text of that name, with what tells it apart: empty for the only one."""
        model = paper.model(corpus)
        own = [point for point in self.points if (point.corpus, point.model) == (corpus, model)]
        names = text_names(point.text for point in own)
        for name in sorted({*names.values()} - {""}) or [""]:
            others = {text for text, known in names.items() if known not in ("", name)}
            kept = [point for point in self.points if point.text not in others]
            yield name, replace(self, points=kept)

    def trainings(self, corpus: str) -> list[dict]:
        """Validations of runs in the paper's setting, in order of their updates."""
        cells = [
            cell
            for _, document in self.documents
            for cell in document["cells"]
            if (document["kind"], document["corpus"]) == ("training", corpus)
            and (cell["subset"], cell.get("model")) == ("valid", paper.model(corpus))
        ]
        return sorted(cells, key=lambda cell: cell["updates"])

    def speeds(self) -> dict[str, Cases]:
        """Table 1 as ``python -m benchmarks.methods`` measures it, by machine, precision and model."""
        keys = (
            *("position_method", "length", "model"),
            *("tokens_per_second", "evaluation_tokens_per_second", "peak_memory_mb"),
        )
        groups: dict[str, dict] = defaultdict(dict)
        for _, document in self.documents:
            machine = machine_of(document["provenance"])
            for cell in document["cells"]:
                method, length, model, *measured = map(cell.get, keys)
                if None not in measured:
                    found = dict(zip(("train", "evaluate", "memory"), measured))
                    groups[f"{machine}, {model}"][method, length] = found
        return dict(sorted(groups.items()))


def machine_of(provenance: dict) -> str:
    """Where and how it was measured, in words: processor and threads or GPU, precision."""
    hardware = provenance["hardware"]
    parts = [hardware["gpu"] or hardware["cpu"] or "an unknown machine"]
    if hardware["gpu"] is None and (threads := provenance["threads"]):
        parts.append(f"{threads} threads" if threads > 1 else "1 thread")
    return ", ".join([*parts, *filter(None, [provenance["precision"]])])


def collect(paths: Iterable[Path]) -> ReportData:
    """Read results files, and all ``*.json`` files of folders.

    Raises:
        UserInputError: a path does not exist, a file breaks the schema, or two contradict each other.
    """
    results = ReportData()
    found: dict[Measurement, tuple[Path, Measurement]] = {}
    for path in _files(paths):
        document = load_results_file(path)
        results.documents.append((path, document))
        if document["kind"] != "evaluation":
            continue
        corpus = document["corpus"]
        other_text = why_other_text(corpus, document["provenance"].get("text")) or ""
        for point in measurements_of(document):
            unlike = why_not_comparable(corpus, point) or ""
            point = replace(point, other_text=other_text, unlike_paper=unlike)
            other_path, other = found.setdefault(point, (path, point))
            if other is point:
                results.points.append(point)
            elif abs((other.perplexity or 1) / (point.perplexity or 1) - 1) > _SAME_CELL:
                raise UserInputError(
                    f"{path} and {other_path} hold different perplexities ({point.perplexity:.4f} and "
                    f"{other.perplexity:.4f}) for one cell: {point.position_method}, trained at "
                    f"{point.train_length}, evaluated at {point.length}, {point.inference}, "
                    f"{point.subset}; leave one file out."
                )
    return results


def _files(paths: Iterable[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        inside = sorted(path.rglob("*.json")) if path.is_dir() else [path]
        if not inside:
            raise UserInputError(f"{path}: no results (*.json) in this folder.")
        files += inside
    return list(dict.fromkeys(file.resolve() for file in files))


def why_other_text(corpus: str, text: dict | None) -> str | None:
    """Why perplexities on a text (``provenance.text``) are in other units than the paper's, or None."""
    setting = paper.settings(corpus)
    if setting is None or setting["vocabulary"] is None:
        return None
    if text is None:
        return "the results do not say how the text was tokenised"
    if text["tokenizer"] != setting["tokenizer"]:
        return f"the tokeniser is {text['tokenizer']}, the paper's {setting['tokenizer']}"
    for key, (name, tolerance) in _SIZES.items():
        found = text.get(key)
        if found is None:
            return f"the results do not say how many {name} there are"
        if abs(found - setting[key]) > tolerance * setting[key]:
            return f"{found:,} {name} here, about {setting[key]:,} in the paper"
    return None


def why_not_comparable(corpus: str, point: Measurement) -> str | None:
    """Why a measured point must not stand beside the paper's numbers; None when it may."""
    setting = paper.settings(corpus)
    if setting is None:
        return f"{corpus} is not a corpus of the paper"
    if point.model != setting["model"]:
        return f"the paper's model on {corpus} is {setting['model']}"
    if set(json.loads(point.model_overrides or "{}")) - _HARMLESS_OVERRIDES:
        return "options of the model were changed for the evaluation"
    if point.score_from is not None or point.score_to is not None:
        return "only a part of the tokens was scored"
    if setting["updates"] is None:
        return None
    if point.updates is None:
        return "the number of updates is not recorded"
    if point.updates < _LEAST_SHARE_OF_UPDATES * setting["updates"]:
        return f"the paper trains for {setting['updates']:,} updates"
    return None
