"""The page and figures of a study, from made-up outcomes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from alibi_fairseq.experiments.study.description import Key
from alibi_fairseq.experiments.study.outcomes import Outcome, Sums
from alibi_fairseq.experiments.study.page import by_length, by_method, draw, points_of, seed_section
from alibi_fairseq.results.points import series

TOKENS = np.full(4, 1000)


def outcome(method: str, train_length: int = 64, seed: int = 1, bits: float = 7.0) -> Outcome:
    lengths = [train_length, 2 * train_length, 8 * train_length]
    return Outcome(
        key=Key("tales", method, train_length, seed),
        text="tales-study",
        sums={(each, each, False): Sums(bits * TOKENS, TOKENS) for each in lengths},
        positions={each: [(0, 8, bits + 1), (8, each, bits)] for each in lengths},
        tokens_per_second=None,
        peak_memory_mb=None,
        hours=0.1,
        updates=300,
        commit="abc",
    )


def names(lines) -> list[tuple[str, int]]:
    return [(line.position_method, line.train_length) for line in lines]


def lines_of(*outcomes: Outcome):
    return series(point for each in outcomes for point in points_of(each))


def test_panels_show_the_pair_by_length_and_the_lengths_of_most_methods():
    found = lines_of(
        *(outcome(method, length) for method in ("alibi", "sinusoidal") for length in (64, 128)),
        *(outcome("rotary", length) for length in (64, 512, 1024)),
        *(outcome("t5", length) for length in (64, 512, 1024)),
        *(outcome("alibi", length) for length in (512, 2048)),
    )
    (pair,) = by_length(found).values()
    assert names(pair) == [
        *(("alibi", length) for length in (64, 128, 512, 2048)),
        *(("sinusoidal", length) for length in (64, 128)),
    ]
    panels = by_method(found)
    assert list(panels) == ["trained at 64", "trained at 512"]
    assert names(panels["trained at 64"]) == [
        (method, 64) for method in ("alibi", "sinusoidal", "rotary", "t5")
    ]


def test_one_length_is_one_panel_with_the_mean_of_seeds():
    found = lines_of(outcome("alibi"), outcome("alibi", seed=2, bits=7.5), outcome("sinusoidal"))
    assert by_length(found) == {}
    (panel,) = by_method(found).values()
    first = panel[0].points[0]
    assert first.seeds == 2 and first.perplexity == pytest.approx((2**7 + 2**7.5) / 2)


def test_all_figures_are_drawn_with_readable_lengths(tmp_path):
    found = [outcome("alibi"), outcome("sinusoidal", bits=7.2), outcome("alibi", 128)]
    made = draw(["tales", "notes"], {each.key: each for each in found}, tmp_path)
    assert [path.name for path in made] == ["tales.png", "tales-methods.png", "tales-positions.png"]
    for path in made:
        assert path.stat().st_size > 10_000 and path.with_suffix(".svg").is_file()
        svg = path.with_suffix(".svg").read_text()
        assert "<!-- 64 -->" in svg and "mathdefault" not in svg
    one = draw(["tales"], {found[0].key: found[0]}, tmp_path / "one")
    assert [path.name for path in one] == ["tales-methods.png", "tales-positions.png"]


def test_seeds_are_a_table_where_there_are_several():
    one, two, three = (outcome("alibi", seed=s, bits=b) for s, b in ((1, 7.0), (2, 7.0), (3, 7.1)))
    assert seed_section({one.key: one}) == ""
    section = seed_section({each.key: each for each in (three, one, two)})
    (row,) = section.splitlines()[4:]
    assert "ALiBi trained and tested at 64 (tales)" in row and "128.00, 128.00, 137.19" in row
    values = np.array([128, 128, 2**7.1])
    assert f"{100 * values.std(ddof=1) / values.mean():.1f} %" in row
    other = replace(one, key=replace(one.key, corpus="notes"))
    assert seed_section({each.key: each for each in (one, other)}) == ""
