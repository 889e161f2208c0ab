"""Perplexities as points that tables and figures share, ours and the paper's alike."""

from __future__ import annotations

import math
import os
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace

METHOD_NAMES = {
    "alibi": "ALiBi",
    "sinusoidal": "Sinusoidal",
    "learned": "Learned",
    "rotary": "Rotary",
    "t5": "T5 bias",
    "transformer_xl": "Transformer-XL",
    "none": "No positions",
    "kerple": "KERPLE",
    "sandwich": "Sandwich",
    "xpos": "xPos",
    "fox": "FoX",
    "fire": "FIRE",
    "cope": "CoPE",
    "bam": "BAM",
    "alibi_trainable_slopes": "ALiBi, trainable slopes",
    "alibi_random_slopes": "ALiBi, random slopes",
    "alibi_given_slopes": "ALiBi, other slopes",
}


@dataclass(frozen=True)
class Point:
    """The perplexity of one model on one split at one length and stride.

    ``perplexity`` is None where the paper's run failed (``status`` says why). ``label`` is the user's. ``same_text`` is False
    where tokeniser or size of the text are not the paper's. ``seeds`` and ``spread`` (standard
    deviation) are set where several seeds were averaged.
    """

    position_method: str
    train_length: int
    length: int
    stride: int
    subset: str
    perplexity: float | None
    model: str | None = None
    updates: int | None = None
    checkpoint: str | None = None
    precision: str | None = None
    model_overrides: str | None = None
    label: str | None = None
    layers: int | None = None
    width: int | None = None
    parameters: int | None = None
    vocabulary: int | None = None
    seed: int | None = None
    tokens_per_second: float | None = None
    tokens_per_second_batch_1: float | None = None
    bits_per_byte: float | None = None
    same_text: bool = True
    status: str = ""
    seeds: int = 1
    spread: float | None = None

    @property
    def is_chance(self) -> bool:
        """Whether it is about as good as a guess; see :func:`is_chance`."""
        return self.perplexity is not None and is_chance(self.perplexity, self.vocabulary)

    @property
    def nonoverlapping(self) -> bool:
        return self.stride == self.length

    @property
    def inference(self) -> str:
        """How the text was cut: the two points at one length are told apart by it."""
        return "non-overlapping" if self.nonoverlapping else f"S={self.stride}"


def is_chance(perplexity: float, vocabulary: int | None) -> bool:
    """Whether the bits per token are within a tenth of those of guessing any of the dictionary's
    entries: the model is untrained, or has diverged. False where the dictionary is not known.
    """
    return vocabulary is not None and math.log(perplexity) > 0.9 * math.log(vocabulary)


def size_text(layers: int | None, width: int | None, parameters: int | None) -> str:
    """``3 layers of width 128, 0.7M parameters``; empty if nothing is known."""
    parts = []
    if layers is not None and width is not None:
        parts.append(f"{layers} {'layer' if layers == 1 else 'layers'} of width {width}")
    if parameters is not None:
        parts.append(f"{parameters / 1e6:,.3g}M parameters")
    return ", ".join(parts)


@dataclass(frozen=True)
class Series:
    """The points of one model: a row of a table or a line of a figure.

    ``train_length`` is None for a line through models of several training lengths. ``variant``
    is what sets a model apart from another one of its method and training length; ``printed``
    marks the paper's numbers. A ``title`` replaces the label that method and length make.
    """

    position_method: str
    train_length: int | None
    points: Sequence[Point]
    variant: str = ""
    printed: bool = False
    title: str = ""

    @property
    def label(self) -> str:
        name = self.title or model_label(self.position_method, self.train_length)
        return f"{name} ({self.variant})" if self.variant else name


def model_label(method: str, train_length: int | None) -> str:
    """``ALiBi, L=512``, or the method alone without a training length."""
    name = method_name(method)
    return name if train_length is None else f"{name}, L={train_length}"


def method_name(method: str) -> str:
    """How a position method is called in tables and legends."""
    return METHOD_NAMES.get(method, method)


def method_order(method: str) -> tuple[int, str]:
    """The order of methods in tables: ALiBi first, unknown ones last by name."""
    known = list(METHOD_NAMES)
    return (known.index(method) if method in known else len(known), method)


