"""Which runs and evaluations the paper's tables ask for."""

from __future__ import annotations

from alibi_fairseq.paper.recipe import RECIPES
from alibi_fairseq.paper.targets import PERPLEXITY_ITEMS, evaluations


def asked(item: str) -> dict:
    return {(e.recipe.path, e.stride, e.updates): (e.lengths, e.subsets) for e in evaluations(item)}


def test_table_5_is_alibi_at_every_longer_length_and_the_others_at_their_own():
    table = asked("table05")
    assert len(table) == 8 + 8 + 3 + 3
    assert table["wikitext-103/alibi-1024", None, 286_000] == (
        (1024, 1536, 2048, 3072),
        ("valid",),
    )
    assert table["wikitext-103/sinusoidal-64", None, 286_000] == ((64,), ("valid",))
    assert table["wikitext-103/t5-512", None, 286_000] == ((512,), ("valid",))


def test_every_recipe_but_the_additions_fills_a_cell():
    filled = {each.recipe.path for item in PERPLEXITY_ITEMS for each in evaluations(item)}
    assert set(RECIPES) - filled == {
        "wikitext-103/alibi-2048-corrected",
        "wikitext-103/sinusoidal-2048-corrected",
        "wikitext-103/learned-512",
        "wikitext-103/none-512",
        "wikitext-103/transformer-xl-512",
        "extend/alibi-512-at-512",
        "extend/alibi-512-at-2048",
    }
