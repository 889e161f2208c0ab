"""Options and processes of a fairseq command before it starts."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed.utils import infer_init_method
from fairseq_runs import hydra_config

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.plugin import save_dir, startup_checks
from alibi_fairseq.plugin.patches import distributed

NAMES = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID")


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
    startup_checks.check(cfg, program)
    distributed.join(cfg, program)
    return cfg.distributed_training


def training(data, *flags):
    command = [str(data), "--task", "language_modeling", "--arch", "alibi_lm_tiny"]
    command += ["--tokens-per-sample", "16", "--max-tokens", "64", *flags]
    parser = options.get_training_parser()
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, command))


def evaluation(data, *flags):
    command = [str(data), "--path", "none.pt", "--tokens-per-sample", "16", *flags]
    parser = options.get_eval_lm_parser()
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, command))


@pytest.mark.parametrize(
    ("make", "program", "flag", "value"),
    [
        (training, "train", "--restore-file", "none.pt"),
        (training, "train", "--continue-once", "none.pt"),
        (evaluation, "eval_lm", "--context-window", "-1"),
        (evaluation, "eval_lm", "--context-window", "16"),
    ],
)
def test_wrong_options_are_named(tmp_path, make, program, flag, value):
    with pytest.raises(UserInputError, match=flag):
        prepare(make(tmp_path, flag, value), program)
    prepare(make(tmp_path), program)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_half_precision_is_asked_for_if_memory_efficient(tmp_path, precision):
    memory_efficient = f"common.memory_efficient_{precision}=true"
    without = hydra_config(memory_efficient)
    with pytest.raises(UserInputError, match=f"Add common.{precision}=true"):
        startup_checks.check_precision(without)
    startup_checks.check_precision(hydra_config(memory_efficient, f"common.{precision}=true"))
    startup_checks.check_precision(training(tmp_path, f"--memory-efficient-{precision}"))


@pytest.mark.ci
def test_newer_checkpoint_is_not_discarded(tmp_path):
    start = tmp_path / "start.pt"
    start.touch()
    flags = ("--save-dir", str(tmp_path / "run"), "--restore-file", str(start))
    prepare(training(tmp_path, *flags), "train")
    last = tmp_path / "run" / "checkpoint_last.pt"
    last.parent.mkdir()
    last.touch()
    with pytest.raises(UserInputError, match="newer checkpoint.* Remove --restore-file"):
        prepare(training(tmp_path, *flags), "train")
    prepare(training(tmp_path, *flags[:2]), "train")
    prepare(training(tmp_path, *flags[:2], "--restore-file", str(last)), "train")


class TestDistributedStartup:
    def test_one_process_stays_one(self, tmp_path, monkeypatch):
        monkeypatch.setenv("SLURM_NTASKS", "4")  # set in a batch script, which is not a step
        cfg = training(tmp_path)
        before = cfg.distributed_training.copy()
        assert prepare(cfg, "train") == before

    @pytest.mark.parametrize("gpus", [0, 2])
    def test_torchrun_keeps_fast_backends_on_gpus(self, tmp_path, torchrun, monkeypatch, gpus):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(gpus))
        job = prepare(training(tmp_path), "train")
        backends = ("nccl", "pytorch_ddp") if gpus else ("gloo", "legacy_ddp")
        assert (job.distributed_backend, job.ddp_backend) == backends
        assert job.distributed_world_size == 2
        joined = (job.distributed_init_method, job.distributed_rank, job.distributed_no_spawn)
        assert joined == ((None, 0, False) if gpus else ("env://", 1, True))

    def test_world_size_that_torchrun_replaces_is_warned_of(self, tmp_path, torchrun, caplog):
        prepare(training(tmp_path, "--distributed-world-size", "2"), "train")
        assert "has no effect" not in caplog.text
        job = prepare(training(tmp_path, "--distributed-world-size", "8"), "train")
        assert job.distributed_world_size == 2
        assert "--distributed-world-size 8 has no effect" in caplog.text
        caplog.clear()
        job = prepare(training(tmp_path, "--distributed-world-size", "8"), "validate")
        assert job.distributed_world_size == 2
        assert "has no effect" not in caplog.text

    def test_manual_launch_without_gpu(self, tmp_path, no_gpu):
        flags = ["--distributed-world-size", "2", "--distributed-init-method", "tcp://h:1"]
        job = prepare(training(tmp_path, *flags), "train")
        assert (job.distributed_backend, job.ddp_backend) == ("gloo", "legacy_ddp")

    @pytest.mark.parametrize("program", ["eval_lm", "generate", "interactive"])
    def test_torchrun_is_rejected_without_aggregation(self, tmp_path, torchrun, program):
        with pytest.raises(UserInputError, match="fairseq-" + program.replace("_", "-")):
            prepare(evaluation(tmp_path), program)

    def test_manual_launch_is_rejected_without_aggregation(self, tmp_path, two_gpus):
        job = ["--distributed-init-method", "tcp://h:1", "--distributed-world-size"]
        with pytest.raises(UserInputError, match="does not aggregate"):
            prepare(evaluation(tmp_path, *job, "2"), "eval_lm")
        assert prepare(evaluation(tmp_path, *job, "1"), "eval_lm").distributed_world_size == 1

    def test_srun_without_world_size_is_rejected(self, tmp_path, monkeypatch):
        monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
        with pytest.raises(UserInputError, match="--distributed-world-size 4"):
            prepare(training(tmp_path), "train")
        prepare(training(tmp_path, "--distributed-world-size", "4"), "train")

    @pytest.mark.parametrize(
        "tasks",
        [
            {"SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "1"},  # srun --pty
            {"SLURM_NTASKS_PER_NODE": "1"},  # a batch script, or the shell of salloc
            {},  # without an option about tasks
        ],
    )
    def test_one_process_of_slurm_keeps_world_size(self, tmp_path, two_gpus, monkeypatch, tasks):
        job = {"SLURM_JOB_NODELIST": "gpu07", "SLURM_NNODES": "1", "SLURM_NODEID": "0"}
        for name in ("SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"):
            monkeypatch.delenv(name, raising=False)
        for name, value in (job | tasks).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(subprocess, "check_output", lambda command: b"gpu07\n")  # scontrol
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
        four = prepare(training(tmp_path, "--distributed-world-size", "4"), "train")
        infer_init_method(four)
        assert (four.distributed_world_size, four.distributed_num_procs) == (4, 4)
        assert four.distributed_init_method.startswith("tcp://localhost:")
        nine = prepare(training(tmp_path, "--distributed-world-size", "9"), "train")
        with pytest.raises(AssertionError, match="have 8 available devices"):
            infer_init_method(nine)

    def test_one_task_per_node_is_left_to_fairseq(self, tmp_path, two_gpus, monkeypatch):
        job = {"SLURM_NNODES": "2", "SLURM_NTASKS_PER_NODE": "1", "SLURM_NODEID": "1"}
        step = {"SLURM_STEP_NODELIST": "gpu[07-08]", "SLURM_STEP_NUM_TASKS": "2"}
        for name, value in (job | step).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(subprocess, "check_output", lambda command: b"gpu07\ngpu08\n")
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
        flags = ["--distributed-world-size", "16", "--distributed-port", "29500"]
        joined = prepare(training(tmp_path, *flags), "train")
        infer_init_method(joined)
        assert joined.distributed_init_method == "tcp://gpu07:29500"
        assert (joined.distributed_world_size, joined.distributed_rank) == (16, 8)

    def test_cpu_on_gpu_machine_is_one_process(self, tmp_path, two_gpus):
        flags = ["--cpu", "--distributed-world-size", "8"]  # fairseq's default with 8 GPUs
        assert prepare(training(tmp_path, *flags), "train").distributed_world_size == 1

    @pytest.mark.parametrize("program", ["eval_lm", "generate", "interactive"])
    def test_program_without_aggregation_is_one_process(self, tmp_path, two_gpus, program):
        cfg = evaluation(tmp_path, "--distributed-world-size", "2")
        assert prepare(cfg, program).distributed_world_size == 1

    @pytest.mark.parametrize("program", ["train", "validate"])
    def test_program_with_aggregation_uses_every_gpu(self, tmp_path, two_gpus, program):
        cfg = training(tmp_path, "--distributed-world-size", "2")
        assert prepare(cfg, program).distributed_world_size == 2

    def test_ranks(self, monkeypatch):
        cfg = SimpleNamespace(distributed_training=SimpleNamespace(distributed_rank=0))
        assert distributed.process_rank(cfg) == 0
        monkeypatch.setenv("SLURM_PROCID", "2")
        assert distributed.process_rank(cfg) == 2
        cfg.distributed_training.distributed_rank = 5
        assert distributed.process_rank(cfg) == 5
        # torchrun may number the nodes in another order than srun.
        monkeypatch.setenv("RANK", "0")
        assert distributed.process_rank(cfg) == 0


def test_only_unused_new_save_folder_is_removed(tmp_path):
    (tmp_path / "there").mkdir()
    for name, file in (("there", ""), ("used", "file"), ("new", "")):
        folder = tmp_path / name
        with pytest.raises(UserInputError, match="wrong"), save_dir.lock_save_dir(str(folder)):
            folder.mkdir(exist_ok=True)
            if file:
                (folder / file).touch()
            raise UserInputError("wrong")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there", "used"]


@pytest.mark.ci
@pytest.mark.parametrize(
    "flags",
    [
        ["--decoder-learned-pos"],
        ["--no-token-positional-embeddings", "--position-method", "sinusoidal"],
        ["--decoder-xformers-att-config", "{}"],
        ["--max-target-positions", "32"],
    ],
)
def test_options_without_effect_are_rejected(flags, tmp_path):
    with pytest.raises(UserInputError, match=f"{flags[0]}.* has no effect"):
        prepare(training(tmp_path, *flags), "train")
    prepare(training(tmp_path, "--max-target-positions", "16"), "train")


@pytest.mark.parametrize(
    "flags",
    [["--criterion", "masked_lm"], ["--dropout", "nan"], ["--decoder-layers", str(2**31)]],
)
def test_training_without_loadable_checkpoints_is_rejected(flags, tmp_path):
    with pytest.raises(UserInputError, match="No command could load the checkpoints"):
        prepare(training(tmp_path, *flags), "train")


@pytest.mark.parametrize(
    "flags",
    [
        ["--seed", str(2**32 - 1)],
        ["--position-method", "rotary", "--rotary-base", "1e10"],
        ["--criterion", "label_smoothed_cross_entropy_with_rdrop"],
    ],
)
def test_training_with_loadable_checkpoints_is_accepted(flags, tmp_path):
    prepare(training(tmp_path, *flags), "train")
