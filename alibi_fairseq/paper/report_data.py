"""Results files loaded for a report, with the measurements that are comparable with the paper's."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.paper import published
from alibi_fairseq.results.measurements import Measurement, measurements_of, text_names
from alibi_fairseq.results.results_file import load_results_file

# Largest relative difference between two perplexities of one measurement in two files.
_PERPLEXITY_TOLERANCE = 1e-3

# Fraction of the paper's updates from which a model counts as trained in the paper's setting. The
# best checkpoint is seldom the last one.
_MIN_UPDATES_FRACTION = 0.85

# Name and relative tolerance of each text size. The paper rounds them: "29K", "about 700M tokens",
# "2.9 GB" (10^9 or 2^30 bytes).
_SIZES = {
    "vocabulary": ("entries in the vocabulary", 0.05),
    "train_tokens": ("tokens", 0.05),
    "train_bytes": ("bytes of text", 0.1),
}

# Options that do not change the model.
_HARMLESS_OVERRIDES = {"attention_backend"}

# Result keys of Table 1, by the name of the quantity in :data:`Cases`.
_SPEED_KEYS = {
    "train": "tokens_per_second",
    "evaluate": "evaluation_tokens_per_second",
    "memory": "peak_memory_mb",
}

#: By position method and length: tokens per second of ``train`` and ``evaluate``, MB of ``memory``.
Cases = Mapping[tuple[str, int], dict[str, float]]


@dataclass
class ReportData:
    """Contents of a report.

    Attributes:
        documents: each results file with its path.
        points: every measurement of perplexity once.
    """

    documents: list[tuple[Path, dict]] = field(default_factory=list)
    points: list[Measurement] = field(default_factory=list)

    def comparable(self, corpus: str) -> list[Measurement]:
        """Return the measurements on a corpus in the paper's setting."""
        return [point for point in self.points if point.corpus == corpus and not point.unlike_paper]

    def by_text(self, corpus: str) -> Iterator[tuple[str, ReportData]]:
        """Yield the name of each text of a corpus and the results on it.

        The name distinguishes the texts. It is empty if there is only one.
        """
        model = published.model(corpus)
        texts = [
            point.text for point in self.points if point.corpus == corpus and point.model == model
        ]
        names = text_names(texts)
        distinct_names = sorted(set(names.values()) - {""})
        for name in distinct_names or [""]:
            other_texts = {text for text, its_name in names.items() if its_name not in ("", name)}
            points = [point for point in self.points if point.text not in other_texts]
            yield name, replace(self, points=points)

    def trainings(self, corpus: str) -> list[dict]:
        """Return the validations of runs in the paper's setting, in order of their updates."""
        validations = []
        for _, document in self.documents:
            if document["kind"] != "training" or document["corpus"] != corpus:
                continue
            for cell in document["cells"]:
                if cell["subset"] == "valid" and cell.get("model") == published.model(corpus):
                    validations.append(cell)
        return sorted(validations, key=lambda cell: cell["updates"])

    def speeds(self) -> dict[str, Cases]:
        """Return the results of ``benchmarks.methods`` by machine, precision, and model."""
        groups: dict[str, dict] = defaultdict(dict)
        for _, document in self.documents:
            machine = machine_of(document["provenance"])
            for cell in document["cells"]:
                measured = {name: cell.get(key) for name, key in _SPEED_KEYS.items()}
                if None not in measured.values():
                    case = (cell.get("position_method"), cell.get("length"))
                    groups[f"{machine}, {cell.get('model')}"][case] = measured
        return dict(sorted(groups.items()))


def machine_of(provenance: dict) -> str:
    """Describe the machine of a result: GPU, or processor and threads, and precision."""
    gpu = provenance["hardware"]["gpu"]
    threads = provenance["threads"]
    parts = [gpu or provenance["hardware"]["cpu"] or "an unknown machine"]
    if gpu is None and threads:
        parts.append(f"{threads} threads" if threads > 1 else "1 thread")
    if provenance["precision"]:
        parts.append(provenance["precision"])
    return ", ".join(parts)


