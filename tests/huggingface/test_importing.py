"""``alibi-fairseq import-hf`` on small random models, and back again."""

from __future__ import annotations

import json
import math
import pickle
from types import SimpleNamespace

import pytest
import torch
from commands import in_process
from conftest import random_tokens
from exported import BLOOM, LONGROPE, converted, perturbed
from fairseq import checkpoint_utils
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.sequence_generator import SequenceGenerator
from fairseq.sequence_scorer import SequenceScorer
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    GPTNeoXConfig,
    OPTConfig,
    XGLMConfig,
)

from alibi_fairseq.cli import main
from alibi_fairseq.criterions.chunked_losses import ChunkedCrossEntropy
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.evaluation.checkpoint import token_losses
from alibi_fairseq.huggingface.conversion import convert
from alibi_fairseq.huggingface.export import save
from alibi_fairseq.models.output_projection import OutputProjection

WORDS = 70
TOKENS = dict(vocab_size=WORDS, bos_token_id=5, eos_token_id=6, pad_token_id=7)
FAIRSEQS = dict(vocab_size=WORDS, bos_token_id=0, eos_token_id=2, pad_token_id=1)
ONE = dict(vocab_size=WORDS, bos_token_id=0, eos_token_id=0, pad_token_id=None)
SMALL = dict(num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=48)
SMALL_OPT = dict(hidden_size=32, ffn_dim=48, **SMALL, **TOKENS)
SMALL_NEOX = dict(hidden_size=32, intermediate_size=48, use_parallel_residual=False, **SMALL)
CONFIGS = {
    "bloom": BloomConfig(hidden_size=36, n_layer=2, n_head=6, seq_length=48, **TOKENS),
    "opt": OPTConfig(**SMALL_OPT),
    "opt-350m": OPTConfig(word_embed_proj_dim=16, do_layer_norm_before=False, **SMALL_OPT),
    "xglm": XGLMConfig(d_model=32, ffn_dim=48, **SMALL, **FAIRSEQS),
    "gpt-neox": GPTNeoXConfig(rotary_pct=1.0, **SMALL_NEOX, **TOKENS),
    "partial rotary": GPTNeoXConfig(
        rotary_pct=0.5, rotary_emb_base=500_000, **SMALL_NEOX, **TOKENS
    ),
    "no positions": GPTNeoXConfig(rotary_pct=0.0, **SMALL_NEOX, **ONE),
}


@pytest.fixture
def folder(request, tmp_path):
    """Return a random model with norms and biases different from their initial values."""
    model = AutoModelForCausalLM.from_config(CONFIGS[request.param])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def load(checkpoint, data=None):
    """Our model as fairseq loads it."""
    overrides = {"data": str(data or checkpoint.parent)}
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(checkpoint)], arg_overrides=overrides
    )
    return model.eval(), task.source_dictionary


def assert_same_scores(folder, checkpoint):
    theirs = AutoModelForCausalLM.from_pretrained(folder).eval()
    ours, dictionary = load(checkpoint)
    numbers = [int(s) for s in dictionary.symbols[4:]]
    theirs_of = dict(zip(range(4, len(dictionary)), numbers))
    eos = theirs.config.eos_token_id
    tokens = torch.randint(4, len(dictionary), (2, 40))
    tokens[:, 11] = dictionary.eos()
    renumbered = torch.tensor([[theirs_of.get(t, eos) for t in row] for row in tokens.tolist()])
    with torch.no_grad():
        expected = theirs(renumbered).logits
        found = ours(tokens)[0]
    torch.testing.assert_close(found[..., 4:], expected[..., numbers], rtol=0, atol=1e-5)
    torch.testing.assert_close(found[..., 2], expected[..., eos], rtol=0, atol=1e-5)


