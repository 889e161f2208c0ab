"""Options of a training that identify its model."""

from __future__ import annotations

from functools import cache

import pytest
from fairseq_runs import training_config
from omegaconf import open_dict

from alibi_fairseq.models.description import training_options

FLAGS = ("--arch", "alibi_lm", "--lr", "0.1", "--seed", "1", "--save-dir", "a", "--cpu")


@cache
def options_of(*flags: str) -> dict[str, str]:
    return training_options(training_config(*FLAGS, *flags))


def test_options_differ_from_defaults():
    options = options_of("--update-freq", "2", "--fp16")
    assert options["lr"] == "0.1"
    assert options["update_freq"] == "2"
    assert options["data"] == "data"
    assert options["fp16"] == ""
    assert options["task"] == "language_modeling"
    assert "clip_norm" not in options
    # Fields of the record, and options that name the run.
    assert not options.keys() & {"position_method", "tokens_per_sample", "seed", "save_dir", "cpu"}


@pytest.mark.parametrize(
    "flags",
    [
        ("--seed", "2"),
        ("--save-dir", "b"),
        ("--num-workers", "0", "--log-format", "json", "--tensorboard-logdir", "t"),
        ("--clip-norm", "0"),  # the default
        ("--max-tokens-valid", "64", "--batch-size-valid", "2"),
    ],
)
def test_options_of_same_model_are_equal(flags):
    assert options_of(*flags) == options_of()


@pytest.mark.parametrize(
    "flags",
    [
        ("--lr", "0.2"),
        ("--dropout", "0.2"),
        ("--update-freq", "2"),
        ("--fp16",),
        ("--optimizer", "nag"),
        ("--task", "segment_language_modeling"),
        ("--criterion", "chunked_cross_entropy"),
        ("--restore-file", "other.pt"),
    ],
)
def test_options_of_another_model_differ(flags):
    assert options_of(*flags) != options_of()


DECAY = ("--max-update", "30", "--lr-scheduler", "polynomial_decay", "--total-num-update")


def test_end_of_the_decay_is_an_option_unless_training_ends_there():
    assert options_of(*DECAY, "3000")["total_num_update"] == "3000.0"
    assert "total_num_update" not in options_of(*DECAY, "30")


def test_end_of_cosine_schedule_is_not_taken_for_the_number_of_updates():
    """Hydra can set both separately."""
    cfg = training_config(*FLAGS, "--max-update", "30", "--lr-scheduler", "cosine")
    with open_dict(cfg):
        cfg.lr_scheduler.max_update = 3000
    options = training_options(cfg)
    assert options["max_update"] == "30"
    assert options["lr_scheduler_max_update"] == "3000"


def test_options_of_fairseq_models_are_known():
    options = training_options(training_config("--arch", "transformer_lm", "--dropout", "0.3"))
    assert options["dropout"] == "0.3"