def collect(paths: Iterable[Path]) -> ReportData:
    """Load results files, and all ``*.json`` files of folders.

    Raises:
        UserInputError: A path does not exist, a file violates the schema, or two files contradict
            each other.
    """
    results = ReportData()
    first: dict[Measurement, tuple[Path, Measurement]] = {}
    for path in _files(paths):
        document = load_results_file(path)
        results.documents.append((path, document))
        if document["kind"] != "evaluation":
            continue
        for point in _annotated_measurements(document):
            if point not in first:
                first[point] = (path, point)
                results.points.append(point)
                continue
            other_path, other = first[point]
            if not _agree(point, other):
                raise UserInputError(
                    f"{path} and {other_path} contain different perplexities "
                    f"({point.perplexity:.4f} and {other.perplexity:.4f}) of one measurement: "
                    f"{point.position_method}, trained at {point.train_length}, evaluated at "
                    f"{point.length}, {point.inference}, {point.subset}. Leave one file out."
                )
    return results


def _annotated_measurements(document: dict) -> Iterator[Measurement]:
    """Yield the measurements of a results file with the reasons against a comparison."""
    corpus = document["corpus"]
    other_text = why_other_text(corpus, document["provenance"].get("text")) or ""
    for point in measurements_of(document):
        unlike_paper = why_not_comparable(corpus, point) or ""
        yield replace(point, other_text=other_text, unlike_paper=unlike_paper)


def _agree(point: Measurement, other: Measurement) -> bool:
    """Return True if two perplexities of one measurement are equal within the tolerance."""
    ratio = (other.perplexity or 1) / (point.perplexity or 1)
    return abs(ratio - 1) <= _PERPLEXITY_TOLERANCE


def _files(paths: Iterable[Path]) -> list[Path]:
    """Return the results files of paths, each once."""
    files: list[Path] = []
    for path in paths:
        results_files = sorted(path.rglob("*.json")) if path.is_dir() else [path]
        if not results_files:
            raise UserInputError(f"{path} contains no results files (*.json). Pass another folder.")
        files += results_files
    return list(dict.fromkeys(file.resolve() for file in files))


def why_other_text(corpus: str, text: dict | None) -> str | None:
    """Return why perplexities on a text are in other units than the paper's, or None.

    Args:
        corpus: corpus of the results.
        text: tokenizer and sizes (``provenance.text``).
    """
    setting = published.settings(corpus)
    if setting is None or setting["vocabulary"] is None:
        return None
    if text is None:
        return "the results do not record the tokenizer of the text"
    if text["tokenizer"] != setting["tokenizer"]:
        return f"the tokenizer is {text['tokenizer']}, the paper's {setting['tokenizer']}"
    for key, (name, tolerance) in _SIZES.items():
        size = text.get(key)
        if size is None:
            return f"the results do not record the number of {name}"
        if abs(size - setting[key]) > tolerance * setting[key]:
            return f"{size:,} {name}, about {setting[key]:,} in the paper"
    return None


def why_not_comparable(corpus: str, point: Measurement) -> str | None:
    """Return why a measurement is not comparable with the paper's, or None."""
    setting = published.settings(corpus)
    if setting is None:
        return f"{corpus} is not a corpus of the paper"
    if point.model != setting["model"]:
        return f"the paper's model on {corpus} is {setting['model']}"
    overrides = json.loads(point.model_overrides or "{}")
    if set(overrides) - _HARMLESS_OVERRIDES:
        return "options of the model were changed for the evaluation"
    if point.score_from is not None or point.score_to is not None:
        return "only a part of the tokens was scored"
    if setting["updates"] is None:
        return None
    if point.updates is None:
        return "the number of updates is not recorded"
    if point.updates < _MIN_UPDATES_FRACTION * setting["updates"]:
        return f"the paper trains for {setting['updates']:,} updates"
    return None