@pytest.mark.parametrize("folder", CONFIGS, indirect=True)
def test_logits_match_checkpoint(folder, tmp_path, capsys):
    assert main(["import-hf", str(folder), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "--position-method" in said
    assert_same_scores(folder, tmp_path / "out" / "checkpoint_best.pt")


def imported(folder, out):
    """Return the checkpoint of a model with negative logits, and the unmodified model."""
    theirs = AutoModelForCausalLM.from_pretrained(folder).eval()
    norms = {"xglm": "model.layer_norm", "bloom": "transformer.ln_f"}
    if theirs.config.model_type in norms:
        # A constant feature that every output weight turns into a negative score.
        norm = theirs.get_submodule(norms[theirs.config.model_type])
        norm.weight.data[0] = 0
        norm.bias.data[0] = 1
        theirs.get_output_embeddings().weight.data[:, 0] = -20
        theirs.save_pretrained(folder)
    assert main(["import-hf", str(folder), "--out", str(out)]) == 0
    ours, dictionary = load(out / "checkpoint_best.pt")
    return ours, dictionary, theirs


def random_text(dictionary):
    """(2, 40) tokens as fairseq numbers them and as the model does; no special symbols."""
    tokens = torch.randint(4, len(dictionary), (2, 40))
    numbers = [0] * 4 + [int(symbol) for symbol in dictionary.symbols[4:]]
    return tokens, torch.tensor(numbers)[tokens]


@pytest.mark.parametrize("folder", CONFIGS, indirect=True)
@torch.no_grad()
def test_imported_losses_equal_the_unmodified_model(folder, tmp_path):
    """Check every path that scores tokens, with the softmax over the original vocabulary."""
    ours, dictionary, theirs = imported(folder, tmp_path / "out")
    tokens, renumbered = random_text(dictionary)
    inputs = tokens[:, :-1]
    targets = tokens[:, 1:].contiguous()
    logits = theirs(renumbered[:, :-1]).logits.double()
    expected = -logits.log_softmax(-1).gather(-1, renumbered[:, 1:, None]).squeeze(-1)
    if theirs.config.model_type in ("bloom", "xglm"):
        assert logits.max() < -5
    expected = expected.float()

    features, _ = ours.decoder.extract_features(inputs)
    found = token_losses(ours.decoder, features, targets)
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)

    task = SimpleNamespace(target_dictionary=dictionary)
    net_input = {"src_tokens": inputs, "src_lengths": torch.tensor([39, 39])}
    sample = {"net_input": net_input, "target": targets, "ntokens": targets.numel()}
    for criterion in (CrossEntropyCriterion, ChunkedCrossEntropy):
        loss, _, _ = criterion(task, sentence_avg=False)(ours, sample)
        torch.testing.assert_close(loss, expected.sum(), rtol=0, atol=1e-3)

    for row, hypotheses in enumerate(SequenceScorer(dictionary).generate([ours], sample)):
        scores = hypotheses[0]["positional_scores"]
        torch.testing.assert_close(-scores, expected[row], rtol=0, atol=2e-5)


@pytest.mark.parametrize("folder", ["bloom"], indirect=True)
@torch.no_grad()
def test_bits_per_token_equal_the_unmodified_bloom(folder, tmp_path):
    """Test scores that are all negative: a symbol of score 0 would take nearly all probability."""
    ours, dictionary, theirs = imported(folder, tmp_path / "out")
    tokens, renumbered = random_text(dictionary)
    logits = theirs(renumbered[:, :-1]).logits.double()
    assert logits.max() < -5
    targets = renumbered[:, 1:, None]
    expected = -logits.log_softmax(-1).gather(-1, targets).mean() / math.log(2)
    with_zeros = torch.nn.functional.pad(logits, (0, 1)).log_softmax(-1)
    assert -with_zeros.gather(-1, targets).mean() / math.log(2) > expected + 5

    features, _ = ours.decoder.extract_features(tokens[:, :-1])
    losses = token_losses(ours.decoder, features, tokens[:, 1:].contiguous())
    bits = losses.double().mean() / math.log(2)
    torch.testing.assert_close(bits, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("folder", ["bloom", "xglm"], indirect=True)
@torch.no_grad()
def test_generation_never_yields_an_excluded_symbol(folder, tmp_path):
    ours, dictionary, theirs = imported(folder, tmp_path / "out")
    generator = SequenceGenerator(
        [ours],
        dictionary,
        beam_size=2,
        max_len_a=0,
        max_len_b=20,
        min_len=20,
        normalize_scores=False,
    )
    tokens, _ = random_text(dictionary)
    prefix = tokens[:1, :5]
    sample = {"net_input": {"src_tokens": prefix, "src_lengths": torch.tensor([5])}}
    (hypotheses,) = generator.generate([ours], sample, prefix_tokens=prefix)
    text = hypotheses[0]["tokens"].tolist()
    assert dictionary.unk() not in text
    assert dictionary.bos() not in text
    numbers = torch.tensor(
        [theirs.config.eos_token_id] * 4 + [int(s) for s in dictionary.symbols[4:]]
    )
    renumbered = numbers[torch.tensor([[dictionary.eos(), *text]])]
    logs = theirs(renumbered[:, :-1]).logits.log_softmax(-1)
    expected = logs.gather(-1, renumbered[:, 1:, None]).flatten()
    found = hypotheses[0]["positional_scores"]
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("folder", ["bloom", "opt"], indirect=True)
def test_chunked_gradient_skips_excluded_symbols(folder, tmp_path):
    ours, dictionary, _ = imported(folder, tmp_path / "out")
    tokens, _ = random_text(dictionary)
    tokens[1, 30:] = dictionary.pad()
    net_input = {"src_tokens": tokens[:, :-1], "src_lengths": torch.tensor([39, 29])}
    sample = {"net_input": net_input, "target": tokens[:, 1:].contiguous(), "ntokens": 68}
    task = SimpleNamespace(target_dictionary=dictionary)
    gradients = []
    for criterion in (CrossEntropyCriterion, ChunkedCrossEntropy):
        ours.zero_grad()
        loss, _, _ = criterion(task, sentence_avg=False)(ours, sample)
        loss.backward()
        gradients.append(ours.decoder.output_projection.weight.grad.clone())
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-5)
    assert gradients[1].isfinite().all()
    assert gradients[1].abs().sum() > 0
    assert gradients[1][dictionary.unk()].abs().sum() == 0


@pytest.mark.parametrize("folder", ["bloom", "xglm", "gpt-neox", "opt-350m"], indirect=True)
@torch.no_grad()
def test_imported_model_keeps_exclusions_in_export(folder, tmp_path):
    ours, dictionary, theirs = imported(folder, tmp_path / "out")
    exported = convert(ours.decoder, ours.decoder.args.position_method, 48)
    save(exported.model, tmp_path / "exported")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "exported", trust_remote_code=True)
    tokens, renumbered = random_text(dictionary)
    found = again(tokens).logits.log_softmax(-1)[..., 4:]
    numbers = [int(symbol) for symbol in dictionary.symbols[4:]]
    expected = theirs(renumbered).logits.log_softmax(-1)[..., numbers]
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("folder", ["bloom"], indirect=True)
def test_import_rejects_probability_of_missing_symbols(folder, tmp_path, monkeypatch, refuse):
    """The built-in comparison sees a symbol that the foreign model does not have."""
    monkeypatch.setattr(OutputProjection, "forward", torch.nn.Linear.forward)
    assert "other scores" in refuse("import-hf", folder, "--out", tmp_path / "out")


