"""The descriptions that are shipped."""

from pathlib import Path

import pytest

from alibi_fairseq.experiments.study.study import load

CONFIGS = sorted((Path(__file__).parents[3] / "configs").glob("study*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_description_lists_models_whose_windows_divide_what_is_scored(path):
    parts = load(path).comparisons({})
    assert len({cell for part in parts for cell in part.cells()}) >= 7
    for part in parts:
        scored = part.score_to - part.score_from
        for length in (each for each in part.eval_lengths if isinstance(each, int)):
            assert length <= scored and scored % length == 0
