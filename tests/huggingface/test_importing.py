"""``alibi-fairseq import-hf``: continued training, round trips, pickles, and rejected models."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from commands import in_process
from conftest import random_tokens
from exported import ADAPTIVE, BLOOM, LLAMA, LONGROPE, QWEN3, converted, perturbed
from imported import (
    SPECIAL_IDS,
    VOCABULARY_SIZE,
    ImportedModel,
    assert_same_scores,
    import_model,
    load_checkpoint,
    save_random_model,
)
from transformers import AutoModelForCausalLM

from alibi_fairseq.cli import main

#: Training of one update that changes next to nothing.
ONE_UPDATE = """
    --optimizer adam --lr 1e-9 --max-update 1 --max-tokens 192 --cpu --num-workers 0
    --no-epoch-checkpoints --disable-validation
"""


def change_config(folder: Path, **changes) -> None:
    """Replace values of a model's configuration file."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config.update(changes)
    path.write_text(json.dumps(config))


def write_text_of_ids(path: Path) -> None:
    """Write 60 lines of 12 token IDs without special ones."""
    ids = [token for token in range(VOCABULARY_SIZE) if token not in SPECIAL_IDS]
    with path.open("w") as file:
        for row in range(60):
            line = [str(ids[(3 * row + column) % len(ids)]) for column in range(12)]
            file.write(" ".join(line) + "\n")


@pytest.mark.parametrize("name", ["gpt-neox", "opt-350m", "llama", "qwen3"])
def test_checkpoint_continues_training(name, tmp_path, capsys):
    folder = save_random_model(name, tmp_path / "model")
    out = tmp_path / "out"
    assert main(["import-hf", str(folder), "--out", str(out)]) == 0
    printed_flags = capsys.readouterr().out.strip().split("\n")[-1].split()

    text = tmp_path / "text"
    write_text_of_ids(text)
    data = tmp_path / "data"
    preprocessing = ["--only-source", "--srcdict", out / "dict.txt", "--workers", 1]
    in_process("preprocess", *preprocessing, "--trainpref", text, "--destdir", data)
    flags = [*printed_flags, *ONE_UPDATE.split()]
    in_process("train", data, *flags, "--save-dir", tmp_path / "run")

    before, _ = load_checkpoint(out / "checkpoint_best.pt")
    last_checkpoint = tmp_path / "run" / "checkpoint_last.pt"
    after, _ = load_checkpoint(last_checkpoint, data)
    excluded_before = before.decoder.output_projection.excluded.tolist()
    excluded_after = after.decoder.output_projection.excluded.tolist()
    assert excluded_after == excluded_before
    parameters_before = dict(before.named_parameters())
    parameters_after = dict(after.named_parameters())
    assert parameters_after.keys() == parameters_before.keys()
    for key, parameter in parameters_before.items():
        torch.testing.assert_close(parameters_after[key], parameter, rtol=0, atol=1e-6, msg=key)
    state = torch.load(last_checkpoint, weights_only=False)
    assert state["optimizer_history"][-1]["num_updates"] == 1
    imported_state = torch.load(out / "checkpoint_best.pt", weights_only=False)
    for option in ("dropout", "attention_dropout", "activation_dropout"):
        assert state["cfg"]["model"][option] == imported_state["cfg"]["model"][option]


def test_first_of_several_end_of_text_tokens_ends_a_sentence(tmp_path):
    """Llama 3 Instruct lists the ends of a text, of a message, and of a turn."""
    folder = save_random_model("llama", tmp_path / "model")
    change_config(folder, eos_token_id=[6, 8])
    imported = import_model(folder, tmp_path / "out")
    assert "8" in imported.dictionary
    assert "6" not in imported.dictionary
    imported.original.config.eos_token_id = 6
    assert_same_scores(imported)


def test_pickled_weights_are_imported(tmp_path):
    safe_folder = save_random_model("bloom", tmp_path / "safe")
    folder = shutil.copytree(safe_folder, tmp_path / "model")
    (folder / "model.safetensors").unlink()
    command = ["import-hf", str(folder), "--out", str(tmp_path / "out")]
    original = AutoModelForCausalLM.from_pretrained(safe_folder).eval()
    torch.save(original.state_dict(), folder / "pytorch_model.bin")
    assert main(command) == 0
    model, dictionary = load_checkpoint(tmp_path / "out" / "checkpoint_best.pt")
    assert_same_scores(ImportedModel(original, model, dictionary))


