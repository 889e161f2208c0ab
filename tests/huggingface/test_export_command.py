"""``alibi-fairseq export`` on trained checkpoints, evaluated with transformers."""

from __future__ import annotations

import math
import sys

import pytest
import torch
from commands import as_process
from trained import TRAIN_LENGTH
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from alibi_fairseq.cli import main
from alibi_fairseq.evaluation.split import load_dictionary, load_split
from alibi_fairseq.results.data_folder import DataFolder

EOS = 2


@pytest.fixture(scope="module")
def no_tokenizer_check():
    """Skip the tokenizer check: the tests split the corpus without a sentencepiece model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "alibi_fairseq.huggingface.export.find_tokenizer_files", lambda *arguments: {}
        )
        yield


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory, no_tokenizer_check):
    """Return a function that exports a checkpoint to a folder."""
    folders = {}

    def export(name: str):
        if name not in folders:
            folder = tmp_path_factory.mktemp(name) / "model"
            arguments = ["--data", str(trained.data), "--path", str(trained(name))]
            assert main(["export", *arguments, "--out", str(folder)]) == 0
            folders[name] = folder
        return folders[name]

    return export


def valid(data) -> torch.Tensor:
    split = load_split(DataFolder.open(data), "valid", load_dictionary(data))
    return torch.from_numpy(split.tokens)


def perplexity(model, data, length: int) -> float:
    """Return the perplexity in non-overlapping windows, without code of this package.

    A memory is passed from window to window.
    """
    tokens = valid(data)
    inputs = torch.cat([torch.tensor([EOS]), tokens[:-1]])
    nats = 0.0
    past = None
    memory_length = getattr(model.config, "memory_length", 0)
    for segment, targets in zip(inputs.split(length), tokens.split(length)):
        output = model(segment[None], past_key_values=past, use_cache=bool(memory_length))
        if memory_length:
            past = model.keep_memory(output.past_key_values)
        logits = output.logits[0].double()
        nats += torch.nn.functional.cross_entropy(logits, targets, reduction="sum").item()
    assert (past.get_seq_length() if past else 0) == memory_length
    return math.exp(nats / len(tokens))


ARCHITECTURES = {
    "alibi": "alibi_lm",
    "alibi-adaptive": "alibi_lm",
    "bloom": "bloom",
    "learned": "opt",
    "sinusoidal": "xglm",
    "rotary": "gpt_neox",
    "transformer-xl": "alibi_lm",
}


@pytest.mark.parametrize("name", ARCHITECTURES)
@torch.no_grad()
def test_perplexity_matches_eval(name, exported, trained, sweep):
    folder = exported(name)
    remote = {"trust_remote_code": ARCHITECTURES[name] == "alibi_lm"}
    assert AutoConfig.from_pretrained(folder, **remote).model_type == ARCHITECTURES[name]
    model = AutoModelForCausalLM.from_pretrained(folder, **remote)
    factors = (1,) if name == "learned" else (1, 4, 16)  # learned positions end there
    for cell in sweep(name, lengths=[factor * TRAIN_LENGTH for factor in factors]):
        measured = perplexity(model, trained.data, cell.case.length)
        assert measured == pytest.approx(cell.values.perplexity, rel=1e-5)


def test_files_of_export_folder(exported):
    folder = exported("bloom")
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md",
        "config.json",
        "dict.txt",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    card = (folder / "README.md").read_text()
    alibi_lm_card = (exported("alibi") / "README.md").read_text()
    assert "Format: BLOOM." in card
    assert f'from_pretrained("{folder.name}")' in card
    assert "trust_remote_code" not in card  # BLOOM and a word-level tokenizer need none
    assert alibi_lm_card.count("trust_remote_code") == 1  # the model does
    assert "it would be BLOOM" in alibi_lm_card


@pytest.mark.slow
def test_harness_evaluates_export(exported, trained):
    """EleutherAI's lm-evaluation-harness, on as many tokens as fill its windows."""
    pytest.importorskip("accelerate", reason="required by the harness for Hugging Face models")
    pytest.importorskip("lm_eval")
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    folder = exported("alibi-adaptive")
    length = TRAIN_LENGTH
    tokens = valid(trained.data)[: 4 * TRAIN_LENGTH]
    settings = dict(trust_remote_code=True, device="cpu", dtype="float32", max_length=length)
    harness = HFLM(pretrained=str(folder), **settings)
    text = AutoTokenizer.from_pretrained(folder).decode(tokens)
    request = Instance("loglikelihood_rolling", {}, (text,), 0)
    (log_likelihood,) = harness.loglikelihood_rolling([request], disable_tqdm=True)
    inputs = torch.cat([torch.tensor([EOS]), tokens[:-1]]).view(4, length)
    with torch.no_grad():
        scores = harness.model(inputs).logits.log_softmax(-1)
    expected = scores.gather(-1, tokens.view(4, length, 1)).sum().item()
    assert log_likelihood == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_export_loads_without_fairseq(exported):
    folder = exported("alibi-adaptive")
    hidden = "import sys; sys.modules.update(fairseq=None, alibi_fairseq=None); "
    loaded = "from transformers import AutoModelForCausalLM, AutoTokenizer; "
    for name in ("AutoTokenizer", "AutoModelForCausalLM"):
        loaded += f"{name}.from_pretrained({str(folder)!r}, trust_remote_code=True); "
    done = as_process("-c", hidden + loaded, HF_HOME=folder.parent / "empty")
    assert done.returncode == 0, done.stderr[-2000:]


def test_missing_package_is_named(trained, tmp_path, refuse, monkeypatch):
    good = ["export", "--path", trained("sinusoidal"), "--data", trained.data]
    good += ["--out", tmp_path / "model"]
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "alibi_fairseq.huggingface.export")
    assert "scripts/install.sh" in refuse(*good)
