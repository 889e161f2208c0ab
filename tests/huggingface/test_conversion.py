"""Converted models compared with the original decoders."""

from __future__ import annotations

import pytest
import torch
from conftest import build_model, random_tokens, small_model
from exported import ADAPTIVE, BLOOM, LLAMA, LONGROPE, QWEN3, TIED, converted, perturbed
from transformers import AutoModelForCausalLM

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.huggingface.configuration_alibi_lm import AlibiLmConfig
from alibi_fairseq.huggingface.export import save_model
from alibi_fairseq.huggingface.modeling_alibi_lm import AlibiLmForCausalLM
from alibi_fairseq.huggingface.positions_alibi_lm import POSITIONS
from alibi_fairseq.positions.xpos import last_position

EOS = 2
PAD = 1

#: Position method, options of training, heads, architecture.
MODELS = [
    ("alibi", BLOOM, 8, "BLOOM"),
    ("alibi", BLOOM, 5, "BLOOM"),
    ("alibi", f"{BLOOM} --no-scale-embedding", 12, "BLOOM"),
    ("alibi", f"{BLOOM} --no-decoder-final-norm", 8, "alibi_lm"),
    ("alibi", "", 8, "alibi_lm"),
    ("alibi", "--no-decoder-normalize-before", 3, "alibi_lm"),
    ("alibi", ADAPTIVE, 6, "alibi_lm"),
    ("alibi", TIED, 8, "alibi_lm"),
    ("alibi", f"{ADAPTIVE} --decoder-output-dim 32", 8, "alibi_lm"),
    ("alibi", "--alibi-scale 2.5", 8, "alibi_lm"),
    ("alibi", "--alibi-scale dynamic", 8, "alibi_lm"),
    ("alibi", "--decoder-input-dim 16 --decoder-output-dim 16", 8, "alibi_lm"),
    ("alibi", "--attention-window 5", 8, "alibi_lm"),
    ("alibi", f"{BLOOM} --attention-window 31", 8, "alibi_lm"),
    ("sinusoidal", f"{TIED} --attention-window 2", 8, "alibi_lm"),
    ("learned", "", 8, "OPT"),
    ("learned", "--no-decoder-normalize-before --activation-fn gelu", 6, "OPT"),
    ("learned", "--decoder-input-dim 16 --decoder-output-dim 16", 8, "OPT"),
    ("learned", TIED, 8, "alibi_lm"),
    ("learned", "--clamp-learned-positions", 8, "alibi_lm"),
    ("sinusoidal", "", 8, "XGLM"),
    ("sinusoidal", "--no-share-decoder-input-output-embed", 5, "XGLM"),
    ("sinusoidal", "--no-decoder-final-norm", 8, "alibi_lm"),
    ("rotary", "", 6, "GPT-NeoX"),
    ("rotary", "--rotary-base 500000", 8, "GPT-NeoX"),
    ("rotary", "--rotary-percent 0.25", 6, "GPT-NeoX"),
    ("rotary", "--p-rope 0.5", 8, "GPT-NeoX"),
    ("rotary", "--p-rope 0.75 --rotary-scaling pi:4", 8, "GPT-NeoX"),
    ("rotary", "--rotary-scaling ntk:4 --rotary-percent 0.5", 8, "GPT-NeoX"),
    ("rotary", "--rotary-scaling yarn:4:16:2:16", 8, "GPT-NeoX"),
    ("rotary", "--rotary-scaling llama3:8", 8, "GPT-NeoX"),
    ("rotary", f"--rotary-scaling longrope:4 {LONGROPE}", 8, "GPT-NeoX"),
    ("rotary", TIED, 8, "alibi_lm"),
    ("rotary", f"{TIED} --rotary-base 500000 --rotary-percent 0.5", 8, "alibi_lm"),
    ("rotary", "--p-rope 0.5 --attention-window 5", 8, "alibi_lm"),
    ("rotary", f"{TIED} --p-rope 0.75 --rotary-scaling pi:4", 8, "alibi_lm"),
    ("rotary", f"{TIED} --rotary-scaling pi:4", 8, "alibi_lm"),
    ("rotary", "--attention-window 5", 8, "alibi_lm"),
    ("none", "", 8, "GPT-NeoX"),
    ("none", "--layernorm-embedding", 8, "alibi_lm"),
    ("xpos", "", 8, "alibi_lm"),
    ("t5", "", 12, "alibi_lm"),
    ("kerple", "", 8, "alibi_lm"),
    ("sandwich", "", 5, "alibi_lm"),
    ("transformer_xl", "", 6, "alibi_lm"),
    ("alibi", "--attention-window 40", 8, "alibi_lm"),
    ("t5", "--attention-window 40", 8, "alibi_lm"),
    ("rotary", LLAMA, 8, "Llama"),
    ("rotary", f"{LLAMA} --key-value-heads 2 --no-scale-embedding", 6, "Llama"),
    ("rotary", f"{LLAMA} --key-value-heads 1 --rotary-base 500000", 5, "Llama"),
    ("rotary", f"{LLAMA} --p-rope 0.5", 8, "Llama"),
    ("rotary", f"{LLAMA} --rotary-scaling yarn:4:16", 8, "Llama"),
    ("rotary", f"{LLAMA} --rotary-scaling llama3:8", 8, "Llama"),
    ("rotary", f"{LLAMA} --rotary-scaling longrope:4 {LONGROPE}", 8, "Llama"),
    ("rotary", f"{LLAMA} --no-share-decoder-input-output-embed", 8, "Llama"),
    ("rotary", QWEN3, 8, "Qwen3"),
    ("rotary", f"{QWEN3} --key-value-heads 4", 12, "Qwen3"),
    ("rotary", f"{QWEN3} --rotary-scaling pi:4", 8, "Qwen3"),
    ("rotary", f"{QWEN3} --rotary-percent 0.5", 8, "alibi_lm"),
    ("rotary", f"{QWEN3} --attention-window 5", 8, "alibi_lm"),
    ("rotary", f"{LLAMA} {TIED}", 8, "alibi_lm"),
    ("rotary", f"{LLAMA} --linear-biases", 8, "alibi_lm"),
    ("rotary", f"{LLAMA} --no-decoder-final-norm", 8, "alibi_lm"),
    ("rotary", "--normalization rms --layernorm-embedding", 8, "alibi_lm"),
    ("alibi", f"{BLOOM} --key-value-heads 2", 8, "alibi_lm"),
    ("alibi", "--ffn swiglu --no-decoder-normalize-before", 8, "alibi_lm"),
    ("alibi", "--no-linear-biases", 8, "alibi_lm"),
    ("alibi", "--normalize-queries-keys --activation-fn gelu", 8, "alibi_lm"),
]
for method in sorted(set(POSITIONS) - {"rotary"}):
    MODELS.append((method, f"{QWEN3} --key-value-heads 3", 6, "alibi_lm"))


