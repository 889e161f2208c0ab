"""Cells as points that tables and figures share, ours and the paper's alike."""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

from alibi_fairseq.results.schema import Role, identity, is_best_checkpoint
from alibi_fairseq.results.training_command import model_options

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
#: Names of options in tables, by their names in results.
OPTION_NAMES = {
    "base": "base",
    "percent": "percent",
    "p_rope": "p-RoPE",
    "logn": "logn",
    "ssmax": "SSMax",
}
#: Option in the name of a method, and its value, which may be empty.
LAYER_OPTION = r"_(base|percent|p_rope|logn|ssmax)(?:_([\d.e+-]+))?"
#: Method of a layer with its options, such as ``rotary_p_rope_0.75@512×3``.
LAYER_LABEL = re.compile(
    r"(?P<method>.+?)(?P<options>(?:_(?:(?:base|percent|p_rope)_[\d.e+-]+|logn|ssmax))*)"
    r"(?:@(?P<window>\d+))?(?:×(?P<count>\d+))?"
)


class TextKey(NamedTuple):
    """The tokens that were predicted; None is unknown, or in a score range no limit.

    ``tokens_sha256`` is the hash of the token IDs of a raw text. ``bytes`` is set instead of the tokens
    where tokenizers may differ (:attr:`Measurement.raw_text`).
    """

    subset: str
    data_sha256: str | None
    tokens: int | None
    documents: str | None
    score_from: int | None
    score_to: int | None
    tokens_sha256: str | None = None
    bytes: int | None = None

    @property
    def scored(self) -> str:
        """The score range in words."""
        if self.score_from is None and self.score_to is None:
            return "all scored"
        end = "the end" if self.score_to is None else self.score_to
        of = f" of each document ({self.documents})" if self.documents else ""
        return f"tokens {self.score_from or 0} to {end}{of}"


@dataclass(frozen=True, eq=False)
class Measurement:
    """The perplexity of one model on one split at one length and stride.

    ``perplexity`` is None where the paper's run failed (``status`` says why). ``display_name`` is that
    of a plugin's method. ``other_text`` says why perplexities are in other units than the paper's,
    ``unlike_paper`` why they must not stand beside its numbers. ``seeds`` and ``spread`` (standard
    deviation) are set where several seeds were averaged, and so is ``position_spread``, that of
    ``position_bits``. Points are equal if they are the same
    measurement of the same run (:func:`.schema.identity`), whatever its outcome.
    """

    position_method: str
    train_length: int
    length: int
    stride: int
    subset: str
    perplexity: float | None = None
    corpus: str | None = None
    tokens: int | None = None
    bytes: int | None = None
    data_sha256: str | None = None
    tokens_sha256: str | None = None
    model: str | None = None
    updates: int | None = None
    checkpoint: str | None = None
    precision: str | None = None
    model_overrides: str | None = None
    display_name: str | None = None
    label: str | None = None
    layers: int | None = None
    width: int | None = None
    parameters: int | None = None
    vocabulary: int | None = None
    seed: int | None = None
    lr: float | None = None
    memory_length: int | None = None
    train_command: str | None = None
    documents: str | None = None
    score_from: int | None = None
    score_to: int | None = None
    tokens_per_second: float | None = None
    tokens_per_second_batch_1: float | None = None
    bits_per_byte: float | None = None
    longest_window: int | None = None
    other_text: str = ""
    unlike_paper: str = ""
    status: str = ""
    position_ends: Sequence[int] = ()
    position_tokens: Sequence[int] = ()
    position_bits: Sequence[float] = ()
    position_spread: Sequence[float] = ()
    seeds: int = 1
    spread: float | None = None

    @property
    def text(self) -> TextKey:
        """The tokens that were predicted: only perplexities of the same ones compare."""
        is_cut = self.score_from is not None or self.score_to is not None
        documents = self.documents if is_cut else None
        scored = (documents, self.score_from, self.score_to)
        return TextKey(
            self.subset, self.data_sha256, self.tokens, *scored, tokens_sha256=self.tokens_sha256
        )

    @property
    def is_raw_text(self) -> bool:
        """True if the text was tokenized for the evaluation, so that its hash is that of raw text."""
        return self.tokens_sha256 is not None

    @property
    def raw_text(self) -> TextKey:
        """The text that was predicted: bits per byte of the same one compare between tokenizers."""
        return self.text._replace(tokens=None, tokens_sha256=None, bytes=self.bytes)

    def identity(self, *roles: Role) -> tuple:
        """Return :func:`.schema.identity`; that of a measurement includes the data's hash."""
        found = identity(vars(self), *roles)
        if not roles or Role.MEASUREMENT in roles:
            found += (("data_sha256", self.data_sha256),)
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Measurement) and self.identity() == other.identity()

    def __hash__(self) -> int:
        return hash(self.identity())

    @property
    def is_past_end(self) -> bool:
        """True if no window has the evaluation length, because the text ends before."""
        return self.longest_window is not None and self.longest_window < self.length

    @property
    def nonoverlapping(self) -> bool:
        return self.stride == self.length

    @property
    def inference(self) -> str:
        """How the text was cut: the two points at one length are told apart by it."""
        return "non-overlapping" if self.nonoverlapping else f"S={self.stride}"