def evaluation_points(*documents: dict) -> list[Point]:
    """The cells of evaluation documents."""
    known = {field.name for field in fields(Point)}
    points = []
    for document in documents:
        provenance = document["provenance"]
        for cell in document["cells"]:
            values = {key: value for key, value in cell.items() if key in known}
            values.setdefault("seed", provenance["seed"])
            values.setdefault("precision", provenance["precision"])
            points.append(Point(**values))
    return points


def series(points: Iterable[Point]) -> list[Series]:
    """Points by model, in table order, each model's sorted by length; seeds are averaged.

    Two checkpoints, update counts, precisions or overrides of one method, length and seed are
    different models, told apart by what differs.
    """
    by_model: dict[tuple[str, int], list[Point]] = defaultdict(list)
    for point in points:
        by_model[point.position_method, point.train_length].append(point)
    return [
        Series(method, train_length, _average_seeds(members), variant)
        for method, train_length in sorted(by_model, key=lambda k: (*method_order(k[0]), k[1]))
        for variant, members in _variants(by_model[method, train_length]).items()
    ]


def labels(cells: list[dict], base: Callable[[dict], str], keys: Iterable[str]) -> list[str]:
    """A label for each cell, such that runs that differ do not share a line.

    ``base(cell)``, and behind it those of ``keys`` whose values differ among the cells with that
    label: ``ALiBi, L=64 (updates 100, seed 2)``.
    """
    same_base: dict[str, list[dict]] = defaultdict(list)
    for cell in cells:
        same_base[base(cell)].append(cell)
    found = []
    for cell in cells:
        others = same_base[base(cell)]
        short = _without_common_folder(other.get("checkpoint") for other in others)
        parts = [
            f"{key} {short[cell.get(key)] if key == 'checkpoint' else cell.get(key)}"
            for key in keys
            if len({other.get(key) for other in others}) > 1
        ]
        found.append(base(cell) + (f" ({', '.join(parts)})" if parts else ""))
    return found


def _without_common_folder(paths: Iterable[str | None]) -> dict[str | None, str]:
    """Each path without the folders that all of them share; still one name for one path."""
    named = sorted({path for path in paths if path is not None})
    try:
        folder = os.path.commonpath([os.path.dirname(path) for path in named])
    except ValueError:  # none at all, or relative and absolute ones
        folder = ""
    short: dict[str | None, str] = {
        path: os.path.relpath(path, folder) if folder else path for path in named
    }
    return {None: "unnamed", **short}


def variant_names(points: Iterable[Point]) -> dict[Point, str]:
    """What the label of each point of one method and training length must add, seeds aside."""
    variants = _variants(list(dict.fromkeys(points)))
    return {point: name for name, members in variants.items() for point in members}


def _variants(points: list[Point]) -> dict[str, list[Point]]:
    """Points of one method and training length by what their label must add to tell them apart."""
    short = _without_common_folder(point.checkpoint for point in points)
    described = {
        "label": lambda p: p.label or "",
        "size": lambda p: size_text(p.layers, p.width, p.parameters) or "of unknown size",
        "updates": lambda p: f"{p.updates} updates",
        "precision": lambda p: str(p.precision),
        "model_overrides": lambda p: p.model_overrides or "as trained",
        "checkpoint": lambda p: short[p.checkpoint],
    }
    needed = ["label"] if any(point.label for point in points) else []
    for name in described:
        by_label = defaultdict(set)
        for point in points:
            told_apart = (point.seed, *(described[key](point) for key in needed))
            by_label[told_apart].add(tuple(describe(point) for describe in described.values()))
        one_name_many_runs = any(len(same) > 1 for same in by_label.values())
        if one_name_many_runs and len({described[name](point) for point in points}) > 1:
            needed.append(name)
    variants = defaultdict(list)
    for point in points:
        parts = (described[name](point) for name in needed)
        variants[", ".join(part for part in parts if part)].append(point)
    return dict(sorted(variants.items()))


def _average_seeds(points: list[Point]) -> list[Point]:
    cases = defaultdict(list)
    for point in points:
        cases[point.length, not point.nonoverlapping, point.stride, point.subset].append(point)
    averaged = []
    for case in sorted(cases):
        same = cases[case]
        if len(same) == 1:
            averaged += same
            continue
        values = [point.perplexity for point in same if point.perplexity is not None]
        mean = math.fsum(values) / len(values)
        spread = statistics.stdev(values)
        averaged.append(
            replace(same[0], perplexity=mean, spread=spread, seeds=len(same), seed=None)
        )
    return averaged
