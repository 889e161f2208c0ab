"""Settings of a sweep compared with the options of the command line."""

from __future__ import annotations

import argparse
from dataclasses import fields

import pytest

from alibi_fairseq.cli.options import add_fields, fill_dataclass
from alibi_fairseq.evaluation.config import SweepConfig

#: Settings that differ from the default, by field.
CHANGES: dict[str, object] = {
    "lengths": (16, 1024),
    "strides": ("full", 8),
    "splits": ("valid", "test"),
    "overrides": {"attention_backend": "eager", "note": "with 'quotes' and spaces"},
    "per_document": "titles",
    "score_from": 40,
    "score_to": 80,
    "precision": "bf16",
    "device": "cpu",
    "memory_gb": 0.5,
}


def parse(arguments: list[str]) -> SweepConfig:
    """Return the settings that the command line reads from options."""
    parser = argparse.ArgumentParser()
    add_fields(parser, SweepConfig)
    return fill_dataclass(SweepConfig, parser.parse_args(arguments))


def test_config_changes_cover_every_field():
    assert [field.name for field in fields(SweepConfig)] == list(CHANGES)


@pytest.mark.parametrize("name", CHANGES)
def test_config_arguments_are_read_back(name):
    config = SweepConfig(**{"lengths": (16,), name: CHANGES[name]})
    assert config != SweepConfig(lengths=(16,))
    assert parse(config.flags()) == config


def test_config_lists_windows_once():
    config = SweepConfig(lengths=(16, 8), strides=("full", 8), splits=("valid",))
    assert config.windows() == [(16, 16), (16, 8), (8, 8)]
