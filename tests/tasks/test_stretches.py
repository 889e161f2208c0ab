"""Every token of a corpus is the target of exactly one place, whatever the numbers are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alibi_fairseq.errors import BadInput
from alibi_fairseq.tasks.segment_dataset import Stretches
from alibi_fairseq.tasks.segment_language_modeling import rows_per_process

plans = st.integers(1, 300).flatmap(
    lambda tokens: st.builds(Stretches, st.just(tokens), st.integers(1, tokens), st.integers(1, 40))
)


@given(plan=plans)
def test_every_token_is_a_target_once_and_rows_read_on(plan):
    seen = []
    for row in range(plan.rows):
        targets = [plan.targets(row, segment) for segment in range(plan.segments)]
        assert all(len(span) == plan.length for span in targets[:-1])
        own = [token for span in targets for token in span]
        assert own == list(range(own[0], own[0] + len(own)))
        seen += own
    assert sorted(seen) == list(range(plan.tokens))


@given(plan=plans)
def test_rows_are_equal_up_to_one_token(plan):
    lengths = {
        sum(len(plan.targets(row, segment)) for segment in range(plan.segments))
        for row in range(plan.rows)
    }
    assert max(lengths) - min(lengths) <= 1


@given(plan=plans)
def test_there_is_no_segment_without_a_token(plan):
    last = plan.segments - 1
    assert any(plan.targets(row, last) for row in range(plan.rows))


def test_rows_are_what_fits():
    assert rows_per_process(64, max_tokens=9216, max_sentences=None, multiple=1) == 144
    assert rows_per_process(64, max_tokens=9216, max_sentences=5, multiple=1) == 5
    assert rows_per_process(64, max_tokens=None, max_sentences=7, multiple=1) == 7
    assert rows_per_process(64, max_tokens=1216, max_sentences=None, multiple=8) == 16
    assert rows_per_process(64, max_tokens=256, max_sentences=None, multiple=8) == 4
    with pytest.raises(BadInput, match="--max-tokens 63 is less than one row"):
        rows_per_process(64, max_tokens=63, max_sentences=None, multiple=1)
