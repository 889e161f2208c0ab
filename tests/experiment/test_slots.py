"""Division of GPUs or cores among concurrent runs."""

import torch

from alibi_fairseq.experiment.slots import Slot, SlotPool, make_slots


def devices_of(slots):
    return [slot.environment["CUDA_VISIBLE_DEVICES"] for slot in slots]


def test_cores_are_divided_among_runs(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr("alibi_fairseq.experiment.slots.cores", lambda: 8)
    assert make_slots(9, gpus=1) == [Slot({"OMP_NUM_THREADS": "1"})] * 8
    assert make_slots(9, gpus=1, parallel=3) == [Slot({"OMP_NUM_THREADS": "2"})] * 3
    assert make_slots(2, gpus=1, threads=1) == [Slot({"OMP_NUM_THREADS": "1"})] * 2


def test_gpus_are_divided_among_runs(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert devices_of(make_slots(9, gpus=2)) == ["0,1", "2,3"]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert devices_of(make_slots(9, gpus=1, parallel=3)) == ["5", "7", "5"]


def test_single_gpus_are_taken_from_as_few_slots_as_possible():
    slots = [Slot({"CUDA_VISIBLE_DEVICES": "0,1"}), Slot({"CUDA_VISIBLE_DEVICES": "2,3"})]
    pool = SlotPool(slots)
    first = pool.take(one_gpu=True)
    second = pool.take(one_gpu=True)
    assert devices_of([first[1], second[1]]) == ["0", "1"]
    whole = pool.take(one_gpu=False)
    assert whole == (1, slots[1])
    assert pool.take(one_gpu=True) is None
    pool.give_back(*second)
    assert pool.take(one_gpu=False) is None  # the other GPU is still in use
    pool.give_back(*first)
    assert pool.take(one_gpu=False) == (0, slots[0])


def test_slots_on_cpu_are_not_divided():
    slots = [Slot({"OMP_NUM_THREADS": "2"})]
    pool = SlotPool(slots)
    taken = pool.take(one_gpu=True)
    assert taken == (0, slots[0])
    assert pool.take(one_gpu=False) is None
    pool.give_back(*taken)
    assert pool.take(one_gpu=False) == taken
