import os
import signal
import time
from concurrent.futures.process import BrokenProcessPool

import pytest

from alibi_fairseq.data import worker_pool


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


@pytest.mark.ci
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
    assert str(raised.value) == (
        "A worker process was killed, probably for lack of memory; use fewer --workers and rerun "
        "to resume."
    )


def fail_to_start(_):
    raise ModuleNotFoundError("No module named 'alibi_fairseq.data'")


def test_worker_that_cannot_start_is_explained(monkeypatch):
    monkeypatch.setattr(worker_pool, "_initialize_worker", fail_to_start)
    with pytest.raises(BrokenProcessPool) as raised:
        list(worker_pool.map_in_order(multiply, range(10), 2, 3))
    assert str(raised.value) == (
        "The worker processes could not start, for the reason printed above; correct it or pass "
        "--workers 1, and rerun to resume."
    )


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().split()[2] != "Z"
