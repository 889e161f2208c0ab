"""Each workaround where it is needed and where it is not."""

from __future__ import annotations

import argparse
import inspect
import logging
import os
import pickle
import shutil
import types
import warnings

import numpy
import pytest
import torch
from fairseq import checkpoint_utils, file_io, options, utils
from fairseq.data import TokenBlockDataset, token_block_dataset
from fairseq.distributed import utils as distributed_utils
from omegaconf import OmegaConf

from alibi_fairseq.errors import BadInput
from alibi_fairseq.fairseq_fixes import (
    WORKAROUNDS,
    compat,
    invocation,
    loading_safely,
    resuming,
    starting,
)

PLACES = (
    (checkpoint_utils, "load_checkpoint_to_cpu"),
    (distributed_utils, "_broadcast_object_slow"),
    (options, "parse_args_and_arch"),
    (distributed_utils, "_infer_torch_distributed_launch_init"),
    (distributed_utils, "call_main"),
    (file_io.PathManager, "copy"),
    (utils, "import_user_module"),
)


@pytest.fixture
def upstream(monkeypatch):
    """fairseq as it was before this package was imported."""
    for owner, name in PLACES:
        original = inspect.unwrap(getattr(owner, name))
        wrapped = staticmethod(original) if inspect.isclass(owner) else original
        monkeypatch.setattr(owner, name, wrapped)
    monkeypatch.setattr(token_block_dataset, "np", numpy)
    return monkeypatch


def test_a_second_time_changes_nothing():
    loading_safely.no_eval_in_fairseq()  # for modules that were imported since
    before = [getattr(owner, name) for owner, name in PLACES]
    assert not [each.__name__ for each in WORKAROUNDS if each()]
    assert [getattr(owner, name) for owner, name in PLACES] == before


def test_what_every_installation_needs_is_applied_at_import():
    """Written out, since what is not registered is not in ``WORKAROUNDS`` either."""
    expected = {
        *("checkpoints_validated", "no_eval_in_fairseq", "archives_extracted_safely"),
        *("resuming_with_several_processes", "bf16_without_tpu", "usage_errors_in_one_sentence"),
        *("process_groups_destroyed_at_exit", "checked_before_start", "unknown_model_named"),
        *("damaged_dictionaries_named", "damaged_data_named", "last_batch_kept", "no_plasma"),
        *("whole_checkpoints", "whole_checkpoints_or_none", "saving_on_a_signal"),
        *("same_batches_after_resuming", "this_package_as_user_dir", "meters_by_name_only"),
        *("options_not_resolved", "older_checkpoints"),
    }
    assert expected <= set(compat.applied)


@pytest.mark.skipif(hasattr(numpy, "compat"), reason="NumPy 1 has it")
def test_numpy(upstream):
    def sentences():
        tokens = [torch.tensor([4, 5, 2]), torch.tensor([6, 2])]
        return TokenBlockDataset(tokens, [3, 2], None, pad=1, eos=2, break_mode="eos")

    with pytest.raises(AttributeError, match="compat"):
        sentences()
    assert compat.numpy_without_compat()
    assert [s.tolist() for s in sentences()] == [[4, 5, 2], [6, 2]]
    assert not hasattr(numpy, "compat")


class Evil:
    def __reduce__(self):
        return os.system, ("echo harm",)


