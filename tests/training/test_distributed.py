"""Two processes on the CPU are one job, which can be resumed and exits cleanly."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from types import SimpleNamespace

import pytest
import torch
from commands import PACKAGE, SHORT, as_process
from fairseq.distributed import utils as distributed_utils
from fairseq_runs import training_config
from torch import distributed

from alibi_fairseq.plugin.patches import install_hooks
from alibi_fairseq.results.file import load


def torchrun(port, *command):
    launcher = ["-m", "torch.distributed.run", "--nproc_per_node", 2, "--master_port", port]
    return as_process(*launcher, "-m", *command)


@pytest.mark.slow
def test_torchrun_runs_one_resumable_job(data_bin, tmp_path, port):
    command = ["fairseq_cli.train", data_bin, "--user-dir", PACKAGE, *SHORT]
    command += ["--save-dir", tmp_path, "--log-interval", 1]
    first = torchrun(port, *command)
    assert first.returncode == 0, first.stderr[-3000:]
    assert first.stdout.count("done training") == 1
    # Twice the sentences of one process (8 of 16 tokens) in each update.
    assert set(re.findall(r"num_updates=\d.*|bsz=(\d+)", first.stdout)) >= {"16"}

    resumed = torchrun(port, *command, "--max-update", 5)
    assert resumed.returncode == 0, resumed.stderr[-3000:]
    assert "Loaded checkpoint" in resumed.stdout
    assert "@ 3 updates" in resumed.stdout
    state = torch.load(tmp_path / "checkpoint_last.pt", weights_only=True)
    assert state["optimizer_history"][-1]["num_updates"] == 5
    records = load(tmp_path / "training.json").results
    assert [record.updates for record in records] == [3, 5]
    for record in records:
        assert record.cost.processes == 2
        # Each process reads 128 tokens in an update, except at the end of the text.
        assert 0 <= record.updates * 2 * 128 - record.cost.trained_tokens < 16


#: Delays gloo's threads. When they need the interpreter lock, they wait until the interpreter shuts
#: down, for at most LATE_GLOO_MS. Before they lock a mutex, for example to free the tensors of a
#: collective, they wait for SLOW_GLOO_MS.
LATE_GLOO = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int _Py_IsFinalizing(void);
static int late(const char *variable) {
  char *limit = getenv(variable), name[32] = "";
  if (!limit) return 0;
  pthread_getname_np(pthread_self(), name, sizeof name);
  return strstr(name, "gloo_runloop") ? atoi(limit) : 0;
}
void PyEval_RestoreThread(void *state) {
  for (int i = late("LATE_GLOO_MS"); i > 0 && !_Py_IsFinalizing(); i--) usleep(1000);
  ((void (*)(void *))dlsym(RTLD_NEXT, "PyEval_RestoreThread"))(state);
}
int pthread_mutex_lock(pthread_mutex_t *mutex) {
  static int (*next)(pthread_mutex_t *);
  if (!next) next = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
  usleep(1000 * late("SLOW_GLOO_MS"));
  return next(mutex);
}
"""
#: Calls of gloo in a distributed run of fairseq.
PROGRAM = """
import os
import torch
from torch import distributed
from fairseq.distributed import utils
import alibi_fairseq
distributed.init_process_group("gloo")
def train():
    group = utils.get_global_group()
{body}
train()
"""
#: The process exits while a thread of gloo is delayed.
EXIT = """
    for _ in range(10):
        utils.all_reduce(torch.ones(1), group)
    os.environ["LATE_GLOO_MS"] = "500"
    utils.all_reduce(torch.ones(1), group)
    distributed.barrier(group)
"""
#: DDP in a reference cycle, which the garbage collector frees.
DDP = """
    model = torch.nn.Linear(3, 3)
    parallel = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
    parallel.itself = [parallel]
    parallel(torch.ones(2, 3)).sum().backward()
    os.environ["SLOW_GLOO_MS"] = "300"
    model.zero_grad()
    parallel(torch.ones(2, 3)).sum().backward()
"""


