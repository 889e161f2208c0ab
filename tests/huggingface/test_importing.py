"""``alibi-fairseq import-hf`` on small random models, and back again."""

from __future__ import annotations

import json
import pickle

import pytest
import torch
from commands import in_process
from conftest import random_tokens
from exported import BLOOM, LONGROPE, converted, perturbed
from fairseq import checkpoint_utils
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    GPTNeoXConfig,
    OPTConfig,
    XGLMConfig,
)

from alibi_fairseq.cli import main

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
    """A random model whose norms and biases are not at their initial values."""
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
        expected, found = theirs(renumbered).logits, ours(tokens)[0]
    torch.testing.assert_close(found[..., 4:], expected[..., numbers], rtol=0, atol=1e-5)
    torch.testing.assert_close(found[..., 2], expected[..., eos], rtol=0, atol=1e-5)


@pytest.mark.parametrize("folder", CONFIGS, indirect=True)
def test_logits_of_the_checkpoint(folder, tmp_path, capsys):
    assert main(["import-hf", str(folder), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "--position-method" in said
    assert_same_scores(folder, tmp_path / "out" / "checkpoint_best.pt")


@pytest.mark.parametrize("folder", ["gpt-neox", "opt-350m"], indirect=True)
def test_the_checkpoint_trains_on(folder, tmp_path, capsys):
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
    for (name, one), other in zip(before.named_parameters(), after.parameters()):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6, msg=name)
    state = torch.load(tmp_path / "run" / "checkpoint_last.pt", weights_only=False)
    assert state["optimizer_history"][-1]["num_updates"] == 1


@pytest.mark.parametrize("folder", ["bloom"], indirect=True)
def test_a_pickle_is_read_for_its_values_alone(folder, tmp_path, capsys):
    model = AutoModelForCausalLM.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    arguments = ["import-hf", str(folder), "--out", str(tmp_path / "out")]
    assert main(arguments) == 2 and "pytorch_model.bin" in capsys.readouterr().err
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
    "method, flags",
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
def test_exported_and_imported_again(method, flags, tmp_path, capsys):
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
def test_bad_input(folder, tmp_path, refuse):
    config, weights = folder / "config.json", folder / "model.safetensors"
    good, command = config.read_text(), ["import-hf", "--out", tmp_path / "out"]
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


@pytest.mark.parametrize("folder", ["gpt-neox"], indirect=True)
def test_only_known_keys_of_the_configuration_are_read(folder, tmp_path, monkeypatch, capsys):
    """Others make transformers fetch kernels or import code."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config |= {"_attn_implementation": "owner/kernel", "attn_implementation": "owner/kernel"}
    config |= {"auto_map": {"AutoConfig": "evil.Config"}, "quantization_config": {"a": 1}}
    path.write_text(json.dumps(config))
    assert main(["import-hf", str(folder), "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "checkpoint_best.pt").is_file()
