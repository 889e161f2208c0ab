"""``fairseq-eval-lm`` with a memory: what it scores, and what it says when the task is missing."""

from __future__ import annotations

import math

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq_runs import run_eval_lm, run_train, write_corpus
from torch.nn.functional import cross_entropy

from alibi_fairseq import AlibiLanguageModel
from alibi_fairseq.errors import UserInputError

TASK = ["--task", "segment_language_modeling", "--tokens-per-sample", "16"]
ONE_ROW = [*TASK, "--batch-size", "1", "--gen-subset", "test"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A corpus and a checkpoint with a memory of 16 states."""
    torch.manual_seed(1)
    folder = tmp_path_factory.mktemp("xl")
    data = write_corpus(folder, train=2000, valid=200, test=203)
    flags = [*TASK, "--batch-size", "4", "--max-update", "40"]
    run_train(data, folder / "xl", *flags, "--position-method", "transformer_xl", "--mem-len", "16")
    return data, folder / "xl" / "checkpoint_last.pt"


def whole_text(data, checkpoint):
    """Loss in bits of every token of the test set, from one forward pass without segments."""
    models, _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(checkpoint)], arg_overrides={"data": str(data)}
    )
    task.load_dataset("test")
    stream = task.dataset("test")
    text = stream.read(-1, len(stream))
    with torch.no_grad():
        scores = models[0].eval()(text[None, :-1])[0][0]
    return cross_entropy(scores, text[1:], reduction="none") / math.log(2)


def test_full_memory_equals_one_forward_pass(trained):
    overrides = ["--model-overrides", "{'mem_len': 1000}"]
    found = run_eval_lm(*trained, *ONE_ROW, *overrides)["loss"]
    assert found == pytest.approx(whole_text(*trained).mean().item(), abs=1e-5)


def test_longer_memory_lowers_the_loss(trained):
    losses = [
        run_eval_lm(*trained, *ONE_ROW, "--model-overrides", f"{{'mem_len': {length}}}")["loss"]
        for length in (0, 16, 64)
    ]
    assert run_eval_lm(*trained, *ONE_ROW)["loss"] == losses[1]
    assert losses[1] < losses[0]
    assert len({round(float(loss), 6) for loss in losses}) == 3


def test_eval_lm_scores_every_token(trained, caplog):
    for rows in (1, 4):
        run_eval_lm(*trained, *TASK, "--batch-size", str(rows), "--gen-subset", "test")
    assert caplog.text.count("Evaluated 203 tokens") == 2


@torch.no_grad()
def test_hub_interface_uses_no_memory(trained):
    data, checkpoint = trained
    hub = AlibiLanguageModel.from_pretrained(checkpoint.parent, checkpoint.name, str(data))
    found = hub.score("w1 w2 w3 w5")
    model = hub.models[0]
    end = hub.task.dictionary.eos()
    inputs = torch.tensor([[end, *found["tokens"].tolist()[:-1]]])
    expected = model(inputs)[0][0].log_softmax(-1).gather(1, found["tokens"][:, None])[:, 0]
    torch.testing.assert_close(found["positional_scores"], expected, rtol=0, atol=1e-5)
    assert hub.sample("w1 w2", beam=2, max_len_b=9).startswith("w1 w2 ")


def test_missing_task_is_named(trained):
    command = ["--tokens-per-sample", "16", "--batch-size", "1", "--gen-subset", "test"]
    with pytest.raises(UserInputError, match="--task segment_language_modeling.*fairseq-eval-lm"):
        run_eval_lm(*trained, *command)
    without = run_eval_lm(*trained, *command, "--model-overrides", "{'mem_len': 0}")
    assert without["loss"] > 0
