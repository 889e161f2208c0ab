"""Options and processes of a fairseq command before it starts."""

from __future__ import annotations

import os

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from alibi_fairseq.errors import BadInput
from alibi_fairseq.fairseq_fixes import options as checks
from alibi_fairseq.fairseq_fixes import processes, saving_durably

NAMES = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "SLURM_STEP_NUM_TASKS")


@pytest.fixture(autouse=True)
def started_alone(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def torchrun(monkeypatch):
    for name, value in zip(NAMES, ("localhost", "29500", "2", "1")):
        monkeypatch.setenv(name, value)


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


def prepare(cfg, program):
    checks.check(cfg, program)
    processes.join(cfg, program)


def training(data, *flags):
    command = [str(data), "--task", "language_modeling", "--arch", "alibi_lm_tiny"]
    command += ["--tokens-per-sample", "16", "--max-tokens", "64", *flags]
    parser = options.get_training_parser()
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, command))


def evaluation(data, *flags):
    command = [str(data), "--path", "none.pt", "--tokens-per-sample", "16", *flags]
    parser = options.get_eval_lm_parser()
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, command))


def test_a_log_to_wandb_needs_wandb(data_bin, no_gpu, monkeypatch):
    cfg = training(data_bin, "--cpu", "--wandb-project", "mine")
    with pytest.raises(BadInput, match=r"--wandb-project needs wandb; pip install .*\[wandb\]"):
        prepare(cfg, "train")
    monkeypatch.setattr(checks.importlib.util, "find_spec", lambda name: name)
    prepare(cfg, "train")


LENGTHS = ["--tokens-per-sample", "--max-tokens", "--batch-size", "--required-batch-size-multiple"]


@pytest.mark.parametrize("flag", LENGTHS)
@pytest.mark.parametrize("value", ["0", "-8"])
def test_lengths_are_at_least_one(tmp_path, flag, value):
    with pytest.raises(BadInput, match=f"{flag} must be at least 1, not {value}"):
        prepare(training(tmp_path, flag, value), "train")


@pytest.mark.parametrize("window", ["-1", "16"])
def test_the_window_is_shorter_than_the_sample(tmp_path, window):
    with pytest.raises(BadInput, match=r"--context-window .* \(16\)"):
        prepare(evaluation(tmp_path, "--context-window", window), "eval_lm")
    prepare(evaluation(tmp_path, "--context-window", "15"), "eval_lm")


def test_every_data_folder_exists(tmp_path):
    prepare(training(f"{tmp_path}{os.pathsep}{tmp_path}"), "train")
    with pytest.raises(BadInput, match="There is no data folder nowhere"):
        prepare(training(f"{tmp_path}{os.pathsep}nowhere"), "train")


class TestPrecision:
    @pytest.mark.parametrize("flags", [["--fp16", "--cpu"], ["--fp16"]])
    def test_fp16_needs_a_gpu(self, tmp_path, no_gpu, flags):
        with pytest.raises(BadInput, match="--fp16 trains on a GPU only"):
            prepare(training(tmp_path, *flags), "train")

    @pytest.mark.parametrize("flag", ["--memory-efficient-fp16", "--bf16", "--amp"])
    def test_what_works_without_one_passes(self, tmp_path, no_gpu, flag):
        prepare(training(tmp_path, flag, "--cpu"), "train")

    def test_fp16_with_a_gpu_passes(self, tmp_path, two_gpus):
        prepare(training(tmp_path, "--fp16"), "train")

    def test_evaluation_in_fp16_passes(self, tmp_path, no_gpu):
        prepare(evaluation(tmp_path, "--fp16", "--cpu"), "eval_lm")


class TestProcesses:
    def test_one_process_stays_one(self, tmp_path):
        cfg = training(tmp_path)
        before = cfg.distributed_training.copy()
        prepare(cfg, "train")
        assert cfg.distributed_training == before

    def test_torchrun_without_gpu(self, tmp_path, torchrun, no_gpu):
        job = self.prepared(training(tmp_path))
        assert job.distributed_world_size == 2
        assert (job.distributed_backend, job.ddp_backend) == ("gloo", "legacy_ddp")

    def test_torchrun_with_gpus_keeps_the_fast_backends(self, tmp_path, torchrun, two_gpus):
        job = self.prepared(training(tmp_path))
        assert job.distributed_world_size == 2
        assert (job.distributed_backend, job.ddp_backend) == ("nccl", "pytorch_ddp")

    @pytest.mark.parametrize("rank", ["-1", "2", "5"])
    def test_a_rank_that_the_others_would_wait_for(self, tmp_path, torchrun, monkeypatch, rank):
        monkeypatch.setenv("RANK", rank)
        with pytest.raises(BadInput, match=f"RANK={rank} .*WORLD_SIZE=2"):
            prepare(training(tmp_path), "train")

    @pytest.mark.parametrize("program", ["eval_lm", "generate", "interactive"])
    def test_torchrun_is_refused_where_nothing_adds_up(self, tmp_path, torchrun, program):
        name = "fairseq-" + program.replace("_", "-")
        with pytest.raises(BadInput, match=f"2 processes were started together, but {name}"):
            prepare(evaluation(tmp_path), program)

    def test_srun_without_a_world_size_is_refused(self, tmp_path, monkeypatch):
        monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
        with pytest.raises(BadInput, match="srun started 4 .*--distributed-world-size 4"):
            prepare(training(tmp_path), "train")
        self.prepared(training(tmp_path, "--distributed-world-size", "4"))

    def test_a_batch_script_is_no_step(self, tmp_path, monkeypatch):
        monkeypatch.setenv("SLURM_NTASKS", "4")
        assert self.prepared(training(tmp_path)).distributed_world_size == 1

    def test_by_hand_without_gpu(self, tmp_path, no_gpu):
        flags = ["--distributed-world-size", "2", "--distributed-init-method", "tcp://h:1"]
        job = self.prepared(training(tmp_path, *flags))
        assert (job.distributed_backend, job.ddp_backend) == ("gloo", "legacy_ddp")

    def test_cpu_on_a_machine_with_gpus_is_one_process(self, tmp_path, two_gpus):
        flags = ["--cpu", "--distributed-world-size", "8"]  # what fairseq takes for the default
        assert self.prepared(training(tmp_path, *flags)).distributed_world_size == 1

    def prepared(self, cfg):
        prepare(cfg, "train")
        return cfg.distributed_training


class TestNothingLeftBehind:
    def failing(self, folder, write=False):
        with pytest.raises(BadInput), saving_durably.nothing_left_behind(str(folder)):
            folder.mkdir(exist_ok=True)
            if write:
                (folder / "file").touch()
            raise BadInput("wrong")

    def test_a_folder_made_for_nothing_goes(self, tmp_path):
        self.failing(tmp_path / "new")
        assert not (tmp_path / "new").exists()

    def test_what_was_there_or_holds_something_stays(self, tmp_path):
        self.failing(tmp_path)
        self.failing(tmp_path / "used", write=True)
        assert (tmp_path / "used" / "file").exists()
