"""``fairseq-eval-lm`` of a model with memory, and its error without the segment task."""

from __future__ import annotations

import logging
import math
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils, hub_utils
from fairseq.sequence_scorer import SequenceScorer
from fairseq_runs import run_eval_lm, run_train, write_corpus
from torch.nn.functional import cross_entropy

from alibi_fairseq import AlibiLanguageModel
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.models import language_model

TASK = ["--task", "segment_language_modeling", "--tokens-per-sample", "16"]
ONE_ROW = [*TASK, "--batch-size", "1", "--gen-subset", "test"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a corpus and a checkpoint with a memory of 16 states."""
    torch.manual_seed(1)
    folder = tmp_path_factory.mktemp("xl")
    data = write_corpus(folder, train=2000, valid=200, test=203)
    flags = [*TASK, "--batch-size", "4", "--max-update", "40"]
    run_train(data, folder / "xl", *flags, "--position-method", "transformer_xl", "--mem-len", "16")
    return data, folder / "xl" / "checkpoint_last.pt"


def losses_of_one_pass(data, checkpoint):
    """Return the loss in bits of every test token, from one forward pass without segments."""
    models, _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(checkpoint)], arg_overrides={"data": str(data)}
    )
    task.load_dataset("test")
    stream = task.dataset("test")
    text = stream.read(-1, len(stream))
    with torch.no_grad():
        scores = models[0].eval()(text[None, :-1])[0][0]
    return cross_entropy(scores, text[1:], reduction="none") / math.log(2)


@pytest.mark.ci
def test_full_memory_equals_one_forward_pass(trained):
    overrides = ["--model-overrides", "{'mem_len': 1000}"]
    loss = run_eval_lm(*trained, *ONE_ROW, *overrides)["loss"]
    expected = losses_of_one_pass(*trained).mean().item()
    assert loss == pytest.approx(expected, abs=1e-5)


@pytest.mark.ci
def test_longer_memory_lowers_loss(trained):
    losses = {}
    for length in (0, 16, 64):
        overrides = ["--model-overrides", f"{{'mem_len': {length}}}"]
        losses[length] = run_eval_lm(*trained, *ONE_ROW, *overrides)["loss"]
    assert run_eval_lm(*trained, *ONE_ROW)["loss"] == losses[16]
    assert losses[16] < losses[0]
    assert len({round(float(loss), 6) for loss in losses.values()}) == 3


def test_eval_lm_scores_every_token(trained, caplog):
    caplog.set_level(logging.INFO)
    for rows in (1, 4):
        run_eval_lm(*trained, *TASK, "--batch-size", str(rows), "--gen-subset", "test")
    assert caplog.text.count("Evaluated 203 tokens") == 2


def test_models_of_ensemble_have_separate_memories(trained, tmp_path):
    data, checkpoint = trained
    state = torch.load(checkpoint, weights_only=True)
    for name, weight in state["model"].items():
        if "fc2" in name:
            state["model"][name] = weight * 2
    other = tmp_path / "other.pt"
    torch.save(state, other)
    models, _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(checkpoint), str(other)], {"data": str(data)}
    )
    task.load_dataset("test")

    def scores_of(models):
        batches = task.eval_lm_dataloader(task.dataset("test"), batch_size=1)
        scorer = SequenceScorer(task.target_dictionary, compute_alignment=False)
        scored = [scorer.generate([*models], batch)[0][0]["positional_scores"] for batch in batches]
        return torch.cat(scored).exp()

    alone = [scores_of([model]) for model in models]
    torch.testing.assert_close(scores_of(models), sum(alone) / 2)


@torch.no_grad()
def test_hub_interface_uses_no_memory(trained):
    data, checkpoint = trained
    hub = AlibiLanguageModel.from_pretrained(checkpoint.parent, checkpoint.name, str(data))
    scored = hub.score("w1 w2 w3 w5")
    tokens = scored["tokens"]
    model = hub.models[0]
    eos = hub.task.dictionary.eos()
    inputs = torch.tensor([[eos, *tokens.tolist()[:-1]]])
    log_probs = model(inputs)[0][0].log_softmax(-1)
    expected = log_probs.gather(1, tokens[:, None])[:, 0]
    torch.testing.assert_close(scored["positional_scores"], expected, rtol=0, atol=1e-5)
    assert hub.sample("w1 w2", beam=2, max_len_b=9).startswith("w1 w2 ")


@pytest.mark.parametrize(
    ("data", "folder"), [(".", "model"), ("./data-bin", "model/data-bin"), ("data", "data")]
)
def test_hub_tokenizer_belongs_to_the_data_that_fairseq_reads(data, folder, monkeypatch):
    opened = []
    monkeypatch.setattr(language_model, "tokenizer_options", lambda path: opened.append(path) or {})
    loaded = {"args": {}, "task": None, "models": []}
    monkeypatch.setattr(hub_utils, "from_pretrained", lambda *arguments: loaded)
    monkeypatch.setattr(language_model, "HubInterface", lambda *arguments: None)
    AlibiLanguageModel.from_pretrained("model", "last.pt", data)
    assert [Path(path) for path in opened] == [Path(folder)]


def test_error_names_missing_task(trained):
    command = ["--tokens-per-sample", "16", "--batch-size", "1", "--gen-subset", "test"]
    with pytest.raises(UserInputError, match="--task segment_language_modeling.*fairseq-eval-lm"):
        run_eval_lm(*trained, *command)
    without_memory = run_eval_lm(*trained, *command, "--model-overrides", "{'mem_len': 0}")
    assert without_memory["loss"] > 0
