"""The keys of a results document and what each may hold (docs/results.md)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

# A check returns None when the value is right, otherwise what it should have been.
Check = Callable[[Any], "str | None"]


def _is_number(value: Any) -> bool:
    return _is_integer(value) or (isinstance(value, float) and math.isfinite(value))


def _is_integer(value: object) -> bool:
    """Whether it is a whole number that 64 bits can hold, as any reader of JSON can."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _expect(description: str, test: Callable[[Any], bool]) -> Check:
    return lambda value: None if test(value) else description


def _or_null(check: Check) -> Check:
    def nullable(value: object) -> str | None:
        wrong = None if value is None else check(value)
        return wrong and f"{wrong} or null"

    return nullable


def _is_utc_date(value: object) -> bool:
    if not isinstance(value, str) or not re.fullmatch(r"[\d-]+T[\d:]+Z", value):
        return False
    try:
        datetime.strptime(value, "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        return False
    return True


def _is_json_object(value: object) -> bool:
    try:
        return isinstance(value, str) and isinstance(json.loads(value), dict)
    except (ValueError, RecursionError):
        return False


TEXT = _expect("text", lambda v: isinstance(v, str) and v != "")
FLAG = _expect("true or false", lambda v: isinstance(v, bool))
COUNT = _expect("a whole number, 0 or more", lambda v: _is_integer(v) and v >= 0)
POSITIVE_COUNT = _expect("a whole number, 1 or more", lambda v: _is_integer(v) and v >= 1)
NUMBER = _expect("a finite number", _is_number)
NOT_NEGATIVE = _expect("a number, 0 or more", lambda v: _is_number(v) and v >= 0)
BITS = _expect("a loss in bits, 0 to 1023", lambda v: _is_number(v) and 0 <= v < 1024)
POSITIVE = _expect("a number above 0", lambda v: _is_number(v) and v > 0)
UTC_DATE = _expect("a date such as 2026-01-31T12:00:00Z", _is_utc_date)
SHA256 = _expect(
    "64 hexadecimal digits", lambda v: isinstance(v, str) and bool(re.fullmatch("[0-9a-f]{64}", v))
)
LIST = _expect("a list", lambda v: isinstance(v, list))
SCALAR = _expect(
    "a finite number, text, true, false or null",
    lambda v: v is None or isinstance(v, (str, bool)) or _is_number(v),
)
NUMBERS = _expect(
    "a list of finite numbers", lambda v: isinstance(v, list) and all(map(_is_number, v))
)
OBJECT = _expect("an object", lambda v: isinstance(v, dict))

DOCUMENT = {
    "kind": TEXT,
    "provenance": OBJECT,
    "corpus": TEXT,
    "cells": LIST,
}

PROVENANCE = {
    "command": TEXT,
    "git_commit": _or_null(TEXT),
    "git_clean": _or_null(FLAG),
    "data_sha256": _or_null(SHA256),
    "dictionary_sha256": _or_null(SHA256),
    "versions": OBJECT,
    "hardware": OBJECT,
    "threads": _or_null(POSITIVE_COUNT),
    "precision": _or_null(TEXT),
    "seed": _or_null(COUNT),
    "date": UTC_DATE,
    "seconds": NOT_NEGATIVE,
}
VERSIONS = {
    name: _or_null(TEXT) for name in ("python", "torch", "fairseq", "numpy", "alibi_fairseq")
}
# What ``provenance.text`` says of the tokens, where the data have a manifest.
TOKENS = {
    "tokenizer": _or_null(TEXT),
    "vocabulary": _or_null(COUNT),
    "train_tokens": _or_null(COUNT),
}
HARDWARE = {
    "cpu": _or_null(TEXT),
    "cores": _or_null(POSITIVE_COUNT),
    "memory_gb": _or_null(POSITIVE),
    "gpu": _or_null(TEXT),
}

# What a cell of each kind must say.
REQUIRED: dict[str, dict[str, Check]] = {
    "evaluation": {
        "position_method": TEXT,
        "train_length": POSITIVE_COUNT,
        "length": POSITIVE_COUNT,
        "stride": POSITIVE_COUNT,
        "subset": TEXT,
        "tokens": POSITIVE_COUNT,
        "loss_bits": BITS,
        "perplexity": POSITIVE,
    },
    "training": {
        "position_method": TEXT,
        "train_length": POSITIVE_COUNT,
        "updates": COUNT,
        "subset": TEXT,
        "loss_bits": BITS,
    },
    "benchmark": {
        "name": TEXT,
        "baseline": _or_null(TEXT),
        "ratio": _or_null(POSITIVE),
    },
    "position_loss": {
        "position_method": TEXT,
        "train_length": POSITIVE_COUNT,
        "length": POSITIVE_COUNT,
        "stride": POSITIVE_COUNT,
        "subset": TEXT,
        "position_from": COUNT,
        "position_to": POSITIVE_COUNT,
        "tokens": POSITIVE_COUNT,
        "loss_bits": BITS,
    },
}

# What a cell of any kind may say; any other key may hold any finite number, text or flag.
OPTIONAL: dict[str, Check] = {
    "position_method": TEXT,
    "train_length": POSITIVE_COUNT,
    "length": POSITIVE_COUNT,
    "model": TEXT,
    "checkpoint": TEXT,
    "updates": COUNT,
    "seed": _or_null(COUNT),
    "precision": TEXT,
    "model_overrides": _expect("a JSON object as text", _is_json_object),
    "shard": TEXT,
    "tokens": POSITIVE_COUNT,
    "words": POSITIVE_COUNT,
    "bytes": POSITIVE_COUNT,
    "perplexity": POSITIVE,
    "word_perplexity": _or_null(POSITIVE),
    "bits_per_byte": _or_null(NOT_NEGATIVE),
    "trained_tokens": COUNT,
    "hours": NOT_NEGATIVE,
    "processes": POSITIVE_COUNT,
    "parameters": POSITIVE_COUNT,
    "layers": POSITIVE_COUNT,
    "width": POSITIVE_COUNT,
    "vocabulary": POSITIVE_COUNT,
    "min_context": COUNT,
    "mean_context": NOT_NEGATIVE,
    "document_tokens": NUMBERS,
    "document_bits": NUMBERS,
    "round_seconds": NUMBERS,
    "tokens_per_second": POSITIVE,
    "tokens_per_second_batch_1": POSITIVE,
    "step_ms": POSITIVE,
    "seconds": NOT_NEGATIVE,
    "gpu_hours": NOT_NEGATIVE,
    "peak_memory_mb": _or_null(POSITIVE),
    "backend": TEXT,
    "phase": _expect("train or evaluate", lambda v: v in ("train", "evaluate")),
}