@pytest.mark.parametrize("folder", ["bloom"], indirect=True)
def test_text_with_excluded_symbol_is_rejected(folder, tmp_path):
    ours, dictionary, _ = imported(folder, tmp_path / "out")
    tokens, _ = random_text(dictionary)
    tokens[0, 7] = dictionary.unk()
    features, _ = ours.decoder.extract_features(tokens)
    with pytest.raises(UserInputError, match="<unk>"):
        token_losses(ours.decoder, features, tokens)


@pytest.mark.parametrize("folder", ["gpt-neox", "opt-350m"], indirect=True)
def test_checkpoint_continues_training(folder, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["import-hf", str(folder), "--out", str(out)]) == 0
    flags = capsys.readouterr().out.strip().split("\n")[-1].split()
    ids = [i for i in range(WORDS) if i not in (5, 6, 7)]
    lines = [" ".join(str(ids[(3 * a + b) % len(ids)]) for b in range(12)) for a in range(60)]
    (tmp_path / "text").write_text("\n".join(lines) + "\n")
    arguments = ["--only-source", "--srcdict", out / "dict.txt", "--trainpref", tmp_path / "text"]
    in_process("preprocess", *arguments, "--destdir", tmp_path / "data", "--workers", 1)
    training = "--optimizer adam --lr 1e-9 --max-update 1 --max-tokens 192 --cpu --num-workers 0"
    training += " --no-epoch-checkpoints --disable-validation --dropout 0"
    in_process(
        "train", tmp_path / "data", *flags, *training.split(), "--save-dir", tmp_path / "run"
    )
    before, _ = load(out / "checkpoint_best.pt")
    after, _ = load(tmp_path / "run" / "checkpoint_last.pt", tmp_path / "data")
    excluded = before.decoder.output_projection.excluded.tolist()
    assert after.decoder.output_projection.excluded.tolist() == excluded
    after_parameters = dict(after.named_parameters())
    assert len(after_parameters) == len(list(before.parameters()))
    for name, parameter in before.named_parameters():
        torch.testing.assert_close(after_parameters[name], parameter, rtol=0, atol=1e-6, msg=name)
    state = torch.load(tmp_path / "run" / "checkpoint_last.pt", weights_only=False)
    assert state["optimizer_history"][-1]["num_updates"] == 1


