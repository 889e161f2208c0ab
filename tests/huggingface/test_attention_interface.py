"""``attn_implementation="alibi_fairseq"`` against transformers' own attention.

Run this file, too, with each version for which ``test_transformers_versions.py`` is run.
"""

from __future__ import annotations

import copy
import re

import pytest
import torch
from commands import ROOT
from torch.nn.functional import pad
from transformers import (
    AttentionInterface,
    AutoModelForCausalLM,
    BloomConfig,
    DynamicCache,
    FalconConfig,
    GPTNeoXConfig,
    LlamaConfig,
    MptConfig,
    StaticCache,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.models.falcon.modeling_falcon import build_alibi_tensor
from transformers.models.gpt_neox.modeling_gpt_neox import eager_attention_forward

from alibi_fairseq.attention import eager
from alibi_fairseq.huggingface.attention import NAME, attend_without_positions, register
from alibi_fairseq.huggingface.configuration_alibi_lm import AlibiLmConfig
from alibi_fairseq.huggingface.modeling_alibi_lm import CACHE, AlibiLmForCausalLM
from alibi_fairseq.huggingface.positions_alibi_lm import POSITIONS, alibi_slopes

PAD = 1
WORDS = 60
MODELS = ["bloom", "mpt", "falcon", "gpt_neox"]
#: Falcon rounds slopes to bf16, which is exact for these numbers of heads, but not for 12 or 32.
HEADS = [2, 3, 4, 6, 8]


@pytest.fixture(autouse=True)
def _registered():
    register()


def config_of(name, heads=4, **changes):
    """Return the configuration of a small model without dropout."""
    width = 8 * heads
    special = dict(vocab_size=WORDS, bos_token_id=2, eos_token_id=2, pad_token_id=PAD)
    if name == "bloom":
        values = dict(hidden_size=width, n_layer=2, n_head=heads)
        return BloomConfig(**special | values | changes)
    if name == "mpt":
        values = dict(d_model=width, n_heads=heads, n_layers=2, max_seq_len=32, use_cache=True)
        return MptConfig(**special | values | changes)
    values = dict(hidden_size=width, num_hidden_layers=2, num_attention_heads=heads)
    if name == "falcon":
        values |= dict(alibi=True, multi_query=False)
        return FalconConfig(**special | values | changes)
    values |= dict(intermediate_size=48, rotary_pct=0.0)
    return GPTNeoXConfig(**special | values | changes)


def eager_alibi(module, query, key, value, attention_mask, **options):
    """Add ALiBi to transformers' mask in memory, (B, 1, T, S), and attend eagerly."""
    heads, queries = query.shape[1:3]
    keys = key.shape[2]
    distance = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)
    slopes = torch.tensor(alibi_slopes(heads, 8.0)).view(heads, 1, 1)
    bias = -slopes * distance
    return eager_attention_forward(module, query, key, value, attention_mask + bias, **options)


@pytest.fixture
def reference_for_models_without_positions(monkeypatch):
    """Make ``eager`` of GPT-NeoX compute ALiBi."""
    module = "transformers.models.gpt_neox.modeling_gpt_neox.eager_attention_forward"
    monkeypatch.setattr(module, eager_alibi)


def models_of(name, heads=4, **changes):
    """Return a model with ``alibi_fairseq``, and the same weights with transformers' attention."""
    # In transformers 5.23 and 5.24, eager Falcon adds ALiBi twice.
    reference_attention = "sdpa" if name == "falcon" else "eager"
    pair = []
    for attention in (NAME, reference_attention):
        config = config_of(name, heads, **changes)
        model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
        assert model.config._attn_implementation == attention
        pair.append(model.eval())
    ours, reference = pair
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    ours.load_state_dict(reference.state_dict())
    return ours, reference


def halve_bias_of_falcon(monkeypatch):
    """Correct eager Falcon, which adds ALiBi twice."""

    def build_half(*arguments, **keywords):
        return build_alibi_tensor(*arguments, **keywords) / 2

    module = "transformers.models.falcon.modeling_falcon"
    monkeypatch.setattr(f"{module}.build_alibi_tensor", build_half)