@pytest.mark.parametrize(("method", "flags", "heads", "architecture"), MODELS)
@torch.no_grad()
def test_logits_and_architecture(method, flags, heads, architecture):
    model = perturbed(method, flags, heads)
    result = converted(model, method)
    assert result.architecture == architecture
    tolerances = {8 * 32: 3e-5, 32: 1e-5}  # by length
    if method == "learned" and "--clamp-learned-positions" not in flags:
        del tolerances[8 * 32]  # learned positions end at the training length
    for length, atol in tolerances.items():
        tokens = random_tokens(2, length)
        expected = model.get_normalized_probs(model(tokens), log_probs=True)
        logits = result.model(tokens).logits
        if not model.decoder.adaptive_softmax:  # else logits are log-probabilities
            torch.testing.assert_close(logits, model(tokens)[0], rtol=0, atol=atol)
        torch.testing.assert_close(logits.log_softmax(-1), expected, rtol=0, atol=atol)
    if architecture == "alibi_lm":
        result.model.set_attn_implementation("eager")
        eager = result.model(tokens, output_attentions=True)
        torch.testing.assert_close(eager.logits, logits, rtol=0, atol=1e-5)
        weights = eager.attentions[1]
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, heads, 32))


@torch.no_grad()
def test_dynamic_ntk_grows_with_length():
    """GPT-NeoX keeps the base of the longest text so far, until one is shorter than L."""
    model = perturbed("rotary", "--rotary-scaling ntk:dynamic")
    result = converted(model, "rotary")
    assert result.architecture == "GPT-NeoX"
    for length in (32, 100, 256, 31):
        tokens = random_tokens(2, length)
        logits = result.model(tokens).logits
        torch.testing.assert_close(logits, model(tokens)[0], rtol=0, atol=3e-5)


def test_every_method_is_tested():
    assert {method for method, *_ in MODELS} == set(POSITIONS)


