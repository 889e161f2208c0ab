"""Results files gathered for a report: which cells may stand beside the paper's, and which not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from alibi_fairseq.errors import BadInput
from alibi_fairseq.paper import published as paper
from alibi_fairseq.results.points import Point, document_points, text_names
from alibi_fairseq.results.schema import load_document

# Two files may hold the same cell, measured twice: perplexities then agree to this share.
_SAME_CELL = 1e-3
_UNMEASURED: dict[str, Any] = {
    **dict.fromkeys(("perplexity", "bits_per_byte", "peak_memory_mb")),
    **dict.fromkeys(("tokens_per_second", "tokens_per_second_batch_1")),
    "loss_bits": 0.0,
}

Group = tuple[str, str | None]  # corpus and model


@dataclass
class Results:
    """The documents of a report by what is made of them.

    ``measured`` holds every perplexity by corpus and model; ``comparable`` those measured in the
    paper's setting by corpus; ``reasons`` why those on a corpus of the paper are not;
    ``other_text`` why those on a corpus of the paper are in other units than its own; ``title`` is
    the user's.
    """

    title: str | None = None

    documents: list[tuple[Path, dict]] = field(default_factory=list)
    measured: dict[Group, list[Point]] = field(default_factory=dict)
    comparable: dict[str, list[Point]] = field(default_factory=dict)
    reasons: dict[Group, list[str]] = field(default_factory=dict)
    other_text: dict[str, str] = field(default_factory=dict)

    def of_kind(self, kind: str) -> list[dict]:
        """The documents of one kind."""
        return [document for _, document in self.documents if document["kind"] == kind]

    def by_text(self, corpus: str) -> Iterator[tuple[str, Results]]:
        """The results on each text that bears the name of a corpus of the paper.

        With what tells it apart from the others: empty if it is the only one.
        """
        group = (corpus, paper.model(corpus))
        ours, measured = self.comparable.get(corpus, []), self.measured.get(group, [])
        names = text_names(point.text for point in (*ours, *measured))
        for name in sorted({*names.values()} - {""}) or [""]:
            of_text, all_of_text = (
                [point for point in points if names[point.text] in ("", name)]
                for points in (ours, measured)
            )
            yield (
                name,
                replace(
                    self,
                    comparable=self.comparable | {corpus: of_text},
                    measured=self.measured | {group: all_of_text},
                ),
            )

    def comparable_training(self, corpus: str) -> list[dict]:
        """Validation losses of training runs in the paper's setting, whatever their updates."""
        model = paper.model(corpus)
        return [
            cell
            for document in self.of_kind("training")
            for cell in document["cells"]
            if document["corpus"] == corpus
            and cell.get("model") == model
            and cell["subset"] == "valid"
        ]


def collect(
    paths: Iterable[Path], labels: Mapping[Path, str] | None = None, title: str | None = None
) -> Results:
    """Read results files, and all ``*.json`` files of folders.

    Args:
        labels: names for the models of some of the files or folders.
        title: of the page and its figures.

    Raises:
        BadInput: a path does not exist, a file breaks the schema or holds part of a sharded
            evaluation, or two files contradict each other.
    """
    results = Results(title=title)
    found: dict[tuple, tuple[Path, Point]] = {}
    label_of = {file: label for path, label in (labels or {}).items() for file in _files([path])}
    files = _files(paths)
    if strangers := [str(path) for path in label_of if path not in files]:
        raise BadInput(f"--label: {strangers[0]} is not one of the results.")
    for path in files:
        document = load_document(path)
        _check_whole(path, document)
        for cell in document["cells"] if path in label_of else ():
            cell["label"] = label_of[path]
        results.documents.append((path, document))
    evaluations = [pair for pair in results.documents if pair[1]["kind"] == "evaluation"]
    points = iter(document_points(*(document for _, document in evaluations)))
    for path, document in evaluations:
        corpus = document["corpus"]
        why = paper.why_other_text(corpus, document["provenance"].get("text"))
        if why is not None:
            results.other_text[corpus] = why
        for point in islice(points, len(document["cells"])):
            _add(results, found, path, corpus, replace(point, same_text=why is None))
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
        if path.is_dir():
            inside = sorted(path.rglob("*.json"))
            if not inside:
                raise BadInput(f"{path}: no results (*.json) in this folder.")
            files += inside
        else:
            files.append(path)
    return list(dict.fromkeys(file.resolve() for file in files))


def _add(results: Results, found: dict, path: Path, corpus: str, point: Point) -> None:
    case = replace(point, **_UNMEASURED)
    if case in found:
        other_path, other = found[case]
        if point.perplexity and abs(other.perplexity / point.perplexity - 1) > _SAME_CELL:
            raise BadInput(
                f"{path} and {other_path} hold different perplexities ({point.perplexity:.4f} and "
                f"{other.perplexity:.4f}) for one cell: {point.position_method}, trained at "
                f"{point.train_length}, evaluated at {point.length}, {point.inference}, "
                f"{point.subset}; leave one file out."
            )
        return
    found[case] = (path, point)
    group = (corpus, point.model)
    results.measured.setdefault(group, []).append(point)
    why = paper.why_not_comparable(corpus, point)
    if why is None:
        results.comparable.setdefault(corpus, []).append(point)
    elif corpus in paper.corpora():
        reasons = results.reasons.setdefault(group, [])
        if why not in reasons:
            reasons.append(why)
