"""Conversion of the authors' released checkpoints."""

from __future__ import annotations

import argparse
import copy
import math
import os
import pickle

import pytest
import torch
from checkpoints.released_format import (
    LENGTH,
    WORDS,
    log_probabilities,
    released_state,
    write_dictionary,
)
from commands import in_process
from conftest import FIRST_WORD, random_tokens
from fairseq import checkpoint_utils
from fairseq_runs import run_eval_lm
from omegaconf import OmegaConf

from alibi_fairseq.cli import main
from alibi_fairseq.plugin.loading import load_update_count, read_checkpoint
from alibi_fairseq.plugin.released import import_released, read_dictionary

EOS = 2


@pytest.fixture
def dictionary(tmp_path):
    return write_dictionary(tmp_path / "dict.txt")


def run_import(tmp_path, dictionary, state, **save_options):
    """Save a released checkpoint and return the path of its import."""
    source = tmp_path / "alibi_wt103_L32.pt"
    torch.save(state, source, **save_options)
    out = tmp_path / "imported"
    code = main(["import-checkpoint", str(source), "--dict", str(dictionary), "--out", str(out)])
    assert code == 0
    return out / "checkpoint_best.pt"


def load_model(path):
    (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task(
        [str(path)], arg_overrides={"data": str(path.parent)}
    )
    return model.eval()


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("length", [LENGTH, 4 * LENGTH])
def test_imported_model_matches_naive_alibi(tmp_path, dictionary, half, zipped, length):
    state = released_state(half)
    path = run_import(tmp_path, dictionary, state, _use_new_zipfile_serialization=zipped)
    model = load_model(path)
    tokens = random_tokens(2, length, WORDS)
    log_probs = model.get_normalized_probs(model(tokens), log_probs=True)
    expected = log_probabilities(state["model"], tokens)
    torch.testing.assert_close(log_probs.double(), expected, rtol=0, atol=1e-5)


def test_eval_lm_evaluates_import_at_longer_length(tmp_path, dictionary):
    """Compare the loss with the published formulas on the same words."""
    state = released_state()
    path = run_import(tmp_path, dictionary, state)
    token_ids = random_tokens(1, 95, WORDS)[0]
    words = [f"w{token_id - FIRST_WORD}" for token_id in token_ids.tolist()]
    (tmp_path / "text").write_text(" ".join(words) + "\n")
    data = tmp_path / "data-bin"
    in_process(
        *("preprocess", "--only-source", "--srcdict", dictionary, "--testpref", tmp_path / "text"),
        *("--destdir", data, "--workers", 1),
    )
    length = 96
    flags = ["--tokens-per-sample", str(length), "--max-tokens", str(length)]
    flags += ["--sample-break-mode", "none", "--gen-subset", "test"]
    measured = run_eval_lm(data, path, *flags)
    end_of_line = torch.tensor([EOS])
    inputs = torch.cat([end_of_line, token_ids])
    targets = torch.cat([token_ids, end_of_line])
    log_probs = log_probabilities(state["model"], inputs[None])[0]
    nats = -log_probs[torch.arange(length), targets].mean().item()
    assert float(measured["loss"]) == pytest.approx(nats / math.log(2), abs=1e-4)


@pytest.mark.parametrize("form", ["dictionary", "omegaconf", "namespaces"])
def test_import_reads_options_from_configuration(tmp_path, dictionary, form):
    """fairseq of early 2021 could also store options by group."""
    state = released_state()
    prefixes = ("decoder", "adaptive", "tie", "no_")
    model = {}
    for name, value in vars(state["args"]).items():
        if name.startswith(prefixes):
            model[name] = value
    groups = {
        "common": {"seed": 1},
        "task": {"_name": "language_modeling", "tokens_per_sample": LENGTH},
        "model": {"_name": "transformer_lm_wiki103", "tokens_per_sample": LENGTH, **model},
    }
    expected = import_released(state, read_dictionary(dictionary))["cfg"]["model"]
    as_namespaces = {name: argparse.Namespace(**group) for name, group in groups.items()}
    as_namespaces["model"] = {**groups["model"], "tokens_per_sample": LENGTH + 1}
    as_namespaces["later"] = argparse.Namespace(tokens_per_sample=LENGTH)
    forms = {
        "dictionary": groups,
        "omegaconf": OmegaConf.create(groups),
        "namespaces": as_namespaces,
    }
    source = tmp_path / "in.pt"
    torch.save({**state, "args": None, "cfg": forms[form]}, source)
    imported = import_released(read_checkpoint(source), read_dictionary(dictionary))
    options = imported["cfg"]["model"]
    assert options["train_length"] == LENGTH
    for name in ("decoder_layers", "adaptive_input", "no_decoder_final_norm"):
        assert options[name] == expected[name], name


def test_import_removes_paths(dictionary):
    state = import_released(released_state(), read_dictionary(dictionary))
    assert "somebody" not in str(state["cfg"])
    assert "last_optimizer_state" not in state
    (history,) = state["optimizer_history"]
    assert history["num_updates"] == 286000
    assert history["optimizer_name"] == "FP16Optimizer"
    assert history["criterion_name"] == "AdaptiveLoss"


def test_updates_of_reads_optimizer_history(tmp_path):
    torch.save(released_state(), tmp_path / "in.pt")
    assert load_update_count(tmp_path / "in.pt") == 286000


def changed_state(change):
    state = released_state()
    state["args"] = copy.copy(state["args"])
    change(state)
    return state


def remove_weight(name):
    return lambda state: state["model"].pop(name)


def set_weight(name, tensor):
    return lambda state: state["model"].__setitem__(name, tensor)


def set_option(name, value):
    return lambda state: setattr(state["args"], name, value)


FC1 = "decoder.layers.1.fc1.weight"
FIRST_EMBEDDINGS = "decoder.embed_tokens.embeddings.0.0.weight"


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (remove_weight(FC1), FC1),
        (set_weight(FC1, torch.zeros(3, 3)), FC1),
        (set_weight("decoder.layers.7.x", torch.zeros(1)), "decoder.layers.7.x"),
        (set_weight(FIRST_EMBEDDINGS, torch.zeros(25, 64)), FIRST_EMBEDDINGS),
    ],
)
def test_import_fails_with_weights_that_do_not_fit(tmp_path, dictionary, fail, change, name):
    """PyTorch names the weight."""
    source = tmp_path / "in.pt"
    torch.save(changed_state(change), source)
    command = ["import-checkpoint", source, "--dict", dictionary, "--out", tmp_path / "out"]
    code, message = fail(*command)
    assert code == 1
    assert name in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            set_weight(FIRST_EMBEDDINGS, torch.zeros(24, 64)),
            "which the options tie",
        ),
        (set_option("arch", "transformer_wmt_en_de"), "architecture is transformer_wmt_en_de"),
    ],
)
def test_import_rejects_invalid_checkpoints(tmp_path, dictionary, refuse, change, sentence):
    source = tmp_path / "in.pt"
    torch.save(changed_state(change), source)
    command = ["import-checkpoint", source, "--dict", dictionary, "--out", tmp_path / "out"]
    assert sentence in refuse(*command)
    assert not (tmp_path / "out").exists()


