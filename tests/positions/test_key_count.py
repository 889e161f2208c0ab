"""``depends_on_key_count`` compared with the effect of appended tokens on earlier features."""

from __future__ import annotations

import pytest
import torch
from conftest import random_tokens, small_model

from alibi_fairseq.attention.score_scale import SCORE_SCALINGS
from alibi_fairseq.positions import METHODS, all_options, method_options
from alibi_fairseq.positions.options import ROTARY_SCALINGS

TRAIN_LENGTH = 16
#: A scaling may begin past the training length, so the prefix ends there.
PREFIX = TRAIN_LENGTH
LENGTH = 48
EOS = 2

LONGROPE_FACTORS = ["--longrope-short-factors", "1,1,1,1", "--longrope-long-factors", "1,2,3,4"]


def rotary_scaling_flags() -> list[list[str]]:
    fixed = []
    dynamic = []
    for kind in ROTARY_SCALINGS:
        flags = ["--rotary-scaling", f"{kind}:2"]
        if kind == "longrope":
            flags += LONGROPE_FACTORS
        else:
            dynamic.append(["--rotary-scaling", f"{kind}:dynamic"])
        fixed.append(flags)
    return fixed + dynamic


#: Flags that set each option of a method; every new option needs an entry here.
OPTION_FLAGS = {
    "alibi_scale": [["--alibi-scale", "dynamic"], ["--alibi-scale", "2"]],
    "alibi_bias_max": [["--alibi-bias-max", "4"]],
    "alibi_slopes": [["--alibi-slopes", kind] for kind in ("trainable", "random", "even")],
    "alibi_distance": [["--alibi-distance", "log"]],
    "alibi_clamp": [["--alibi-clamp", "2"]],
    "alibi_cap": [["--alibi-cap", "4"]],
    "inkling_extent": [],  # changes the shape of the parameters
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
MODEL_OPTIONS = [("alibi", "--score-scaling", kind) for kind in SCORE_SCALINGS]
MODEL_OPTIONS += [
    ("alibi", "--attention-window", "8"),
    ("alibi", "--block-diagonal", "eos"),
    ("alibi", "--block-diagonal", "empty_line"),
]


def method_cases() -> list[tuple[str, ...]]:
    """Return each method without options, and with each of its options."""
    cases = [(method,) for method in METHODS]
    for method in METHODS:
        for option in method_options(method):
            cases += [(method, *flags) for flags in OPTION_FLAGS.get(option, [])]
    return cases


def random_model(flags: tuple[str, ...]):
    model = small_model(*flags, tokens_per_sample=TRAIN_LENGTH, sequential=True).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def tokens_with_empty_line(length: int) -> torch.Tensor:
    tokens = random_tokens(2, length)
    tokens[:, 5:7] = EOS
    return tokens


def test_every_option_of_a_method_is_tested():
    assert OPTION_FLAGS.keys() == set(all_options())


@pytest.mark.parametrize("flags", method_cases() + MODEL_OPTIONS, ids=" ".join)
@torch.no_grad()
def test_key_count_property_equals_measured_behavior(flags):
    prefix_length = PREFIX
    length = LENGTH
    if flags == ("learned",):  # has no positions past the training length
        prefix_length = TRAIN_LENGTH // 2
        length = TRAIN_LENGTH
    model = random_model(flags)
    tokens = tokens_with_empty_line(length)
    prefix = model.decoder.extract_features(tokens[:, :prefix_length])[0]
    whole = model.decoder.extract_features(tokens)[0][:, :prefix_length]
    change = (whole - prefix).abs().max().item()
    if model.decoder.embed_positions.depends_on_key_count:
        assert change > 1e-3
    else:
        assert change < 1e-6


#: Cases left out: learned positions end at the training length, and no memory is passed here.
NO_OTHER_SCORES = ("--clamp-learned-positions", "--mem-len", "none")
CASES_WITH_OTHER_SCORES = []
for case in method_cases() + MODEL_OPTIONS:
    if len(case) > 1 and not set(NO_OTHER_SCORES).intersection(case):
        CASES_WITH_OTHER_SCORES.append(case)


@pytest.mark.parametrize("flags", CASES_WITH_OTHER_SCORES, ids=" ".join)
@torch.no_grad()
def test_option_changes_scores(flags):
    model = random_model(flags)
    plain = random_model(flags[:1])
    plain.load_state_dict(model.state_dict(), strict=False)  # an option may add parameters
    tokens = tokens_with_empty_line(LENGTH)
    assert (model(tokens)[0] - plain(tokens)[0]).abs().max() > 1e-3
