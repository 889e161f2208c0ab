"""What a run costs on the paper's hardware, from the paper's own measurements."""

from __future__ import annotations

from dataclasses import dataclass

from . import published
from .recipe import Recipe


@dataclass(frozen=True)
class Speed:
    """Training speed of one V100, in tokens per second, and where it stands."""

    tokens_per_second: int
    source: str


def speed(recipe: Recipe) -> Speed | None:
    """The paper's training speed for this run or for the one it is said to be as fast as."""
    method = recipe.as_fast_as or recipe.position_method
    # Figure 7 has all lengths, Table 1 all methods; both were measured on WikiText-103.
    for item in ("figure07", "table01"):
        for row in published.rows(item):
            if (row["position_method"], row["train_length"]) == (method, recipe.train_length):
                whose = f", the {method} model's" if method != recipe.position_method else ""
                source = published.about(item)["name"] + whose
                return Speed(row["train_words_per_second"], source)
    return None


def published_gpu_hours(recipe: Recipe) -> int | None:
    """GPU hours as the paper states them (Table 12), or None."""
    if published.about("table12")["corpus"] != recipe.corpus.name:
        return None
    for row in published.rows("table12"):
        if (row["position_method"], row["train_length"]) == (
            recipe.position_method,
            recipe.train_length,
        ):
            return row["gpu_hours"]
    return None


def gpu_hours(recipe: Recipe) -> float | None:
    """V100 hours: stated, or tokens at the paper's speed; None when the paper gives neither."""
    stated = published_gpu_hours(recipe)
    if stated is not None:
        return float(stated)
    measured = speed(recipe)
    return recipe.total_tokens / measured.tokens_per_second / 3600 if measured else None