def attention_layers(model):
    return [module for module in model.modules() if type(module).__name__.endswith("Attention")]


def call_layer(name, layer, states, **options):
    """Return the output of an attention layer without padding."""
    no_padding = torch.zeros(len(states), 0, dtype=torch.bool)
    arguments = dict(attention_mask=no_padding, **options)
    if name == "bloom":
        return layer(states, torch.zeros_like(states), alibi=None, **arguments)[0]
    if name == "falcon":
        return layer(states, alibi=None, **arguments)[0]
    return layer(states, position_bias=None, **arguments)[0]


def random_rows(batch, length):
    return torch.randint(4, WORDS, (batch, length))


def assert_close(actual, expected, tolerance=2e-5):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


pytestmark = [
    pytest.mark.usefixtures("reference_for_models_without_positions"),
    pytest.mark.filterwarnings("error::FutureWarning"),
]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("heads", HEADS)
@torch.no_grad()
def test_logits_equal_transformers(name, heads):
    ours, reference = models_of(name, heads)
    tokens = random_rows(2, 24)
    assert_close(ours(tokens).logits, reference(tokens).logits)


@pytest.mark.parametrize("name", ["bloom", "mpt", "gpt_neox"])
@torch.no_grad()
def test_twelve_heads(name):
    ours, reference = models_of(name, 12)
    tokens = random_rows(2, 24)
    assert_close(ours(tokens).logits, reference(tokens).logits)


@torch.no_grad()
def test_falcon_slopes_are_rounded_as_in_transformers():
    """Test the first tokens, for which slope times position needs no second rounding."""
    ours, reference = models_of("falcon", 32)
    tokens = random_rows(2, 3)
    assert_close(ours(tokens).logits, reference(tokens).logits)


@torch.no_grad()
def test_bloom_in_half_precision_is_closer_to_fp32():
    ours, reference = models_of("bloom")
    tokens = random_rows(1, 400)
    errors = []
    for parameter in reference.parameters():
        parameter.copy_(parameter.bfloat16())
    expected = reference(tokens).logits
    for model in (ours, copy.deepcopy(reference)):
        model.load_state_dict(reference.state_dict())
        errors.append((model.bfloat16()(tokens).logits - expected).abs().mean())
    assert errors[0] < 0.7 * errors[1]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_padding_is_hidden(name, side):
    ours, reference = models_of(name)
    rows = [random_rows(1, length) for length in (24, 17, 9)]
    widths = [(24 - row.shape[1], 0) if side == "left" else (0, 24 - row.shape[1]) for row in rows]
    tokens = torch.cat([pad(row, width, value=PAD) for row, width in zip(rows, widths)])
    real = tokens.ne(PAD)
    logits = ours(tokens, attention_mask=real.long()).logits
    expected = reference(tokens, attention_mask=real.long()).logits
    assert_close(logits[real], expected[real])
    for row, row_logits, row_real in zip(rows, logits, real):
        assert_close(row_logits[row_real], ours(row).logits[0])


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_cached_tokens_in_parts(name):
    ours, reference = models_of(name)
    tokens = pad(random_rows(2, 20), (4, 0), value=PAD)
    tokens[1, :4] = 7
    mask = tokens.ne(PAD).long()
    expected = reference(tokens, attention_mask=mask).logits
    cache = None
    logits = []
    start = 0
    for part in tokens.split((9, 1, 6, 8), dim=1):
        start += part.shape[1]
        output = ours(part, attention_mask=mask[:, :start], **{CACHE: cache}, use_cache=True)
        cache = output[CACHE]
        logits.append(output.logits)
    assert_close(torch.cat(logits, 1)[mask.bool()], expected[mask.bool()])


