"""Results files gathered for a report: which cells may stand beside the paper's, and which not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from alibi_fairseq.errors import BadInput
from alibi_fairseq.paper import published as paper
from alibi_fairseq.results.points import Point, document_points, text_names
from alibi_fairseq.results.schema import load_document

# Two files may hold the same cell, measured twice: perplexities then agree to this share.
_SAME_CELL = 1e-3
_MEASURED = (
    *("perplexity", "loss_bits", "bits_per_byte", "peak_memory_mb"),
    *("tokens_per_second", "tokens_per_second_batch_1"),
)

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


@dataclass
class Results:
    """What a report is made of: documents, every measured perplexity once, and the user's title."""

    title: str | None = None
    documents: list[tuple[Path, dict]] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)

    def of_kind(self, kind: str) -> list[dict]:
        """The documents of one kind."""
        return [document for _, document in self.documents if document["kind"] == kind]

    def comparable(self, corpus: str) -> list[Point]:
        """The perplexities measured in the paper's setting."""
        return [point for point in self.points if point.corpus == corpus and not point.unlike_paper]

    def by_text(self, corpus: str) -> Iterator[tuple[str, Results]]:
        """The results on each text of that name, with what tells it apart: empty for the only one."""
        model = paper.model(corpus)
        own = [point for point in self.points if (point.corpus, point.model) == (corpus, model)]
        names = text_names(point.text for point in own)
        for name in sorted({*names.values()} - {""}) or [""]:
            others = {text for text, known in names.items() if known not in ("", name)}
            kept = [point for point in self.points if point.text not in others]
            yield name, replace(self, points=kept)

    def comparable_training(self, corpus: str) -> list[dict]:
        """Validation losses of training runs in the paper's setting, whatever their updates."""
        return [
            cell
            for document in self.of_kind("training")
            for cell in document["cells"]
            if (document["corpus"], cell["subset"]) == (corpus, "valid")
            and cell.get("model") == paper.model(corpus)
        ]


def collect(
    paths: Iterable[Path], labels: Mapping[Path, str] | None = None, title: str | None = None
) -> Results:
    """Read results files, and all ``*.json`` files of folders.

    Args:
        labels: names for the models of some of the files or folders.

    Raises:
        BadInput: a path does not exist, a file breaks the schema or holds part of a sharded
            evaluation, or two files contradict each other.
    """
    results = Results(title=title)
    found: dict[Point, tuple[Path, Point]] = {}
    label_of = {file: label for path, label in (labels or {}).items() for file in _files([path])}
    files = _files(paths)
    if strangers := [str(path) for path in label_of if path not in files]:
        raise BadInput(f"--label: {strangers[0]} is not one of the results.")
    for path in files:
        document = load_document(path)
        _check_whole(path, document)
        results.documents.append((path, document))
        for cell in document["cells"] if path in label_of else ():
            cell["label"] = label_of[path]
        if document["kind"] != "evaluation":
            continue
        corpus = document["corpus"]
        other_text = why_other_text(corpus, document["provenance"].get("text")) or ""
        for point in document_points(document):
            unlike = why_not_comparable(corpus, point) or ""
            point = replace(point, other_text=other_text, unlike_paper=unlike)
            case = replace(point, **dict.fromkeys(_MEASURED))  # type: ignore[arg-type]
            other_path, other = found.setdefault(case, (path, point))
            if other is point:
                results.points.append(point)
            elif abs((other.perplexity or 1) / (point.perplexity or 1) - 1) > _SAME_CELL:
                raise BadInput(
                    f"{path} and {other_path} hold different perplexities ({point.perplexity:.4f} and "
                    f"{other.perplexity:.4f}) for one cell: {point.position_method}, trained at "
                    f"{point.train_length}, evaluated at {point.length}, {point.inference}, "
                    f"{point.subset}; leave one file out."
                )
    return results


def _check_whole(path: Path, document: dict) -> None:
    if document["kind"] not in ("evaluation", "position_loss"):
        return
    if not document["cells"]:  # a shard beyond the last window
        raise BadInput(f"{path}: holds no cells; if it is a shard, merge all of them first.")
    if sharded := [cell for cell in document["cells"] if "shard" in cell]:
        raise BadInput(
            f"{path}: holds shard {sharded[0]['shard']} of an evaluation; "
            "merge the shards first (alibi-fairseq merge-shards)."
        )


def _files(paths: Iterable[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        inside = sorted(path.rglob("*.json")) if path.is_dir() else [path]
        if not inside:
            raise BadInput(f"{path}: no results (*.json) in this folder.")
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


def why_not_comparable(corpus: str, point: Point) -> str | None:
    """Why a measured point must not stand beside the paper's numbers; None when it may."""
    setting = paper.settings(corpus)
    if setting is None:
        return f"{corpus} is not a corpus of the paper"
    if point.model != setting["model"]:
        return f"the paper's model on {corpus} is {setting['model']}"
    if set(json.loads(point.model_overrides or "{}")) - _HARMLESS_OVERRIDES:
        return "options of the model were changed for the evaluation"
    if setting["updates"] is None:
        return None
    if point.updates is None:
        return "the number of updates is not recorded"
    if point.updates < _LEAST_SHARE_OF_UPDATES * setting["updates"]:
        return f"the paper trains for {setting['updates']:,} updates"
    return None