class Calls:
    """Object that is pickled as a function call, like an attack."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


HOSTILE = {
    "a shell command": lambda mark: Calls(os.system, f"touch {mark}"),
    "code": lambda mark: Calls(eval, f"open({str(mark)!r}, 'w')"),
    "any attribute": lambda mark: Calls(getattr, str(mark), "upper"),
    "inside the options": lambda mark: argparse.Namespace(arch=Calls(os.mkdir, str(mark))),
    "another pickle": lambda mark: Calls(pickle.loads, pickle.dumps(Calls(os.mkdir, str(mark)))),
}


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("kind", HOSTILE)
def test_import_rejects_hostile_files(tmp_path, dictionary, refuse, kind, zipped):
    mark = tmp_path / "mark"
    source = tmp_path / "in.pt"
    out = tmp_path / "out"
    state = {**released_state(), "args": HOSTILE[kind](mark)}
    torch.save(state, source, _use_new_zipfile_serialization=zipped)
    message = refuse("import-checkpoint", source, "--dict", dictionary, "--out", out)
    assert "not on the list of types that only hold values" in message
    assert not mark.exists()
    assert not out.exists()


def test_import_rejects_invalid_dictionary_and_used_folder(tmp_path, dictionary, refuse):
    with pytest.raises(FileNotFoundError):
        read_dictionary(tmp_path / "none.txt")
    (tmp_path / "words.txt").write_text("no count\n")
    with pytest.raises(ValueError, match="Incorrect dictionary format"):
        read_dictionary(tmp_path / "words.txt")
    path = run_import(tmp_path, dictionary, released_state())
    before = path.read_bytes()
    assert path.with_name("dict.txt").read_bytes() == dictionary.read_bytes()
    command = ["import-checkpoint", tmp_path / "alibi_wt103_L32.pt", "--dict", dictionary]
    assert "is not an empty folder" in refuse(*command, "--out", path.parent)
    assert path.read_bytes() == before