@pytest.mark.parametrize("folder", ["bloom"], indirect=True)
def test_pickle_is_loaded_without_code(folder, tmp_path, capsys):
    model = AutoModelForCausalLM.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    arguments = ["import-hf", str(folder), "--out", str(tmp_path / "out")]
    assert main(arguments) == 2
    assert "pytorch_model.bin" in capsys.readouterr().err
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    assert main(arguments) == 0
    model.save_pretrained(tmp_path / "safe")
    assert_same_scores(tmp_path / "safe", tmp_path / "out" / "checkpoint_best.pt")

    class Trap:
        def __reduce__(self):
            return (print, ("sprung",))

    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"lm_head.weight": Trap()}))
    capsys.readouterr()
    assert main([*arguments[:-1], str(tmp_path / "other")]) == 2
    said = capsys.readouterr()
    assert "sprung" not in said.out + said.err
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("method", "flags"),
    [
        ("alibi", BLOOM),
        ("learned", "--no-decoder-final-norm"),
        ("sinusoidal", ""),
        ("rotary", "--no-share-decoder-input-output-embed"),
        ("rotary", "--rotary-base 50000 --rotary-percent 0.5"),
        ("rotary", "--p-rope 0.75 --rotary-scaling pi:2"),
        ("rotary", "--rotary-scaling ntk:dynamic"),
        ("rotary", "--rotary-scaling yarn:4:16:2:16"),
        ("rotary", "--rotary-scaling llama3:8"),
        ("rotary", f"--rotary-scaling longrope:4 {LONGROPE}"),
    ],
)
def test_export_round_trip(method, flags, tmp_path, capsys):
    model = perturbed(method, f"{flags} --no-scale-embedding")
    converted(model, method).model.save_pretrained(tmp_path / "model")
    model.decoder.dictionary.save(str(tmp_path / "model" / "dict.txt"))
    assert main(["import-hf", str(tmp_path / "model"), "--out", str(tmp_path / "out")]) == 0
    assert "--tokens-per-sample 32" in capsys.readouterr().out
    again, dictionary = load(tmp_path / "out" / "checkpoint_best.pt")
    assert dictionary.symbols == model.decoder.dictionary.symbols
    weights = model.state_dict()
    assert weights.keys() == again.state_dict().keys()
    for name, weight in again.state_dict().items():
        assert torch.equal(weight, weights[name]), name
    tokens = random_tokens(2, 128)
    if method != "learned":
        torch.testing.assert_close(again(tokens)[0], model(tokens)[0], rtol=0, atol=1e-6)


AXIAL = {"rope_type": "axial", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}
MSCALE = {
    **{"rope_type": "yarn", "rope_theta": 10000.0, "partial_rotary_factor": 1.0, "factor": 4.0},
    **{"original_max_position_embeddings": 48, "mscale": 0.7, "mscale_all_dim": 0.7},
}
BAD_CONFIGS = [
    ({"model_type": "llama"}, "llama"),
    ({"use_parallel_residual": True}, "use_parallel_residual"),
    ({"rope_parameters": AXIAL}, "axial"),
    ({"rope_parameters": MSCALE}, "mscale"),
    ({"hidden_act": "silu"}, "silu"),
    ({"num_hidden_layers": 3}, "config.json"),
    ({"intermediate_size": 64}, "model"),
    (None, "config.json"),
]


@pytest.mark.parametrize("folder", ["gpt-neox"], indirect=True)
def test_invalid_models_are_rejected(folder, tmp_path, refuse):
    config = folder / "config.json"
    weights = folder / "model.safetensors"
    good = config.read_text()
    command = ["import-hf", "--out", tmp_path / "out"]
    assert "config.json" in refuse(*command, tmp_path / "nothing")
    for change, said in BAD_CONFIGS:
        config.write_text("{" if change is None else json.dumps({**json.loads(good), **change}))
        assert said in refuse(*command, folder)
    config.write_text(good)
    (folder / "dict.txt").write_text("the 1\n")
    assert "dict.txt" in refuse(*command, folder)
    (folder / "dict.txt").unlink()
    weights.write_bytes(weights.read_bytes()[:1000])
    assert str(folder) in refuse(*command, folder)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("folder", ["bloom"], indirect=True)
@pytest.mark.parametrize("change", [{"n_head": 0}, {"n_head": -2}, {"seq_length": "abc"}])
def test_impossible_sizes_are_rejected(folder, tmp_path, refuse, change):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    said = refuse("import-hf", folder, "--out", tmp_path / "out")
    (size,) = change.values()
    assert str(path) in said
    assert f"is {size!r}, not a positive integer" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("folder", ["gpt-neox"], indirect=True)
def test_unknown_configuration_keys_are_ignored(folder, tmp_path, monkeypatch, capsys):
    """Others make transformers fetch kernels or import code."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config |= {"_attn_implementation": "owner/kernel", "attn_implementation": "owner/kernel"}
    config |= {"auto_map": {"AutoConfig": "evil.Config"}, "quantization_config": {"a": 1}}
    path.write_text(json.dumps(config))
    assert main(["import-hf", str(folder), "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "checkpoint_best.pt").is_file()