@pytest.fixture(scope="module")
def late_gloo(tmp_path_factory):
    """Delay the gloo thread, so that it is still running when the process exits."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C compiler and LD_PRELOAD")
    folder = tmp_path_factory.mktemp("delay")
    (folder / "delay.c").write_text(LATE_GLOO)
    command = [compiler, "-shared", "-fPIC", folder / "delay.c", "-o", folder / "delay.so", "-ldl"]
    subprocess.run(command, check=True)
    return folder / "delay.so"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "processes", "code"),
    [
        (EXIT, 2, 0),
        (EXIT + "    raise RuntimeError", 2, 1),
        (EXIT + "    raise SystemExit(75)", 2, 75),
        (DDP, 1, 0),
    ],
)
def test_late_gloo_thread_lets_process_end(port, late_gloo, body, processes, code):
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": processes}
    program = PROGRAM.format(body=body)
    futures = []
    with ThreadPoolExecutor() as pool:
        for rank in range(processes):
            environment = {"RANK": rank, "LD_PRELOAD": late_gloo, **job}
            futures.append(pool.submit(as_process, "-c", program, **environment))
    for future in futures:
        finished = future.result()
        assert finished.returncode == code, finished.stderr[-500:]


#: Two attempts of a training with one store, as after a restart by torchrun. In the second one, the
#: first process is ready after twice the time for which a collective waits.
SLOW_START = """
import sys
import time
from datetime import timedelta
import torch
from torch import distributed
from alibi_fairseq.plugin.patches.distributed import meet, wait_for_first_process
path, rank = sys.argv[1:]
meeting = {"init_method": f"file://{path}", "world_size": 2, "rank": int(rank)}
distributed.init_process_group("gloo", timeout=timedelta(seconds=10), **meeting)
for seconds in (0, 20):
    meet(rank == "0")
    if rank == "0":
        time.sleep(seconds)
    wait_for_first_process(rank == "0")
    distributed.all_reduce(torch.ones(1))
"""


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [(0, 1), (1, 0)])
def test_processes_wait_for_a_slow_first_one(tmp_path, restarts):
    """Each node of torchrun counts its own restarts."""

    def start(rank):
        restarted = {"TORCHELASTIC_RESTART_COUNT": restarts[rank]}
        return as_process("-c", SLOW_START, tmp_path / "meeting", rank, **restarted)

    with ThreadPoolExecutor() as pool:
        finished = pool.map(start, range(2))
    for process in finished:
        assert process.returncode == 0, process.stderr[-500:]


def test_nccl_waits_30_minutes_for_the_process_that_saves(monkeypatch):
    class Joined(Exception):
        """Raised where the processes would join."""

    def join(**keywords):
        assert "timeout" not in keywords
        raise Joined

    constants = distributed.distributed_c10d
    monkeypatch.setattr(constants, "default_pg_nccl_timeout", timedelta(minutes=10))
    monkeypatch.setattr(distributed, "init_process_group", join)
    flags = ["--distributed-world-size", "2", "--distributed-init-method", "tcp://localhost:1"]
    with pytest.raises(Joined):
        distributed_utils.distributed_init(training_config("--arch", "alibi_lm_tiny", *flags))
    assert constants._get_default_timeout("nccl") == timedelta(minutes=30)


def test_training_starts_when_the_first_process_is_ready(monkeypatch):
    """In two attempts with one store."""
    store = distributed.HashStore()
    events = []

    def start_record(trainer, extra_state):
        if trainer.is_data_parallel_master:
            time.sleep(0.5)
            events.append("first is ready")

    def start(is_first):
        trainer = SimpleNamespace(
            data_parallel_world_size=2,
            data_parallel_rank=0 if is_first else 1,
            is_data_parallel_master=is_first,
            get_num_updates=lambda: 0,
        )
        cfg = SimpleNamespace(restore_file="checkpoint.pt")
        install_hooks.load_checkpoint_and_add_to_loop(lambda *_: (None, None), cfg, trainer)

    monkeypatch.setattr(distributed, "barrier", Barrier(2).wait)
    monkeypatch.setattr(distributed.distributed_c10d, "_get_default_store", lambda: store)
    monkeypatch.setattr(install_hooks, "start_record", start_record)
    monkeypatch.setattr(install_hooks, "TrainingHooks", lambda *_: events.append("trains"))
    monkeypatch.setattr(install_hooks, "skip_finished_training", lambda *_: None)
    monkeypatch.setattr(install_hooks.shutdown, "start_stop_handler", lambda: None)
    for _ in range(2):
        with ThreadPoolExecutor() as pool:
            list(pool.map(start, (True, False)))
    assert events == 2 * ["first is ready", "trains", "trains"]