@pytest.mark.parametrize(
    ("name", "keyword"),
    [
        ("bloom", "layer_past"),
        ("mpt", "past_key_values"),  # transformers 5.23
        ("mpt", "cache"),  # 5.24
        ("falcon", "layer_past"),
    ],
)
@torch.no_grad()
def test_layers_accept_the_cache_of_each_version(name, keyword):
    """Test two calls of a layer with a cache against one call, in any installed version."""
    layer = attention_layers(models_of(name)[0])[0]
    states = torch.randn(2, 12, 32)
    expected = call_layer(name, layer, states)
    cache = DynamicCache()
    parts = [call_layer(name, layer, part, **{keyword: cache}) for part in states.split((7, 5), 1)]
    assert_close(torch.cat(parts, 1), expected)


@pytest.mark.parametrize("name", ["bloom", "mpt", "falcon"])
def test_layers_reject_unknown_arguments(name):
    """Test that a cache whose keyword a later version renames is not ignored."""
    layer = attention_layers(models_of(name)[0])[0]
    with pytest.raises(TypeError, match="unexpected keyword argument 'renamed_cache'"):
        call_layer(name, layer, torch.randn(2, 12, 32), renamed_cache=DynamicCache())


@pytest.mark.parametrize("name", MODELS)
def test_generate_equals_transformers(name):
    ours, reference = models_of(name)
    prompts = pad(random_rows(2, 7), (3, 0), value=PAD)
    prompts[1, :3] = 5
    options = dict(attention_mask=prompts.ne(PAD).long(), do_sample=False, max_new_tokens=12)
    assert ours.generate(prompts, **options).tolist() == (
        reference.generate(prompts, **options).tolist()
    )
    beams = ours.generate(prompts, num_beams=3, **options)
    assert beams.tolist() == reference.generate(prompts, num_beams=3, **options).tolist()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradients_equal_transformers(name, padded, checkpointing):
    ours, reference = models_of(name)
    tokens = random_rows(2, 24)
    labels = tokens.clone()
    mask = torch.ones_like(tokens)
    if padded:
        mask[0, :5] = 0
        labels[0, :6] = -100
    for model in (ours, reference):
        model.train()
        if checkpointing:
            model.activation_checkpointing_enable()
        model(tokens, attention_mask=mask, labels=labels, use_cache=False).loss.backward()
    expected = dict(reference.named_parameters())
    for key, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[key].grad, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("name", MODELS)
def test_attention_dropout_acts_in_training_only(name):
    options = dict(attn_config={"attn_pdrop": 1}) if name == "mpt" else dict(attention_dropout=1.0)
    ours, reference = models_of(name, **options)
    tokens = random_rows(1, 8)
    changes = []

    def note_output(module, arguments, output):
        residual = arguments[1] if name == "bloom" else 0  # BLOOM's module adds it
        changes.append(output[0] - residual)

    with torch.no_grad():
        assert_close(ours(tokens).logits, reference(tokens).logits)
        attention_layers(ours)[0].register_forward_hook(note_output)
        ours.train()
        for row in random_rows(2, 8):
            ours(row[None])
    # All weights are dropped, so the output does not depend on the tokens.
    assert_close(*changes)


@pytest.mark.parametrize("name", ["bloom", "falcon", "gpt_neox"])
@torch.no_grad()
def test_attention_weights(name, monkeypatch):
    ours, reference = models_of(name)
    if name == "falcon":
        halve_bias_of_falcon(monkeypatch)
    tokens = random_rows(2, 12)
    weights = ours(tokens, output_attentions=True).attentions
    expected = reference(tokens, output_attentions=True).attentions
    assert_close(torch.stack(weights), torch.stack(expected))


@pytest.mark.parametrize(
    "options", [dict(multi_query=True), dict(new_decoder_architecture=True, num_kv_heads=2)]
)
@torch.no_grad()
def test_falcon_with_shared_keys(options):
    ours, reference = models_of("falcon", **options)
    tokens = random_rows(2, 24)
    assert_close(ours(tokens).logits, reference(tokens).logits)
    assert_close(ours(tokens[:, :9], use_cache=True).logits, reference(tokens[:, :9]).logits)


