"""What stands at the head of every file of ``configs/``: the cell, the cost and the arithmetic."""

from __future__ import annotations

import textwrap

from ..errors import BadInput
from ..reporting import paper
from ..results.points import METHOD_NAMES
from .cost import gpu_hours, published_gpu_hours, speed
from .overlays import OVERLAY_GPUS, overlay_name
from .recipe import Recipe, recipe_name
from .targets import expected, items_of

WIDTH = 100
LABEL = 10  # columns


def header(recipe: Recipe) -> str:
    """The head of the file as comment lines."""
    rows = [
        ("Paper", cells(recipe)),
        ("Batch", f"{recipe.batch.arithmetic()} per update"),
        ("Length", length(recipe)),
        ("Hardware", hardware(recipe)),
        ("Cost", cost(recipe)),
        ("Size", size(recipe)),
        ("GPUs", other_gpus(recipe)),
        *(("Note", note) for note in recipe.notes),
    ]
    method = METHOD_NAMES[recipe.position_method]
    title = f"{recipe.corpus.title}: {method} trained at L = {recipe.train_length}"
    lines = [title, "Written by python -m alibi_fairseq.recipes; change it there.", ""]
    for label, text in rows:
        lines += textwrap.wrap(
            f"{label:<{LABEL}}{text}",
            WIDTH - 2,
            subsequent_indent=" " * LABEL,
            break_on_hyphens=False,
            break_long_words=False,
        )
    return comment(lines)


def comment(lines: list[str]) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)


def cells(recipe: Recipe) -> str:
    """Which cells of the paper this run gives, with the perplexities it prints."""
    items = items_of(recipe)
    if not items:
        return replications(recipe) or "no cell of its own; see the note."
    main = items[0]
    perplexities = ", ".join(
        f"{point.perplexity:.2f} at {point.length}" for point in expected(main, recipe)
    )
    others = ", ".join(paper.about(item)["name"] for item in items[1:])
    also = f" Also in {others}." if others else ""
    return f"{paper.about(main)['name']}, {subset_name(main)} perplexity: {perplexities}.{also}"


def replications(recipe: Recipe) -> str:
    """What others measured with this recipe, where the paper has nothing."""
    found = [
        f"{row['perplexity']:.2f} on validation at {row['length']} ({row['source']})"
        for row in paper.rows("replications")
        if row["stride"] == row["length"]
        and (row["corpus"], recipe_name(row["position_method"], row["train_length"]))
        == (recipe.corpus.name, recipe.name)
    ]
    return found and f"not in it; others found, with this recipe, {', '.join(found)}."


def subset_name(item: str) -> str:
    return {"valid": "validation", "test": "test"}[paper.about(item)["subset"]]


def length(recipe: Recipe) -> str:
    corpus = recipe.corpus
    return (
        f"{recipe.updates:,} updates × {recipe.batch.tokens_per_update:,} = "
        f"{recipe.total_tokens:,} tokens ÷ {corpus.tokens:,} ({corpus.tokens_note}) = "
        f"{recipe.epochs:.1f} epochs"
    )


def hardware(recipe: Recipe) -> str:
    if recipe.corpus.name == "cc100-roberta":
        return "128 × V100 32 GB (section 4.2)."
    if recipe.batch.gpus != 8:
        return f"{recipe.batch.gpus} × V100 32 GB."
    why = (
        "8 gives its 205 epochs" if recipe.corpus.name == "wikitext-103" else "8 as on WikiText-103"
    )
    return f"8 × V100 32 GB; the paper does not say how many: {why}."


def cost(recipe: Recipe) -> str:
    """V100 hours with the arithmetic."""
    hours = gpu_hours(recipe)
    if hours is None:
        return "the paper gives no speed for this run."
    on_all = f"{hours:,.0f} V100 hours, {hours / recipe.batch.gpus:,.0f} h on {recipe.batch.gpus}"
    if published_gpu_hours(recipe) is not None:
        return f"{on_all} (Table 12)"
    measured = speed(recipe)
    return (
        f"{recipe.total_tokens:,} tokens ÷ {measured.tokens_per_second:,} tokens/s of one V100 "
        f"({measured.source}) = {on_all}"
    )


def size(recipe: Recipe) -> str:
    return (
        f"{recipe.parameters:,} parameters with a dictionary of {recipe.corpus.dictionary:,} "
        "entries (fairseq's four special symbols counted)"
    )


def other_gpus(recipe: Recipe) -> str:
    """The overlay for each usual machine, or why there is none."""
    parts = []
    for world, gpus in OVERLAY_GPUS.items():
        if gpus == recipe.batch.gpus:
            continue
        try:
            recipe.batch.on(gpus)
        except BadInput as reason:
            parts.append(str(reason).removesuffix("."))
        else:
            parts.append(f"{gpus}: +run_config={overlay_name(recipe, world)}")
    return "; ".join(parts) + ". Any other number: scripts/train.sh --gpus N."
