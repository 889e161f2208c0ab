"""ALiBi's slopes and bias against published values and other people's code."""

from __future__ import annotations

import math

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq_runs import run_train, write_corpus
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

from alibi_fairseq.errors import BadInput
from alibi_fairseq.positions import PositionConfig, alibi_slopes, build_position_method
from alibi_fairseq.positions.alibi import LinearBias

LITERAL = {
    1: [2**-8],
    2: [2**-4, 2**-8],
    4: [2**-2, 2**-4, 2**-6, 2**-8],
    8: [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256],
    12: [
        *[0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625],
        *[0.70710678, 0.35355339, 0.17677670, 0.08838835],
    ],
    16: [2 ** (-(head + 1) / 2) for head in range(16)],
}


@pytest.mark.parametrize("heads", LITERAL)
def test_slopes_have_the_published_values(heads):
    torch.testing.assert_close(alibi_slopes(heads), torch.tensor(LITERAL[heads]))


@pytest.mark.parametrize("heads", range(1, 129))
def test_slopes_agree_with_a_second_derivation(heads):
    # From the next power of two above: its odd slopes are those of the power below, in order; the
    # even ones fill up. This is how MPT arrives at the authors' order.
    above = 2 ** math.ceil(math.log2(heads))
    closed = [2 ** (-8 * (i + 1) / above) for i in range(above)]
    expected = closed if above == heads else (closed[1::2] + closed[0::2])[:heads]
    torch.testing.assert_close(alibi_slopes(heads), torch.tensor(expected))


@pytest.mark.parametrize("heads", [1, 2, 8, 12, 16, 20, 25, 40])
def test_slopes_equal_those_of_bloom_and_mpt(heads):
    bloom = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)  # (H, 1, 2), slope · key
    torch.testing.assert_close(alibi_slopes(heads), bloom[:, 0, 1])
    mpt = build_mpt_alibi_tensor(heads, 2)  # (H, 1, 2), keys −1 and 0
    torch.testing.assert_close(alibi_slopes(heads), -mpt.view(heads, 2)[:, 0])


def test_no_heads_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        alibi_slopes(0)


@pytest.mark.parametrize("heads", [1, 8, 12])
def test_bias_falls_linearly_with_distance(heads):
    distance = torch.tensor([[0, 1], [7, 16384]])
    expected = -alibi_slopes(heads).double()[:, None, None] * distance
    bias = LinearBias(heads).at(distance)
    assert bias.dtype == torch.float32
    torch.testing.assert_close(bias.double(), expected, rtol=1e-7, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_bias_keeps_its_precision_near_the_query_in_half_types(dtype):
    # The authors' form slope·key at key 16,383 is a multiple of 4 in fp16 (32 in bf16): a query
    # could not tell its neighbours apart. The relative form can, wherever the query stands.
    bias = LinearBias(8).at(torch.arange(8)).to(dtype).double()  # (H, 8)
    exact = -alibi_slopes(8).double()[:, None] * torch.arange(8)
    torch.testing.assert_close(bias, exact, rtol=0, atol=0)


@pytest.mark.parametrize("heads", [1, 8, 12])
@pytest.mark.parametrize("bias_max", [4, 16])
def test_bias_max_is_that_of_llm_foundry(heads, bias_max):
    mpt = build_mpt_alibi_tensor(heads, 2, alibi_bias_max=bias_max)  # (H, 1, 2), keys −1 and 0
    slopes = -mpt.view(heads, 2)[:, 0]
    torch.testing.assert_close(alibi_slopes(heads, bias_max), slopes)
    config = PositionConfig(8 * heads, heads, 1, 16, alibi_bias_max=bias_max)
    bias = build_position_method("alibi", config).bias(0, 16)
    torch.testing.assert_close(bias.slopes(torch.device("cpu")), slopes)


@pytest.mark.parametrize("bias_max", [0.0, -8.0, math.inf, math.nan])
def test_a_bias_max_that_gives_no_slopes_is_bad_input(bias_max):
    with pytest.raises(BadInput, match="--alibi-bias-max must be a positive number"):
        build_position_method("alibi", PositionConfig(64, 8, 1, 16, alibi_bias_max=bias_max))


def test_bias_max_is_stored_with_the_model(tmp_path):
    data = write_corpus(tmp_path, train=300, valid=50)
    flags = "--task language_modeling --tokens-per-sample 16 --max-tokens 64 --max-update 2 --alibi-bias-max 4"
    run_train(data, tmp_path / "model", "--position-method", "alibi", *flags.split())
    checkpoint = str(tmp_path / "model" / "checkpoint_last.pt")
    (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task([checkpoint])
    assert model.decoder.embed_positions.bias(0, 16).bias_max == 4