def is_chance(perplexity: float | None, vocabulary: int | None) -> bool:
    """Whether a perplexity is about as good as a guess: at least V^0.9, nine tenths of the bits per
    token of guessing any entry of the dictionary. False where either is not known.
    """
    if perplexity is None or vocabulary is None:
        return False
    return math.log(perplexity) >= 0.9 * math.log(vocabulary)


@dataclass(frozen=True)
class Series:
    """The points of one model: a row of a table or a line of a figure.

    ``train_length`` is None for a line through models of several training lengths. ``variant``
    is what sets a model apart from another one of its name; ``printed`` marks the paper's numbers.
    """

    position_method: str
    train_length: int | None
    points: Sequence[Measurement]
    name: str = ""
    variant: str = ""
    printed: bool = False

    @property
    def label(self) -> str:
        return f"{self.name} ({self.variant})" if self.variant else self.name


def model_label(method: str, train_length: int | None, display_name: str | None = None) -> str:
    """``ALiBi, L=512``, or the method alone without a training length."""
    name = display_name or method_name(method)
    return name if train_length is None else f"{name}, L={train_length}"


def method_name(method: str) -> str:
    """Return the name of a position method in tables and legends.

    Methods of layers are joined: ``rotary_p_rope_0.75@512×3+none`` is "3 × Rotary, p-RoPE 0.75
    (window 512) + No positions". Names that the tables do not know are left as they are.
    """
    if method in METHOD_NAMES:
        return METHOD_NAMES[method]
    layers = re.split(r"\+(?=[a-z])", method)  # not the plus of a number such as 1e+06
    return " + ".join(_layer_name(layer) for layer in layers)


def _layer_name(label: str) -> str:
    """Return the name of the method of a layer, with its options, window, and number of layers."""
    parts = LAYER_LABEL.fullmatch(label)
    if parts is None or parts["method"] not in METHOD_NAMES:
        return label
    name = METHOD_NAMES[parts["method"]]
    for option, value in re.findall(LAYER_OPTION, parts["options"]):
        name += f", {OPTION_NAMES[option]} {value}".rstrip()
    if parts["window"]:
        name += f" (window {parts['window']})"
    if parts["count"]:
        name = f"{parts['count']} × {name}"
    return name


def method_order(method: str) -> tuple[int, str]:
    """The order of methods in tables: ALiBi first, unknown ones last by name."""
    known = list(METHOD_NAMES)
    return (known.index(method) if method in known else len(known), method)


def size_text(layers: int | None, width: int | None, parameters: int | None) -> str:
    """``3 layers of width 128, 0.7M parameters``; empty if nothing is known."""
    parts = []
    if layers is not None and width is not None:
        parts.append(f"{layers} {'layer' if layers == 1 else 'layers'} of width {width}")
    if parameters is not None:
        parts.append(f"{parameters / 1e6:,.3g}M parameters")
    return ", ".join(parts)


def measurements_of(*documents: dict) -> list[Measurement]:
    """The cells of evaluations, in order."""
    known = {each.name for each in fields(Measurement)}
    points = []
    for document in documents:
        provenance = document["provenance"]
        facts = {key: provenance[key] for key in ("seed", "precision", "data_sha256")}
        facts["corpus"] = document["corpus"]
        for cell in document["cells"]:
            measured = {key: cell[key] for key in cell.keys() & known}
            if "text_sha256" in cell:
                measured["data_sha256"] = cell["text_sha256"]
            if {"bytes", "tokens"} <= cell.keys():
                bits_per_byte = cell["loss_bits"] * cell["tokens"] / cell["bytes"]
                measured.setdefault("bits_per_byte", bits_per_byte)
            if "longest_window" not in cell and not {"score_from", "score_to"} & cell.keys():
                # Results of earlier versions; without these options all tokens were scored.
                measured["longest_window"] = min(cell["length"], cell["tokens"])
            points.append(Measurement(**facts | measured))
    return points