class TestOlderCheckpoints:
    def saved(self, path, **more):
        """A checkpoint as fairseq 0.9 to 1.0 wrote them."""
        state = {
            "args": argparse.Namespace(
                arch="transformer_lm", task="language_modeling", tokens_per_sample=16, lr=[0.1]
            ),
            "notes": OmegaConf.create({"lr": [0.1], "arch": "transformer_lm"}),
            "model": {"weight": torch.ones(2)},
            "extra_state": {"best": numpy.float64(2.5), "epoch": 1},
            "optimizer_history": [{"num_updates": 1, "best_loss": 2.5}],
            "last_optimizer_state": None,
            **more,
        }
        torch.save(state, path)
        return str(path)

    def test_needed(self, upstream, tmp_path):
        path = self.saved(tmp_path / "old.pt")
        with pytest.raises(pickle.UnpicklingError, match="Weights only"):
            checkpoint_utils.load_checkpoint_to_cpu(path)
        assert loading_safely.older_checkpoints()
        state = checkpoint_utils.load_checkpoint_to_cpu(path)
        assert state["cfg"].task.tokens_per_sample == 16
        assert state["notes"].lr == [0.1]
        assert state["extra_state"]["best"] == 2.5
        with pytest.raises(pickle.UnpicklingError, match="Weights only"):
            torch.load(path)  # nothing stays allowed

    def test_what_could_run_code_is_still_refused(self, tmp_path):
        path = self.saved(tmp_path / "evil.pt", extra=Evil())
        with pytest.raises(BadInput, match=r"evil.pt asks for posix.system"):
            checkpoint_utils.load_checkpoint_to_cpu(path)

    def test_not_needed_where_fairseq_decides_itself(self, upstream):
        def load_checkpoint_to_cpu(path):
            return torch.load(path, weights_only=False)

        upstream.setattr(checkpoint_utils, "load_checkpoint_to_cpu", load_checkpoint_to_cpu)
        assert not loading_safely.older_checkpoints()


class TestBf16:
    def parsed(self, *flags):
        command = ["data", "--arch", "alibi_lm_tiny", "--task", "language_modeling", *flags]
        return options.parse_args_and_arch(options.get_training_parser(), command)

    @pytest.mark.parametrize("flag", ["--bf16", "--memory-efficient-bf16"])
    def test_needed(self, upstream, flag):
        assert self.parsed(flag).tpu
        assert starting.bf16_without_tpu()
        args = self.parsed(flag)
        assert args.bf16 and not args.tpu
        assert self.parsed("--bf16", "--tpu").tpu

    def test_not_needed_where_fairseq_does_not_do_it(self, upstream):
        upstream.setattr(options, "parse_args_and_arch", lambda parser: None)
        assert not starting.bf16_without_tpu()


@pytest.mark.parametrize("gpus", [0, 2])
def test_torchrun_without_a_gpu(upstream, gpus):
    upstream.setenv("WORLD_SIZE", "3")
    upstream.setenv("RANK", "2")
    upstream.setattr(torch.cuda, "device_count", lambda: gpus)
    job = types.SimpleNamespace()
    assert starting.torchrun_without_gpu() == (not gpus)
    distributed_utils._infer_torch_distributed_launch_init(job)
    assert (job.distributed_world_size, job.distributed_rank) == (3, 2)
    assert (job.device_id, job.distributed_init_method) == (0, "env://")
    assert job.distributed_no_spawn


class TestWholeCheckpoints:
    def test_needed(self, upstream, tmp_path):
        new, last = tmp_path / "checkpoint_1_100.pt", tmp_path / "checkpoint_last.pt"
        new.write_bytes(b"new")
        last.write_bytes(b"old")

        def killed(source, target):
            with open(target, "wb") as file:
                file.write(b"n")
            raise KeyboardInterrupt

        upstream.setattr(shutil, "copyfile", killed)
        with pytest.raises(KeyboardInterrupt):
            file_io.PathManager.copy(str(new), str(last), overwrite=True)
        assert last.read_bytes() == b"n"
        last.write_bytes(b"old")

        assert resuming.whole_checkpoints()
        with pytest.raises(KeyboardInterrupt):
            file_io.PathManager.copy(str(new), str(last), overwrite=True)
        assert last.read_bytes() == b"old"
        upstream.undo()
        assert file_io.PathManager.copy(str(new), str(last), overwrite=True)
        assert last.read_bytes() == b"new"

    def test_not_needed_where_another_library_copies(self, upstream):
        upstream.setattr(file_io, "IOPathManager", object())
        assert not resuming.whole_checkpoints()


def test_programs_of_users_keep_their_warnings_and_logging(upstream):
    before = list(warnings.filters), logging.getLogger().level
    assert not compat.hydra_without_advice()
    assert not compat.logging_as_configured()
    assert (list(warnings.filters), logging.getLogger().level) == before


def test_commands_keep_the_logging_that_they_configured(upstream):
    upstream.setattr(invocation, "is_command", lambda: True)
    root = logging.getLogger()
    upstream.setattr(root, "handlers", [logging.StreamHandler()])
    root.handlers[0].setFormatter(logging.Formatter("%(message)s"))
    assert not compat.logging_as_configured()
    assert len(root.handlers) == 1
