"""Tasks in separate threads, and unchanged thread settings of torch."""

import os
import threading

import pytest
import torch
from attention_calls import Call, assert_close, reference, results

from alibi_fairseq.attention.thread_pool import run_parallel


@pytest.fixture(params=[1, 2, 5])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_tasks_run_once_and_keep_thread_count(threads):
    done = []
    seen = set()
    x = torch.ones(3, requires_grad=True)
    tiny = torch.tensor([1e-30])  # its square is below the normal numbers

    def task(number):
        torch.ones(100_000).exp_()  # makes torch set up the thread
        seen.add((torch.get_num_threads(), (2 * x).requires_grad, (tiny * 1e-10).item()))
        done.append(number)

    run_parallel([lambda number=number: task(number) for number in range(10)])
    assert sorted(done) == list(range(10))
    assert seen == {(1, False, 0.0)}
    assert torch.get_num_threads() == threads
    assert (tiny * 1e-10).item() > 0
    later = []
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    run_parallel([lambda: later.append(torch.get_num_threads())])  # fewer tasks share the threads
    assert later == [threads, threads]


def test_tasks_change_inference_tensors(threads):
    with torch.inference_mode():
        x = torch.ones(3)
        run_parallel([lambda i=i: x[i : i + 1].add_(i) for i in range(3)])
    assert x.tolist() == [1, 2, 3]


def test_error_reaches_caller(threads):
    def fail():
        raise ZeroDivisionError("of a task")

    with pytest.raises(ZeroDivisionError, match="of a task"):
        run_parallel([fail, lambda: None])
    run_parallel([lambda: None])


def test_forked_process_has_separate_threads(threads):
    run_parallel([lambda: None, lambda: None])
    child = os.fork()
    if child == 0:
        done = []
        run_parallel([lambda: done.append(1), lambda: done.append(2)])
        os._exit(len(done))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2


def test_skipping_matches_reference_on_any_thread_count(threads):
    call = Call(batch=1, heads=3, length=700)
    assert_close(results(call, "skipping"), reference(call), 1e-5)
