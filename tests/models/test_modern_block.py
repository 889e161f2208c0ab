"""The modern block compared with Llama and Qwen3 of transformers, with the same weights."""

from __future__ import annotations

import pytest
import torch
from conftest import build_model, random_tokens, small_model
from fairseq_runs import training_config
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from alibi_fairseq.positions import METHODS
from alibi_fairseq.results.series import Series
from alibi_fairseq.results.training_settings import collect_settings

PAD = 1
VOCABULARY = 64
#: Query heads, key and value heads.
HEADS = [(8, 8), (8, 4), (8, 2), (8, 1), (6, 2), (12, 3), (5, 1), (7, 7)]
#: Our names by transformers' names of a layer's weights. The gate and the values are one matrix.
NAMES = {
    "self_attn.q_proj": "self_attn.q_proj",
    "self_attn.k_proj": "self_attn.k_proj",
    "self_attn.v_proj": "self_attn.v_proj",
    "self_attn.o_proj": "self_attn.out_proj",
    "self_attn.q_norm": "self_attn.q_norm",
    "self_attn.k_norm": "self_attn.k_norm",
    "input_layernorm": "self_attn_layer_norm",
    "post_attention_layernorm": "final_layer_norm",
    "mlp.down_proj": "fc2",
}


def reference_model(heads: int, key_value_heads: int, normalized: bool):
    """Return a random Llama or, with normalized queries and keys, a random Qwen3."""
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 8 * heads,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": heads,
        "num_key_value_heads": key_value_heads,
        "head_dim": 8,
        "pad_token_id": PAD,
        "tie_word_embeddings": True,
        "rms_norm_eps": 1e-3,  # large enough to matter
        "initializer_range": 0.2,
    }
    model = LlamaForCausalLM(LlamaConfig(**sizes))
    if normalized:
        model = Qwen3ForCausalLM(Qwen3Config(**sizes))
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.data += 0.3 * torch.randn_like(parameter)
    return model.eval()


def our_names(weights: dict) -> dict:
    """Return weights, or gradients, of the reference by our names."""
    ours = {}
    for name, tensor in weights.items():
        path = name.removeprefix("model.").removesuffix(".weight")
        if path == "embed_tokens":
            ours["decoder.embed_tokens.weight"] = tensor
        elif path == "norm":
            ours["decoder.layer_norm.weight"] = tensor
        elif path.endswith("gate_proj"):
            up = weights[name.replace("gate_proj", "up_proj")]
            layer = path.removesuffix(".mlp.gate_proj")
            ours[f"decoder.{layer}.fc1.weight"] = torch.cat([tensor, up])
        elif "up_proj" not in path and path != "lm_head":
            _, number, part = path.split(".", 2)
            ours[f"decoder.layers.{number}.{NAMES[part]}.weight"] = tensor
    return ours


def our_model(reference, *flags: str):
    """Return our model with the weights of the reference."""
    config = reference.config
    heads = str(config.num_attention_heads)
    options = ["--position-method", "rotary", "--decoder-layers", "3", "--no-scale-embedding"]
    options += ["--decoder-attention-heads", heads, "--decoder-embed-dim", str(config.hidden_size)]
    options += ["--key-value-heads", str(config.num_key_value_heads)]
    options += ["--decoder-ffn-embed-dim", "40", "--rms-norm-eps", "1e-3", "--dropout", "0"]
    if isinstance(reference, Qwen3ForCausalLM):
        options.append("--normalize-queries-keys")
    model = build_model("--arch", "alibi_lm_modern", *options, *flags, words=VOCABULARY - 4)
    weights = our_names(reference.state_dict())
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected
    assert set(missing) <= {"decoder.version", "decoder.output_projection.weight"}
    return model.eval()


def loss_of(logits, tokens):
    return cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())


@pytest.mark.parametrize("backend", ["auto", "eager", "sdpa"])
@pytest.mark.parametrize("normalized", [False, True], ids=["llama", "qwen3"])
@pytest.mark.parametrize(("heads", "key_value_heads"), HEADS)
def test_logits_and_gradients_equal_transformers(heads, key_value_heads, normalized, backend):
    reference = reference_model(heads, key_value_heads, normalized)
    ours = our_model(reference, "--attention-backend", backend)
    tokens = random_tokens(2, 50)
    expected = reference(tokens).logits
    logits = ours(tokens)[0]
    atol = 1e-5 * expected.abs().max().item()
    torch.testing.assert_close(logits, expected, rtol=0, atol=atol)

    loss_of(logits, tokens).backward()
    loss_of(expected, tokens).backward()
    gradients = {name: parameter.grad for name, parameter in reference.named_parameters()}
    parameters = dict(ours.named_parameters())
    compared = our_names(gradients)
    assert compared.keys() == parameters.keys()
    for name, gradient in compared.items():
        atol = 1e-5 * gradient.abs().max().item()
        torch.testing.assert_close(parameters[name].grad, gradient, rtol=0, atol=atol)


