"""Division of GPUs or cores among concurrent runs."""

import torch

from alibi_fairseq.experiment.slots import Slot, make_slots


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
