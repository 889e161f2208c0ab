"""Measurements grouped by evaluation: one split, one kind of windows, and one text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from .record import Measurement, TextKey


def group_by_evaluation(measurements: Iterable[Measurement]) -> dict[str, list[Measurement]]:
    """Group the measurements that are comparable, validation and non-overlapping windows first.

    A group has one split, one text, and either one stride or non-overlapping windows of any length.
    Its name, such as ``valid, non-overlapping``, includes the text only if there are several.
    """
    return _group(measurements, lambda measurement: measurement.text_key)


def group_by_raw_text(measurements: Iterable[Measurement]) -> dict[str, list[Measurement]]:
    """Group the measurements on raw text whose bits per byte are comparable, of any tokenizer.

    Groups are made as in :func:`group_by_evaluation`, except that a text may have several
    tokenizations.
    """
    known = []
    for measurement in measurements:
        if measurement.is_raw_text and measurement.bits_per_byte is not None:
            known.append(measurement)
    return _group(known, lambda measurement: measurement.raw_text_key)


def _group(
    measurements: Iterable[Measurement], text_of: Callable[[Measurement], TextKey]
) -> dict[str, list[Measurement]]:
    """Group measurements by split, kind of windows, and text, in the order of the evaluations."""
    ordered = sorted(measurements, key=_evaluation_order)
    names = text_names(text_of(measurement) for measurement in ordered)
    groups: dict[str, list[Measurement]] = defaultdict(list)
    for measurement in ordered:
        parts = [measurement.subset, measurement.window_kind, names[text_of(measurement)]]
        group = ", ".join(part for part in parts if part)
        groups[group].append(measurement)
    return groups


def _evaluation_order(measurement: Measurement) -> tuple[bool, str, bool, int]:
    """Return the sort key of a measurement's split and stride."""
    subset = measurement.subset
    is_sliding = not measurement.nonoverlapping
    stride = measurement.stride if is_sliding else 0
    return (subset != "valid", subset, is_sliding, stride)


def text_names(texts: Iterable[TextKey]) -> dict[TextKey, str]:
    """Name each text by its differences from other texts of the same split.

    The name of the only text of a split is empty.
    """
    by_split: dict[str, list[TextKey]] = defaultdict(list)
    for text in dict.fromkeys(texts):
        by_split[text.subset].append(text)
    names = {}
    for same_split in by_split.values():
        counts = {text.tokens for text in same_split}
        tokenizations = {(text.tokens, text.tokens_sha256) for text in same_split}
        sizes = {text.bytes for text in same_split}
        hashes = {text.data_sha256 for text in same_split}
        ranges = {text.scored for text in same_split}
        for text in same_split:
            parts = []
            if len(counts) > 1:
                parts.append(f"{text.tokens or 'unknown'} tokens")
            if len(tokenizations) > len(counts):  # texts of equally many tokens
                parts.append(f"token IDs {(text.tokens_sha256 or 'unknown')[:8]}")
            if len(sizes) > 1:
                parts.append(f"{text.bytes or 'unknown'} bytes")
            if len(hashes) > 1:
                parts.append(f"data {(text.data_sha256 or 'unknown')[:8]}")
            if len(ranges) > 1:
                parts.append(text.scored)
            names[text] = ", ".join(parts)
    return names


def names_across_splits(texts: Iterable[TextKey]) -> dict[TextKey, str]:
    """Name texts like :func:`text_names`, but give all splits of one evaluation the same name.

    Splits that were evaluated together have the same known ``data_sha256``.
    """
    names = text_names(texts)
    ranges = {text.scored for text in names}
    by_evaluation: dict[tuple[str | None, str], list[TextKey]] = defaultdict(list)
    for text in names:
        by_evaluation[text.data_sha256, text.scored].append(text)
    for (data_sha256, scored), members in by_evaluation.items():
        splits = {text.subset for text in members}
        has_names = any(names[text] for text in members)
        if data_sha256 is None or not has_names or len(splits) == 1 or len(splits) < len(members):
            continue
        name = f"data {data_sha256[:8]}"
        if len(ranges) > 1:
            name += f", {scored}"
        for text in members:
            names[text] = name
    return names
