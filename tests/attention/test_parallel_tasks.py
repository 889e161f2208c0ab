"""Tasks in threads of their own: all of them run, as asked, and nothing else of torch is changed."""

import os
import threading

import pytest
import torch

from alibi_fairseq.attention import FutureMask, attend
from alibi_fairseq.attention.parallel import run_parallel
from alibi_fairseq.positions.alibi import LinearBias


@pytest.fixture(params=[1, 2, 5])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_every_task_runs_once_and_the_threads_of_others_stay_as_they_were(threads):
    done, counts = [], set()

    def task(number):
        torch.ones(100_000).exp_()  # makes torch set up the thread
        counts.add(torch.get_num_threads())
        done.append(number)

    run_parallel([lambda number=number: task(number) for number in range(10)])
    assert sorted(done) == list(range(10))
    assert counts == {1}
    assert torch.get_num_threads() == threads
    later = []
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert later == [threads]


def test_fewer_tasks_than_threads_share_them(threads):
    counts = []
    run_parallel([lambda: counts.append(torch.get_num_threads())])
    assert counts == [threads]


def test_tasks_may_change_tensors_of_inference_mode(threads):
    with torch.inference_mode():
        x = torch.ones(3)
        run_parallel([lambda i=i: x[i : i + 1].add_(i) for i in range(3)])
    assert x.tolist() == [1, 2, 3]


def test_gradients_are_not_recorded(threads):
    x, recorded = torch.ones(3, requires_grad=True), []
    run_parallel([lambda: recorded.append((2 * x).requires_grad)] * 2)
    assert recorded == [False, False]


def test_numbers_below_the_normal_ones_are_zero_there_and_nowhere_else(threads):
    tiny, seen = torch.tensor([1e-30]), []
    run_parallel([lambda: seen.append((tiny * 1e-10).item())] * 2)
    assert seen == [0, 0]
    assert (tiny * 1e-10).item() > 0


def test_an_error_reaches_the_caller(threads):
    def fail():
        raise ZeroDivisionError("of a task")

    with pytest.raises(ZeroDivisionError, match="of a task"):
        run_parallel([fail, lambda: None])
    run_parallel([lambda: None])


def test_a_forked_process_has_threads_of_its_own(threads):
    run_parallel([lambda: None, lambda: None])
    child = os.fork()
    if child == 0:
        done = []
        run_parallel([lambda: done.append(1), lambda: done.append(2)])
        os._exit(len(done))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2


def test_skipping_is_the_same_on_any_number_of_threads(threads):
    torch.manual_seed(1)
    q, k, v = (torch.randn(1, 3, 700, 16, requires_grad=True) for _ in range(3))
    mask = FutureMask(LinearBias(3), 700, 700)
    results = []
    for backend in ("skipping", "eager"):
        out = attend(q, k, v, mask, backend=backend)[0]
        results.append((out, *torch.autograd.grad(out.square().sum(), (q, k, v))))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
