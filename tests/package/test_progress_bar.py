import re

import pytest
from tqdm import tqdm

from alibi_fairseq.experiment.child_process import advance_to_percentage, advance_to_update
from alibi_fairseq.progress_bar import make_progress_bar


def test_progress_log_has_plain_lines(capsys):
    """Draw three bars at once, as for concurrent runs. tqdm moves the cursor between bars."""
    with (
        make_progress_bar(10, "one") as first,
        make_progress_bar(10, "two") as second,
        make_progress_bar(10, "three") as third,
    ):
        for bar in (first, second, third):
            bar.update(10)
            bar.refresh()
            tqdm.write("between")
    captured = capsys.readouterr().err
    assert not re.search(r"[\r\x1b]", captured)
    lines = captured.splitlines()
    assert all(re.match(r"(one|two|three): +(0|100)%", line) for line in lines), lines
    assert {line.split(":")[0] for line in lines if "100%" in line} == {"one", "two", "three"}


def test_training_log_has_few_progress_lines(capsys):
    with make_progress_bar(40, "training", "update") as bar:
        for updates in range(1, 41):
            advance_to_update(bar, f'| train_inner | {{"num_updates": "{updates}", "loss": "9"}}')
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) < 5
    assert "loss 9 bits" in lines[-1]


def test_rate_of_a_resumed_training_counts_only_its_own_updates():
    with make_progress_bar(1000, "training", "update", disable=False) as bar:
        bar.start_t -= 100  # the interpreter starts and the checkpoint is read
        bar.last_print_t -= 100
        for updates in (900, 905):
            advance_to_update(bar, f'| train_inner | {{"num_updates": "{updates}", "loss": "9"}}')
        bar.start_t -= 10
        state = bar.format_dict
    assert state["n"] == 905
    assert (state["n"] - state["initial"]) / state["elapsed"] == pytest.approx(0.5, rel=0.05)


def test_bar_follows_the_logged_bar_of_an_evaluation(capsys):
    with make_progress_bar(2000, "a/checkpoint_last.pt subset valid, length 64", "tok") as logged:
        logged.update(900)
        logged.refresh()
    lines = capsys.readouterr().err.splitlines()
    with make_progress_bar(100, "evaluating", "%") as bar:
        for line in ["100% of nothing", *lines, "loaded 4 examples"]:
            advance_to_percentage(bar, line)
        assert bar.n == 45