def text_names(texts: Iterable[TextKey]) -> dict[TextKey, str]:
    """What tells each text apart from the others of the same split; empty for the only one."""
    of_split: dict[str, dict[TextKey, None]] = defaultdict(dict)
    for text in texts:
        of_split[text.subset][text] = None
    names = {}
    for same_split in of_split.values():
        counts = {text.tokens for text in same_split}
        hashes = {text.data_sha256 for text in same_split}
        ranges = {text.scored for text in same_split}
        sizes = {text.bytes for text in same_split}
        tokenizations = {(text.tokens, text.tokens_sha256) for text in same_split}
        for text in same_split:
            parts = [f"{text.tokens or 'unknown'} tokens"] if len(counts) > 1 else []
            if len(tokenizations) > len(counts):
                parts.append(f"token IDs {(text.tokens_sha256 or 'unknown')[:8]}")
            parts += [f"{text.bytes or 'unknown'} bytes"] if len(sizes) > 1 else []
            parts += [f"data {(text.data_sha256 or 'unknown')[:8]}"] if len(hashes) > 1 else []
            parts += [text.scored] if len(ranges) > 1 else []
            names[text] = ", ".join(parts)
    return names


def group_by_model(points: Iterable[Measurement]) -> list[Series]:
    """Points by model, in table order, each model's by length; seeds are averaged.

    Methods that tables do not know, such as a plugin's, keep their place in the order of the points.
    Models that differ in more than the seed have series of their own, named by the difference. So
    have runs that are not known to be different seeds, or to be measured on the same text.
    """
    by_model: dict[tuple[str, int], list[Measurement]] = defaultdict(list)
    places, place = {}, (-1, 0)
    for point in dict.fromkeys(points):
        method = point.position_method
        by_model[method, point.train_length].append(point)
        if method not in places:  # a plugin's stays behind the one that it follows
            known = method in METHOD_NAMES
            place = (method_order(method)[0], 0) if known else (place[0], place[1] + 1)
            places[method] = place
    found = []
    for model in sorted(by_model, key=lambda model: (places[model[0]], model[1])):
        for variant, members in _variants(by_model[model]).items():
            name = model_label(*model, members[0].display_name)
            found.append(Series(*model, _average_seeds(members), name, variant))
    return found


def _variants(points: list[Measurement]) -> dict[str, list[Measurement]]:
    """Return the points of one method and training length by what their label must add."""
    described = dict(zip(points, _described(points)))
    models = {point.identity(Role.MODEL) for point in points}
    needed: list[int] = []
    for place, values in enumerate(map(set, zip(*described.values()))):
        names = {tuple(parts[each] for each in needed) for parts in described.values()}
        labelled = place == 0 and values != {""}
        if labelled or (len(names) < len(models) and len(values) > 1):
            needed.append(place)
    named: dict[str, list[Measurement]] = defaultdict(list)
    for point, parts in described.items():
        named[", ".join(filter(None, (parts[each] for each in needed)))].append(point)
    variants: dict[str, list[Measurement]] = defaultdict(list)
    for name, members in named.items():
        for point in members:
            run = "" if _are_seeds(members) else _run_name(point, members)
            variants[", ".join(filter(None, (name, run)))].append(point)
    return dict(sorted(variants.items()))


def _described(points: list[Measurement]) -> list[tuple[str, ...]]:
    """Return for each point what may set its model apart, in words, the plainest first."""
    options = [dict(model_options(point.train_command or "")) for point in points]
    names = sorted({name for each in options for name in each})
    different = [name for name in names if len({each.get(name) for each in options}) > 1]
    found: list[tuple[str, ...]] = []
    for point, own in zip(points, options):
        training = ", ".join(f"{name} {own[name]}".strip() for name in different if name in own)
        found.append(
            (
                point.label or "",
                size_text(point.layers, point.width, point.parameters) or "of unknown size",
                _updates_text(point),
                str(point.precision),
                point.model_overrides or "as trained",
                f"memory of {point.memory_length or 0}",
                point.model or "of unknown architecture",
                f"dictionary of {point.vocabulary or 'unknown size'}",
                f"lr {point.lr or 'unknown'}",
                training if point.train_command else "trained by an unknown command",
            )
        )
    return found


