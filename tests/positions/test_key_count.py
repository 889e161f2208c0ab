"""``depends_on_key_count`` against what appending tokens does to the features of a prefix."""

from __future__ import annotations

import pytest
import torch
from conftest import random_tokens, small_model

from alibi_fairseq.attention.score_scale import SCORE_SCALINGS
from alibi_fairseq.positions import METHOD_OPTIONS, METHODS
from alibi_fairseq.positions.rotary_frequencies import SCALINGS

#: A scaling may begin past the training length, so the prefix ends there.
TRAIN_LENGTH = PREFIX = 16
LENGTH = 48

LONGROPE_FACTORS = ["--longrope-short-factors", "1,1,1,1", "--longrope-long-factors", "1,2,3,4"]


def rotary_scaling_flags() -> list[list[str]]:
    flags = [["--rotary-scaling", f"{kind}:2"] for kind in SCALINGS]
    flags += [["--rotary-scaling", f"{kind}:dynamic"] for kind in SCALINGS if kind != "longrope"]
    return [each + LONGROPE_FACTORS if "longrope:2" in each else each for each in flags]


#: Flags that set each option of a method; every new option needs an entry here.
OPTION_FLAGS = {
    "alibi_scale": [["--alibi-scale", "dynamic"], ["--alibi-scale", "2"]],
    "alibi_bias_max": [["--alibi-bias-max", "4"]],
    "alibi_slopes": [["--alibi-slopes", "trainable"], ["--alibi-slopes", "random"]],
    "clamp_learned_positions": [["--clamp-learned-positions"]],
    "rotary_base": [["--rotary-base", "500"]],
    "rotary_percent": [["--rotary-percent", "0.5"]],
    "p_rope": [["--p-rope", "0.5"]],
    "rotary_scaling": rotary_scaling_flags(),
    "longrope_short_factors": [],  # with rotary_scaling
    "longrope_long_factors": [],
    "t5_max_distance": [["--t5-max-distance", "20"]],
    "mem_len": [["--mem-len", "8"]],
}
#: Options of models with any method.
MODEL_OPTIONS = [
    *(("alibi", "--score-scaling", kind) for kind in SCORE_SCALINGS),
    ("alibi", "--attention-window", "8"),
    ("alibi", "--block-diagonal", "eos"),
    ("alibi", "--block-diagonal", "empty_line"),
]


CASES = [(method,) for method in METHODS]
for _method, _class in METHODS.items():
    for _option in _class.options:
        CASES += [(_method, *flags) for flags in OPTION_FLAGS.get(_option, [])]


def test_every_option_of_a_method_is_tested():
    assert OPTION_FLAGS.keys() == set(METHOD_OPTIONS)


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