@pytest.mark.parametrize(
    ("method", "flags"),
    [
        ("learned", "--decoder-learned-pos"),
        ("sinusoidal", ""),
        ("none", "--no-token-positional-embeddings"),
    ],
)
def test_fairseq_models_are_converted(method, flags):
    options = "--arch transformer_lm --decoder-normalize-before --decoder-layers 2 "
    options += f"--decoder-embed-dim 32 --max-target-positions 40 {flags}"
    model = build_model(*options.split(), tokens_per_sample=40).eval()
    assert converted(model, method, 40).difference < 1e-5


@pytest.mark.parametrize(
    ("method", "flags", "option"),
    [
        ("fire", "", "--position-method fire"),
        ("alibi", "--attention-window 1", "--attention-window"),
        ("alibi", f"{BLOOM} --block-diagonal eos", "--block-diagonal"),
        ("alibi", "--score-scaling logn", "--score-scaling"),
        ("sinusoidal", "--scale-heads", "--scale-heads"),
        (
            "rotary",
            f"{TIED} --rotary-scaling yarn:4:16",
            "--rotary-scaling yarn:4:16 and ",
        ),
        ("rotary", "--rotary-scaling yarn:dynamic", "yarn:dynamic, which depends on the length"),
        ("rotary", "--rotary-scaling ntk:dynamic:16", "--rotary-scaling ntk:dynamic:16"),
        ("transformer_xl", "--mem-len 8 --attention-window 8", "--attention-window"),
    ],
)
def test_unsupported_options_are_rejected(method, flags, option):
    model = small_model(method, *flags.split(), sequential=True)
    with pytest.raises(UserInputError, match=option):
        converted(model, method)


def test_model_with_different_logits_is_rejected(monkeypatch):
    model = perturbed("alibi")
    monkeypatch.setattr(model.decoder.layers[1].self_attn, "scaling", 1.0)
    # An option that the conversion ignores.
    monkeypatch.setattr(model.decoder.embed_positions, "_given", (0.5,) * 8)
    with pytest.raises(UserInputError, match="different scores"):
        converted(model, "alibi")


@torch.no_grad()
def test_window_cache_is_bounded():
    model = perturbed("t5", "--attention-window 6")
    exported = converted(model, "t5").model
    tokens = random_tokens(2, 50)
    past = None
    logits = []
    for part in tokens.split((1, 4, 1, 1, 20, 1, 22), dim=1):
        output = exported(part, past_key_values=past, use_cache=True)
        past = output.past_key_values
        logits.append(output.logits)
    torch.testing.assert_close(torch.cat(logits, 1), model(tokens)[0], rtol=0, atol=1e-5)
    assert past.layers[1].keys.shape[2] == 5  # a window of 6 without the current token


def greedy(model, tokens: list[int]) -> list[int]:
    """Return the greedy token after each position, from a full pass, without end of sentence."""
    scores = model.get_normalized_probs(model(torch.tensor([tokens])), log_probs=True)[0]
    scores[:, EOS] = -torch.inf
    return scores.argmax(-1).tolist()


GENERATING = [
    ("alibi", BLOOM),
    ("alibi", TIED),
    ("sinusoidal", ""),
    ("transformer_xl", ""),
    ("alibi", "--attention-window 20"),
    ("sinusoidal", "--attention-window 5"),
    ("rotary", f"{LLAMA} --key-value-heads 2"),
    ("transformer_xl", f"{QWEN3} --key-value-heads 2"),
    ("alibi", f"{LLAMA} --key-value-heads 1 --attention-window 20"),
]
for method in sorted(set(POSITIONS) - {"sinusoidal", "transformer_xl"}):
    GENERATING.append(pytest.param(method, "", marks=pytest.mark.slow))


@pytest.mark.parametrize(("method", "flags"), GENERATING)
@torch.no_grad()
def test_cached_generation_in_left_padded_batch(method, flags):
    model = perturbed(method, flags, heads=6, length=256, noise=0.2)
    exported = converted(model, method, 256).model
    prompts = [random_tokens(1, length)[0].tolist() for length in (9, 3)]
    width = max(map(len, prompts))
    padded = torch.tensor([[PAD] * (width - len(p)) + p for p in prompts])
    new = 200
    sequences = exported.generate(
        padded,
        attention_mask=padded.ne(PAD).long(),
        do_sample=False,
        max_new_tokens=new,
        min_new_tokens=new,
    )
    for prompt, row in zip(prompts, sequences.tolist(), strict=True):
        generated = row[width:]
        assert len(generated) == new
        assert generated == greedy(model, prompt + generated)[len(prompt) - 1 : -1]
    assert len(set(sequences[0].tolist())) > 4  # not a single repeated word