@pytest.mark.parametrize("normalized", [False, True], ids=["llama", "qwen3"])
@pytest.mark.parametrize(("heads", "key_value_heads"), [(8, 2), (6, 3)])
@torch.no_grad()
def test_bf16_is_as_close_to_fp32_as_transformers(heads, key_value_heads, normalized):
    reference = reference_model(heads, key_value_heads, normalized)
    ours = our_model(reference).bfloat16()
    tokens = random_tokens(4, 50)
    exact = reference(tokens).logits
    their_error = (reference.bfloat16()(tokens).logits.float() - exact).abs().mean()
    our_error = (ours(tokens)[0].float() - exact).abs().mean()
    scale = exact.abs().mean()
    assert our_error < 1.25 * their_error
    assert our_error < 4 * torch.finfo(torch.bfloat16).eps * scale


@pytest.mark.parametrize("normalized", [False, True], ids=["llama", "qwen3"])
@pytest.mark.parametrize(("heads", "key_value_heads"), [(8, 2), (6, 3), (5, 5)])
@torch.no_grad()
def test_cached_decoding_of_left_padded_batch_equals_transformers(
    heads, key_value_heads, normalized
):
    reference = reference_model(heads, key_value_heads, normalized)
    ours = our_model(reference)
    tokens = random_tokens(3, 30)
    tokens[1, :7] = PAD
    tokens[2, :12] = PAD
    real = tokens != PAD
    state: dict = {}
    cache = None
    positions = (real.cumsum(1) - 1).clamp(min=0)
    for start, stop in ((0, 15), (15, 16), (16, 29), (29, 30)):
        output = reference(
            tokens[:, start:stop],
            attention_mask=real[:, :stop].long(),
            position_ids=positions[:, start:stop],
            past_key_values=cache,
            use_cache=True,
        )
        cache = output.past_key_values
        logits = ours.decoder(tokens[:, :stop], incremental_state=state)[0]
        visible = real[:, start:stop]
        atol = 1e-5 * output.logits.abs().max().item()
        torch.testing.assert_close(logits[visible], output.logits[visible], rtol=0, atol=atol)
    (key,) = {saved["prev_key"].shape[1] for saved in state.values()}
    assert key == key_value_heads  # the cache holds no repeated heads


#: Flags of a part of the modern block, and of all parts.
PARTS = [
    "--normalization rms",
    "--normalization rms --rms-norm-eps 1e-5",
    "--ffn swiglu",
    "--key-value-heads 2",
    "--normalize-queries-keys",
    "--no-linear-biases",
    "--normalization rms --ffn swiglu --key-value-heads 4 --normalize-queries-keys "
    "--no-linear-biases",
]


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_uses_every_parameter(method):
    model = small_model(method, *PARTS[-1].split()).train()
    tokens = random_tokens(2, 20)
    loss_of(model(tokens)[0], tokens).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all(), name
        # The first feature of an embedding may be zero, but not all gradients of a parameter.
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("checkpointing", ["--checkpoint-activations", "--offload-activations"])
def test_activation_checkpointing_keeps_gradients(part, checkpointing):
    plain = small_model("alibi", *part.split()).train()
    checkpointed = small_model("alibi", *part.split(), checkpointing).train()
    checkpointed.load_state_dict(plain.state_dict())
    tokens = random_tokens(2, 20)
    for model in (plain, checkpointed):
        torch.manual_seed(3)
        loss_of(model(tokens)[0], tokens).backward()
    for parameter, expected in zip(checkpointed.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, expected.grad)


@pytest.mark.ci
def test_models_with_different_parts_have_different_identities():
    identities = set()
    for part in ["", *PARTS]:
        cfg = training_config("--arch", "alibi_lm", *part.split())
        identities.add(Series(collect_settings(cfg, 1, None, None)))
    assert len(identities) == len(PARTS) + 1