def test_code_in_pickled_weights_is_not_executed(tmp_path, capsys):
    class PrintWhenUnpickled:
        def __reduce__(self):
            return (print, ("executed",))

    folder = save_random_model("bloom", tmp_path / "model")
    (folder / "model.safetensors").unlink()
    weights = {"lm_head.weight": PrintWhenUnpickled()}
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(weights))
    assert main(["import-hf", str(folder), "--out", str(tmp_path / "out")]) != 0
    output = capsys.readouterr()
    assert "executed" not in output.out
    assert "executed" not in output.err
    assert not (tmp_path / "out").exists()


@pytest.mark.ci
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
        ("rotary", f"{LLAMA} --key-value-heads 2"),
        ("rotary", f"{QWEN3} --rotary-base 50000"),
    ],
)
def test_export_round_trip(method, flags, tmp_path, capsys):
    model = perturbed(method, f"{flags} --no-scale-embedding")
    folder = tmp_path / "model"
    converted(model, method).model.save_pretrained(folder)
    model.decoder.dictionary.save(str(folder / "dict.txt"))
    assert main(["import-hf", str(folder), "--out", str(tmp_path / "out")]) == 0
    assert "--tokens-per-sample 32" in capsys.readouterr().out
    reimported, dictionary = load_checkpoint(tmp_path / "out" / "checkpoint_best.pt")
    assert dictionary.symbols == model.decoder.dictionary.symbols
    expected_weights = model.state_dict()
    weights = reimported.state_dict()
    assert weights.keys() == expected_weights.keys()
    for key, weight in weights.items():
        assert torch.equal(weight, expected_weights[key]), key
    if method != "learned":
        tokens = random_tokens(2, 128)
        scores, _ = reimported(tokens)
        expected_scores, _ = model(tokens)
        torch.testing.assert_close(scores, expected_scores, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("method", "flags"),
    [
        ("alibi", ""),
        ("alibi", "--alibi-scale dynamic --no-scale-embedding"),
        ("alibi", "--alibi-scale 2.5 --attention-window 5 --excluded-symbols 0,3"),
        ("alibi", f"{BLOOM} --alibi-bias-max 4"),
        ("alibi", "--decoder-input-dim 16 --decoder-output-dim 16"),
        ("alibi", "--no-decoder-normalize-before --ffn swiglu --key-value-heads 2"),
        ("learned", "--clamp-learned-positions"),
        ("sinusoidal", "--no-decoder-final-norm --no-share-decoder-input-output-embed"),
        ("rotary", f"{QWEN3} --rotary-percent 0.5 --attention-window 5"),
        ("none", "--layernorm-embedding"),
        ("xpos", ""),
        ("t5", ""),
        ("kerple", ""),
        ("sandwich", ""),
        ("transformer_xl", ""),
    ],
)
@torch.no_grad()
def test_round_trip_of_our_own_format(method, flags, tmp_path):
    model = perturbed(method, flags)
    exported = converted(model, method)
    assert exported.architecture == "alibi_lm"
    folder = tmp_path / "model"
    exported.model.save_pretrained(folder)
    model.decoder.dictionary.save(str(folder / "dict.txt"))
    assert main(["import-hf", str(folder), "--out", str(tmp_path / "out")]) == 0
    reimported, _ = load_checkpoint(tmp_path / "out" / "checkpoint_best.pt")
    weights = reimported.state_dict()
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, weights.pop(name)), name
    assert not weights
    tokens = random_tokens(2, 48)
    assert torch.equal(reimported(tokens)[0], model(tokens)[0])


def test_adaptive_model_of_our_own_format_is_refused(tmp_path, refuse):
    folder = tmp_path / "model"
    converted(perturbed("alibi", ADAPTIVE), "alibi").model.save_pretrained(folder)
    message = refuse("import-hf", folder, "--out", tmp_path / "out")
    assert "Use the checkpoint from which it was exported." in message


def test_unknown_configuration_keys_are_ignored(tmp_path):
    """Some of these keys make transformers download kernels or import code."""
    folder = save_random_model("gpt-neox", tmp_path / "model")
    change_config(
        folder,
        _attn_implementation="owner/kernel",
        attn_implementation="owner/kernel",
        auto_map={"AutoConfig": "evil.Config"},
        quantization_config={"a": 1},
    )
    assert main(["import-hf", str(folder), "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "checkpoint_best.pt").is_file()
