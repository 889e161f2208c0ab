import os
import re
import signal
import time
from concurrent.futures.process import BrokenProcessPool

import pytest
from tqdm import tqdm

from alibi_fairseq.data import worker_pool
from alibi_fairseq.errors import explain
from alibi_fairseq.runs.child_process import advance


def multiply(factor, n):
    return factor * n


def parent_of_a_sleeper(path):
    for _ in worker_pool.map_in_order(write_pid_and_sleep, [path] * 2, workers=2):
        pass


def write_pid_and_sleep(path):
    with open(f"{path}/{os.getpid()}", "w"):
        pass
    time.sleep(600)


@pytest.mark.parametrize("workers", [1, 2])
def test_map_in_order_reads_items_as_needed(workers):
    taken = []

    def items():
        for n in range(40):
            taken.append(n)
            yield n

    results = worker_pool.map_in_order(multiply, items(), workers, 3)
    assert [next(results) for _ in range(5)] == [0, 3, 6, 9, 12]
    assert len(taken) <= 5 + 2 * workers
    assert list(results) == [3 * n for n in range(5, 40)]


def test_workers_end_with_their_parent(tmp_path):
    process = worker_pool.process_context().Process(
        target=parent_of_a_sleeper, args=(str(tmp_path),)
    )
    process.start()
    deadline = time.monotonic() + 300
    while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    workers = [int(path.name) for path in tmp_path.iterdir()]
    assert len(workers) == 2
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    while any(map(alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, workers))


def kill_this_process(_):
    os.kill(os.getpid(), signal.SIGKILL)


def test_killed_worker_is_explained():
    with pytest.raises(BrokenProcessPool) as raised:
        list(worker_pool.map_in_order(kill_this_process, range(10), workers=2))
    assert explain(raised.value) == (
        "A worker process was killed, probably for lack of memory; use fewer --workers and rerun "
        "to resume."
    )


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().split()[2] != "Z"


def test_progress_log_has_plain_lines(capsys):
    """Draw three bars at once, as for concurrent runs. tqdm moves the cursor between bars."""
    with (
        worker_pool.progress(10, "one") as first,
        worker_pool.progress(10, "two") as second,
        worker_pool.progress(10, "three") as third,
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
    with worker_pool.progress(40, "training", "update") as bar:
        for updates in range(1, 41):
            advance(bar, f'| train_inner | {{"num_updates": "{updates}", "loss": "9"}}')
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) < 5
    assert "loss 9 bits" in lines[-1]


def test_rate_of_a_resumed_training_counts_only_its_own_updates():
    with worker_pool.progress(1000, "training", "update", disable=False) as bar:
        bar.start_t -= 100  # the interpreter starts and the checkpoint is read
        bar.last_print_t -= 100
        for updates in (900, 905):
            advance(bar, f'| train_inner | {{"num_updates": "{updates}", "loss": "9"}}')
        bar.start_t -= 10
        state = bar.format_dict
    assert state["n"] == 905
    assert (state["n"] - state["initial"]) / state["elapsed"] == pytest.approx(0.5, rel=0.05)