@pytest.mark.ci
@pytest.mark.parametrize(
    ("method", "flags"),
    [("alibi", TIED), ("alibi", BLOOM), ("t5", ""), ("t5", QWEN3), ("rotary", QWEN3)],
)
@torch.no_grad()
def test_save_and_load_round_trip(method, flags, tmp_path):
    model = perturbed(method, flags)
    tokens = random_tokens(2, 32)
    first = converted(model, method).model
    save_model(first, tmp_path / "once")
    second = AutoModelForCausalLM.from_pretrained(tmp_path / "once", trust_remote_code=True)
    second.save_pretrained(tmp_path / "twice")
    third = AutoModelForCausalLM.from_pretrained(tmp_path / "twice", trust_remote_code=True)
    for loaded in (second, third):
        torch.testing.assert_close(loaded(tokens).logits, first(tokens).logits, rtol=0, atol=0)
    if flags == TIED:
        bands = third.model.embed_tokens.bands
        assert third.lm_head.tails[1][1].weight is bands[2][0].weight


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "flags"),
    [("alibi", BLOOM), ("alibi", TIED), ("rotary", ""), ("alibi", "--attention-window 7")],
)
@torch.no_grad()
def test_compiled_model_matches_eager(method, flags):
    model = perturbed(method, flags)
    exported = converted(model, method).model
    compiled = torch.compile(exported, fullgraph=True)
    for length in (16, 32):
        tokens = random_tokens(2, length)
        expected = model.get_normalized_probs(model(tokens), log_probs=True)
        log_probabilities = compiled(tokens, use_cache=False).logits.log_softmax(-1)
        torch.testing.assert_close(log_probabilities, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("backend", ["sdpa", "eager"])
@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("method", POSITIONS)
@torch.no_grad()
def test_packed_documents_are_separate(method, window, backend):
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = AlibiLmConfig(position_method=method, sliding_window=window, use_cache=False, **sizes)
    model = AlibiLmForCausalLM(config).eval()
    model.set_attn_implementation(backend)
    for parameter in model.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    documents = [random_tokens(2, length) for length in (7, 9)]
    positions = torch.cat([torch.arange(7), torch.arange(9)]).unsqueeze(0)
    packed = model(torch.cat(documents, dim=1), position_ids=positions).logits
    expected = torch.cat([model(document).logits for document in documents], dim=1)
    torch.testing.assert_close(packed, expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_configuration_selects_outputs():
    exported = converted(perturbed("xpos"), "xpos").model
    exported.set_attn_implementation("eager")
    tokens = random_tokens(1, 5)
    assert exported(tokens).hidden_states is None
    exported.config.output_hidden_states = True
    exported.config.output_attentions = True
    output = exported(tokens)
    assert len(output.hidden_states) == len(output.attentions) + 1 > 1
    assert exported(tokens, output_hidden_states=False).hidden_states is None


def test_fine_tuning_with_labels():
    exported = converted(perturbed("alibi", TIED), "alibi").model
    tokens = random_tokens(2, 16)
    loss = exported(tokens, labels=tokens).loss
    loss.backward()
    log_probabilities = exported(tokens).logits.log_softmax(-1)[:, :-1]
    expected = -log_probabilities.gather(-1, tokens[:, 1:, None]).mean()
    torch.testing.assert_close(loss, expected)
    assert exported.model.layers[0].fc1.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("flags", ["", f"{QWEN3} --key-value-heads 2"])
@pytest.mark.parametrize("method", ["alibi", "xpos", "t5", "transformer_xl"])
def test_gradient_checkpointing_keeps_gradients(method, flags, use_reentrant):
    exported = converted(perturbed(method, flags), method).model.train()
    tokens = random_tokens(2, 16)
    gradients = []
    for checkpointing in (False, True):
        if checkpointing:
            exported.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
        exported.zero_grad()
        torch.manual_seed(3)  # for dropout
        exported(tokens, labels=tokens).loss.backward()
        gradients.append([parameter.grad for parameter in exported.parameters()])
    expected, checkpointed = gradients
    torch.testing.assert_close(checkpointed, expected)


def test_gradient_checkpointing_with_cached_keys_is_rejected():
    exported = converted(perturbed("transformer_xl"), "transformer_xl").model.train()
    tokens = random_tokens(2, 16)
    past = exported(tokens).past_key_values
    exported.gradient_checkpointing_enable()
    with pytest.raises(ValueError, match="cached keys"):
        exported(tokens, labels=tokens, past_key_values=past)


@pytest.mark.parametrize(
    "flags",
    [
        "",
        "--no-share-decoder-input-output-embed",
        "--decoder-input-dim 16 --decoder-output-dim 16",
    ],
)
@torch.no_grad()
def test_resized_vocabulary_keeps_logits(flags, tmp_path):
    exported = converted(perturbed("alibi", flags), "alibi").model
    tokens = random_tokens(2, 16)
    expected = exported(tokens).logits
    size = exported.config.vocab_size
    exported.resize_token_embeddings(size + 3)
    save_model(exported, tmp_path / "resized")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "resized", trust_remote_code=True)
    for model in (exported, loaded):
        logits = model(tokens).logits
        assert logits.shape[-1] == size + 3
        torch.testing.assert_close(logits[..., :size], expected, rtol=0, atol=1e-5)
        assert model(torch.tensor([[size + 2]])).logits.isfinite().all()


@pytest.mark.parametrize("flags", [ADAPTIVE, TIED])
def test_resizing_adaptive_vocabulary_is_rejected(flags):
    exported = converted(perturbed("alibi", flags), "alibi").model
    with pytest.raises(ValueError, match="cannot be resized"):
        exported.resize_token_embeddings(100)


@pytest.mark.parametrize("flags", ["", TIED, "--decoder-input-dim 16 --decoder-output-dim 16"])
@torch.no_grad()
def test_generation_from_embeddings_equals_generation_from_tokens(flags):
    exported = converted(perturbed("alibi", flags, noise=0.2), "alibi").model
    tokens = random_tokens(1, 9)
    options = {"do_sample": False, "max_new_tokens": 5, "min_new_tokens": 5}
    expected = exported.generate(tokens, **options)[:, 9:]
    exported.set_input_embeddings(exported.get_input_embeddings())  # keeps the projection
    embeddings = exported.get_input_embeddings()(tokens)
    assert torch.equal(exported.generate(inputs_embeds=embeddings, **options), expected)


@pytest.mark.parametrize(
    ("method", "flags"), [("learned", TIED), ("t5", ""), ("transformer_xl", "")]
)
@torch.no_grad()
def test_model_on_two_devices_runs_twice(method, flags):
    """accelerate moves each argument of a layer that has a method ``to``, modules in place."""
    exported = converted(perturbed(method, flags), method).model
    exported.model.layers[1].to("meta")  # a second device that needs no hardware
    exported.model.layer_norm.to("meta")
    exported.lm_head.to("meta")

    def move_arguments(module, args):
        return tuple(value.to("meta") if hasattr(value, "to") else value for value in args)

    exported.model.layers[1].register_forward_pre_hook(move_arguments)
    tokens = random_tokens(2, 16)
    for _ in range(2):
        logits = exported(tokens).logits
        assert logits.shape == (2, 16, exported.config.vocab_size)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@torch.no_grad()
def test_xpos_rejects_positions_past_its_limit(dtype):
    exported = converted(perturbed("xpos"), "xpos").model.to(dtype)
    last = last_position(dtype)
    tokens = random_tokens(1, 8)
    positions = torch.arange(last - 7, last + 1)[None]
    assert exported(tokens, position_ids=positions).logits.isfinite().all()
    with pytest.raises(ValueError, match=f"limited to position {last} "):
        exported(tokens, position_ids=positions + 1)


@pytest.mark.parametrize("memory_length", [0, 5, 40])
@torch.no_grad()
def test_keep_memory_keeps_at_most_its_length(memory_length):
    exported = converted(perturbed("transformer_xl"), "transformer_xl").model
    exported.config.memory_length = memory_length
    past = exported.keep_memory(exported(random_tokens(2, 16)).past_key_values)
    kept = min(memory_length, 16)
    for layer in past.layers:
        assert layer.keys.shape[2] == layer.values.shape[2] == kept
    tokens = random_tokens(2, 16)
    logits = exported(tokens, past_key_values=past).logits
    if memory_length == 0:
        torch.testing.assert_close(logits, exported(tokens).logits, rtol=0, atol=1e-5)