@torch.no_grad()
def test_mpt_scale_and_clipping():
    options = {"softmax_scale": 0.7, "clip_qkv": 0.3}
    ours, reference = models_of("mpt", attn_config=options)
    tokens = random_rows(2, 24)
    assert_close(ours(tokens).logits, reference(tokens).logits)


@torch.no_grad()
def test_mpt_extrapolates_past_its_configured_length():
    ours, reference = models_of("mpt")
    tokens = random_rows(1, 70)  # max_seq_len is 32
    longer_reference = AutoModelForCausalLM.from_config(
        config_of("mpt", max_seq_len=128), attn_implementation="eager"
    ).eval()
    longer_reference.load_state_dict(reference.state_dict())
    assert_close(ours(tokens).logits, longer_reference(tokens).logits)
    with pytest.raises(RuntimeError):
        reference(tokens)


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_long_rows_use_a_linear_backend(name, monkeypatch):
    """Fail if a call materializes all scores: eager attention is the quadratic backend."""

    def fail(*arguments):
        raise AssertionError("eager attention")

    monkeypatch.setattr(eager, "attend_with_weights", fail)
    ours, reference = models_of(name, max_seq_len=512) if name == "mpt" else models_of(name)
    # From position 256 on, Falcon rounds slope times position to bf16.
    tokens = random_rows(1, 256 if name == "falcon" else 400)
    assert_close(ours(tokens).logits, reference(tokens).logits, tolerance=1e-4)


def test_a_four_dimensional_mask_selects_transformers_attention():
    ours, reference = models_of("bloom")
    tokens = random_rows(1, 12)
    mask = torch.full((12, 12), torch.finfo(torch.float32).min).triu(1)[None, None]
    with torch.no_grad():
        bloom = ours.transformer
        hidden = bloom.word_embeddings_layernorm(bloom.word_embeddings(tokens))
        alibi = bloom.build_alibi_tensor(torch.ones(1, 12), 4, torch.float32)
        layers = [model.transformer.h[0].self_attention for model in (ours, reference)]
        outputs = [layer(hidden, hidden, alibi, attention_mask=mask)[0] for layer in layers]
    torch.testing.assert_close(*outputs, rtol=0, atol=0)


def test_rotary_models_are_rejected():
    config = LlamaConfig(
        vocab_size=WORDS,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        pad_token_id=PAD,
    )
    model = AutoModelForCausalLM.from_config(config, attn_implementation=NAME)
    with pytest.raises(ValueError, match="'llama' has rotary positions"):
        model(random_rows(1, 8))
    ours = AutoModelForCausalLM.from_config(
        config_of("falcon", alibi=False), attn_implementation=NAME
    )
    with pytest.raises(ValueError, match="'falcon' has rotary positions"):
        ours(random_rows(1, 8))


@pytest.mark.parametrize("method", sorted(POSITIONS))
@torch.no_grad()
def test_exported_models_with_positions_are_rejected(method):
    """Test all position methods of our own format; without positions, ALiBi is added."""
    special = dict(vocab_size=WORDS, hidden_size=32, intermediate_size=48, num_hidden_layers=2)
    config = AlibiLmConfig(**special, num_attention_heads=4, position_method=method)
    model = AlibiLmForCausalLM._from_config(config, attn_implementation=NAME).eval()
    tokens = random_rows(1, 24)
    if method != "none":
        with pytest.raises(ValueError, match=f"'alibi_lm' has {method} positions"):
            model(tokens)
        return
    config = copy.deepcopy(config)
    config.position_method = "alibi"
    reference = AlibiLmForCausalLM._from_config(config, attn_implementation="eager").eval()
    reference.load_state_dict(model.state_dict())
    assert_close(model(tokens).logits, reference(tokens).logits)


def test_position_biases_are_rejected():
    """Test the keyword in which transformers' models pass a score bias of their own."""
    layer = attention_layers(models_of("gpt_neox")[0])[0]
    q, k, v = torch.randn(3, 1, 4, 6, 8)
    no_padding = torch.zeros(1, 0, dtype=torch.bool)
    with pytest.raises(ValueError, match="'gpt_neox' has a position bias"):
        attend_without_positions(layer, q, k, v, no_padding, position_bias=torch.zeros(1, 4, 6, 6))


