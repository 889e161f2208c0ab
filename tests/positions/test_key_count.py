"""``depends_on_key_count`` against what appending tokens does to the features of a prefix."""

from __future__ import annotations

import pytest
import torch
from conftest import random_tokens, small_model

from alibi_fairseq.attention.score_scale import SCORE_SCALINGS
from alibi_fairseq.positions import METHOD_OPTIONS, METHODS
from alibi_fairseq.positions.rotary import SCALINGS

TRAIN_LENGTH, PREFIX, LENGTH = 16, 24, 48

#: Values of each option of a method; every new option needs an entry here.
OPTION_VALUES = {
    "alibi_scale": ["dynamic", "2"],
    "alibi_bias_max": ["4"],
    "alibi_slopes": ["trainable", "random"],
    "clamp_learned_positions": [None],
    "rotary_scaling": [f"{kind}:{factor}" for kind in SCALINGS for factor in ("dynamic", "2")],
    "t5_max_distance": ["20"],
    "mem_len": ["8"],
}
#: Options of models with any method.
MODEL_OPTIONS = [
    *(("alibi", "--score-scaling", kind) for kind in SCORE_SCALINGS),
    ("alibi", "--attention-window", "8"),
    ("alibi", "--block-diagonal", "eos"),
    ("alibi", "--block-diagonal", "empty_line"),
]


def flag(option: str, value: str | None) -> list[str]:
    name = "--" + option.replace("_", "-")
    return [name] if value is None else [name, value]


CASES = [(method,) for method in METHODS]
for _method, _class in METHODS.items():
    for _option in _class.options:
        CASES += [(_method, *flag(_option, value)) for value in OPTION_VALUES.get(_option, [])]


def test_every_option_of_a_method_is_tested():
    assert OPTION_VALUES.keys() == set(METHOD_OPTIONS)


@pytest.mark.parametrize("flags", CASES + MODEL_OPTIONS, ids=" ".join)
@torch.no_grad()
def test_key_count_property_equals_measured_behavior(flags):
    lengths = {"prefix": PREFIX, "whole": LENGTH}
    if flags == ("learned",):  # has no positions past the training length
        lengths = {"prefix": TRAIN_LENGTH // 2, "whole": TRAIN_LENGTH}
    model = small_model(*flags, tokens_per_sample=TRAIN_LENGTH, sequential=True).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    tokens = random_tokens(2, lengths["whole"])
    tokens[:, 5:7] = model.decoder.dictionary.eos()
    prefix = model.decoder.extract_features(tokens[:, : lengths["prefix"]])[0]
    whole = model.decoder.extract_features(tokens)[0][:, : lengths["prefix"]]
    change = (whole - prefix).abs().max().item()
    if model.decoder.embed_positions.depends_on_key_count:
        assert change > 1e-3
    else:
        assert change < 1e-6