def _updates_text(point: Measurement) -> str:
    """Return the update count of a point's model, which differs between the seeds of the best."""
    if is_best_checkpoint(point.checkpoint):
        return "best checkpoint"
    return f"{point.updates} updates"


def _are_seeds(points: list[Measurement]) -> bool:
    """Return True if points of one model differ in nothing but known seeds wherever they meet."""
    return all(
        len(same) == 1
        or (
            same[0].data_sha256 is not None
            and None not in (seeds := {point.seed for point in same})
            and len(seeds) == len(same)
        )
        for same in _by_measurement(points)
    )


def _run_name(point: Measurement, points: list[Measurement]) -> str:
    """Return what sets a run apart from the others of its model."""
    checkpoint = point.checkpoint or "unnamed"
    seed = "unknown seed" if point.seed is None else f"seed {point.seed}"
    checkpoints = {each.checkpoint for each in points}
    if len(checkpoints) == len({each.identity(Role.RUN) for each in points}):
        return checkpoint if len(checkpoints) > 1 else ""
    return f"{checkpoint}, {seed}" if len(checkpoints) > 1 else seed


def _by_measurement(points: list[Measurement]) -> list[list[Measurement]]:
    """Return the points of each measurement, in order of the length."""
    cases: dict[tuple, list[Measurement]] = defaultdict(list)
    for point in points:
        order = (point.length, not point.nonoverlapping, point.stride, point.subset)
        cases[order, point.identity(Role.MEASUREMENT)].append(point)
    return [cases[case] for case in sorted(cases, key=lambda case: (case[0], str(case[1])))]


def _average_seeds(points: list[Measurement]) -> list[Measurement]:
    averaged = []
    for same in _by_measurement(points):
        if len(same) > 1 and _are_seeds(same):
            means: dict = {"seeds": len(same), "seed": None}
            updates = {point.updates for point in same}
            if len(updates) > 1:  # of best checkpoints
                means["updates"] = None
            for key in ("bits_per_byte", "perplexity"):
                values = [getattr(p, key) for p in same if getattr(p, key) is not None]
                means[key] = math.fsum(values) / len(values) if values else None
            means |= _average_positions(same)
            same = [replace(same[0], **means, spread=statistics.stdev(values))]
        averaged += same
    return averaged


def _average_positions(seeds: list[Measurement]) -> dict[str, Sequence]:
    """Return mean and spread of the losses by position; nothing where a seed lacks them."""
    bits = [seed.position_bits for seed in seeds]
    if not all(bits):
        return {"position_ends": (), "position_tokens": (), "position_bits": ()}
    by_bucket = list(zip(*bits, strict=True))
    return {
        "position_bits": [statistics.fmean(values) for values in by_bucket],
        "position_spread": [statistics.stdev(values) for values in by_bucket],
    }


def caption(points: Iterable[Measurement]) -> str:
    """What a figure of our points must say: text, model, updates, seeds, and models near chance."""
    ours = [point for point in points if point.corpus is not None]
    if not ours:
        return ""
    parts = [
        _listed(point.corpus for point in ours),
        _listed(point.model for point in ours),
        _listed(size_text(point.layers, point.width, None) for point in ours),
    ]
    updates = _listed(f"{p.updates:,}" for p in ours if p.updates is not None)
    parts += [f"{updates} updates"] if updates else []
    seeds = {point.seeds for point in ours}
    single = "a single seed" if max(seeds) == 1 else "a single seed for some models"
    parts += [f"mean and standard deviation of {max(seeds)} seeds"] if max(seeds) > 1 else []
    parts += [single] if 1 in seeds else []
    guessing = {
        model_label(p.position_method, p.train_length, p.display_name)
        for p in ours
        if is_chance(p.perplexity, p.vocabulary)
    }
    few = ", ".join(sorted(guessing)) if len(guessing) <= 4 else f"{len(guessing)} models"
    parts += [f"near chance: {few}"] if guessing else []
    return "; ".join(part for part in parts if part)


def _listed(names: Iterable[str | None]) -> str:
    """The different names, or their number where there are more than four."""
    different = sorted({name for name in names if name})
    return ", ".join(different) if len(different) <= 4 else f"{len(different)} different"