def test_packed_rows_are_rejected():
    ours, _ = models_of("gpt_neox")
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3]])
    with pytest.raises(ValueError, match="packed with several sequences"):
        ours(random_rows(1, 8), position_ids=positions, use_cache=False)


def test_padding_between_tokens_is_rejected():
    ours, _ = models_of("bloom")
    mask = torch.tensor([[1, 1, 0, 0, 1, 1, 1, 1]])
    with pytest.raises(ValueError, match="padding between tokens"):
        ours(random_rows(1, 8), attention_mask=mask)


def test_static_caches_are_rejected():
    ours, _ = models_of("bloom")
    cache = StaticCache(config=ours.config, max_cache_len=16)
    with pytest.raises(ValueError, match="with a DynamicCache"):
        ours(random_rows(1, 8), **{CACHE: cache}, use_cache=True)


@torch.no_grad()
def test_documented_example(tmp_path, monkeypatch):
    _, reference = models_of("bloom")
    reference.save_pretrained(tmp_path / "models" / "bloom-560m")
    text = (ROOT / "docs" / "hugging-face-alibi.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (example,) = [block for block in blocks if "attention.register" in block]
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(example, names)
    tokens = random_rows(1, 12)
    assert_close(names["model"](tokens).logits, reference(tokens).logits)


# What docs/hugging-face-alibi.md says about other attention implementations.


def with_attention(model, attention):
    """Return a copy of a model with another attention implementation."""
    config = copy.deepcopy(model.config)
    copied = AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()
    copied.load_state_dict(model.state_dict())
    return copied


@pytest.mark.parametrize("name", ["bloom", "mpt"])
@pytest.mark.parametrize("attention", ["sdpa", "flex_attention", "flash_attention_2"])
def test_bloom_and_mpt_reject_other_attention(name, attention):
    _, reference = models_of(name)
    with pytest.raises(ValueError, match="does not support"):
        with_attention(reference, attention)


@pytest.mark.parametrize("attention", ["flex_attention", "flash_attention_2"])
def test_falcon_rejects_flex_and_flash_attention(attention):
    _, reference = models_of("falcon")
    with pytest.raises((ValueError, ImportError)):
        with_attention(reference, attention)


@torch.no_grad()
def test_eager_falcon_adds_alibi_twice(monkeypatch):
    _, reference = models_of("falcon")
    eager = with_attention(reference, "eager")
    tokens = random_rows(2, 24)
    expected = reference(tokens).logits
    assert (eager(tokens).logits - expected).abs().max() > 0.01
    weights = reference(tokens, output_attentions=True)
    assert_close(weights.logits, eager(tokens).logits)
    halve_bias_of_falcon(monkeypatch)
    assert_close(eager(tokens).logits, expected)


@pytest.mark.parametrize("attention", ["custom", "paged|eager"])
@torch.no_grad()
def test_bloom_drops_its_causal_mask(attention):
    """Test attention functions without a mask function."""
    AttentionInterface.register("custom", sdpa_attention_forward)
    _, reference = models_of("bloom")
    custom = with_attention(reference, attention)
    tokens = random_rows(1, 20)
    changed = tokens.clone()
    changed[0, -1] = 4 + (tokens[0, -1] - 3) % 56
    for model, is_causal in ((reference, True), (custom, False)):
        difference = (model(changed).logits[:, 0] - model(tokens).logits[:, 0]).abs().max()
        assert (difference == 0) == is_causal


@pytest.mark.parametrize("options", [{"alibi_bias_max": 16}, {"alibi": False}], ids=str)
@torch.no_grad()
def test_mpt_ignores_the_options_of_alibi(options):
    _, reference = models_of("mpt")
    tokens = random_rows(1, 20)
    config = config_of("mpt", attn_config=options)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    model.load_state_dict(reference.state_dict())
    torch.testing.assert_close(model(tokens).logits, reference(tokens).logits, rtol=0, atol=0)
