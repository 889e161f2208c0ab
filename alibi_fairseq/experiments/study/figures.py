"""The figures of a study: perplexity by evaluation length, and the loss by position in a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...reporting import plots
from ...reporting.early_token_curse import context
from ...reporting.perplexity_by_length import draw_panels, without_length
from ...results.points import Point, Series, caption, method_name, method_order, series
from .description import Key
from .outcomes import Outcome

#: Methods that are trained at many lengths, in a panel of their own.
PAIR = ("alibi", "sinusoidal")


def draw(corpora: Sequence[str], outcomes: dict[Key, Outcome], folder: Path) -> list[Path]:
    """The figures of each corpus, as far as there are models for them.

    Returns:
        The ``.png`` of each; there is an ``.svg`` beside it.
    """
    made = []
    for corpus in corpora:
        of_corpus = [outcome for key, outcome in outcomes.items() if key.corpus == corpus]
        lines = series(point for outcome in of_corpus for point in points_of(outcome))
        title = f"{corpus}: small models, windows that do not overlap"
        for name, panels in ((corpus, by_length(lines)), (f"{corpus}-methods", by_method(lines))):
            if panels:
                made.append(folder / f"{name}.png")
                draw_panels(title, panels, made[-1], made[-1].with_suffix(".svg"))
        shown = [outcome for outcome in of_corpus if outcome.positions and outcome.key.seed == 1]
        if shown:
            made.append(draw_positions(corpus, shown, folder / f"{corpus}-positions.png"))
    return made


def by_length(lines: Sequence[Series]) -> dict[str, list[Series]]:
    """A panel of ALiBi and sinusoidal at all training lengths; none if there is but one."""
    pair = [line for line in lines if line.position_method in PAIR]
    several = len({line.train_length for line in pair}) > 1
    return {"ALiBi and sinusoidal by training length": pair} if several else {}


def by_method(lines: Sequence[Series]) -> dict[str, list[Series]]:
    """Panels of all methods at each of the two training lengths of most of them, if there are lines."""
    at: dict[int, list[Series]] = {}
    for line in lines:
        at.setdefault(line.train_length or 0, []).append(line)
    most = sorted(at, key=lambda length: (-len(at[length]), length))[:2]
    several = [length for length in sorted(most) if len(at[length]) > 1]
    return {f"trained at {n}": without_length(at[n]) for n in several or most[:1]}


def points_of(outcome: Outcome) -> list[Point]:
    """Of windows that do not overlap."""
    return [
        Point(
            position_method=outcome.key.method,
            train_length=outcome.key.train_length,
            length=length,
            stride=length,
            subset="test",
            perplexity=outcome.at(length).perplexity,
            seed=outcome.key.seed,
            corpus=outcome.text,
            updates=outcome.updates,
        )
        for length in outcome.lengths()
    ]


def draw_positions(corpus: str, outcomes: Sequence[Outcome], path: Path) -> Path:
    """Loss by position in the window, at 8 times the shortest training length, and its difference to
    ALiBi's: all models predict the same tokens, so most of what is due to the text cancels.
    """
    length = min(outcome.key.train_length for outcome in outcomes)
    window = 8 * length
    shown = [o for o in outcomes if o.key.train_length == length and window in o.positions]
    shown.sort(key=lambda outcome: method_order(outcome.key.method))
    models = {outcome.key.method: outcome.positions[window] for outcome in shown}
    alibi = [bits for *_, bits in models.get("alibi", [])]
    own, minus = [], []
    for method, places in models.items():
        at = [context(first, end) for first, end, _ in places]
        losses = [bits for *_, bits in places]
        line = plots.Line(method_name(method), at, losses, plots.method_look(method))
        own.append(line)
        if alibi:
            gaps = [mine - theirs for mine, theirs in zip(losses, alibi, strict=True)]
            minus.append(replace(line, y=gaps))
    axes = {"Loss (bits per token)": own, "Loss minus ALiBi's (bits per token)": minus}
    panels = [
        plots.Panel(
            "", lines, "Context in the window (tokens)", y, scale="linear", trained_at=length
        )
        for y, lines in axes.items()
        if lines is own or len(lines) > 1
    ]
    title = f"{corpus}: trained at {length}, windows of {window} that do not overlap"
    text = caption(point for outcome in shown for point in points_of(outcome))
    plots.draw(title, panels, path, path.with_suffix(".svg"), caption=text)
    return path
