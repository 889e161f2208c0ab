"""Layers with equal biases share one mask, so biases are compared; tensors among their fields could not be."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from alibi_fairseq.positions import METHODS, PositionConfig, build_position_method
from alibi_fairseq.positions.alibi import LinearBias

MODELS = [*((name, {}) for name in METHODS), ("alibi", {"alibi_slopes": "trainable"})]


def test_equal_biases_are_one_bias():
    assert LinearBias(8) == LinearBias(8) != LinearBias(12)
    assert hash(LinearBias(8)) == hash(LinearBias(8))


@pytest.mark.parametrize("name, options", MODELS)
def test_comparing_biases_compares_no_tensors(name, options):
    """From Python 3.13 on, dataclasses compare fields without looking first whether they are one object."""
    bias = build_position_method(name, PositionConfig(64, 8, 2, 16, **options)).bias(0, 16)
    if bias is None or type(bias).__eq__ is object.__eq__:
        return
    assert hash(bias) == hash(dataclasses.replace(bias)) and bias == dataclasses.replace(bias)
    values = [getattr(bias, field.name) for field in dataclasses.fields(bias) if field.compare]
    assert not any(isinstance(value, torch.Tensor) for value in values)


def test_trainable_slopes_of_two_models_differ():
    config = PositionConfig(64, 8, 2, 16, alibi_slopes="trainable")
    first, second = (build_position_method("alibi", config) for _ in range(2))
    assert first.bias(0, 16) == first.bias(1, 16) != second.bias(0, 16)
