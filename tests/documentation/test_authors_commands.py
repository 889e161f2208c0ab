"""Commands of the ALiBi authors' README as docs/authors-commands.md translates them."""

from __future__ import annotations

import math
import re
import shlex
import sys

import pytest
import torch
from checkpoints.released_format import (
    CUTOFFS,
    LENGTH,
    WORDS,
    log_probabilities,
    write_dictionary,
)
from commands import ROOT, in_process
from conftest import FIRST_WORD
from documentation.test_documented_commands import shell_commands
from fairseq import checkpoint_utils
from torch import Tensor

from alibi_fairseq import cli
from alibi_fairseq.results.file import load_training

PAGE = ROOT / "docs" / "authors-commands.md"
#: Commands of https://github.com/ofirpress/attention_with_linear_biases/blob/master/README.md
TRAIN = """python train.py --task language_modeling data-bin/wikitext-103 --save-dir wt103/
    --arch transformer_lm_wiki103 --max-update 286000 --lr 1.0 --t-mult 2
    --lr-period-updates 270000 --lr-scheduler cosine --lr-shrink 0.75 --warmup-updates 16000
    --warmup-init-lr 1e-07 --stop-min-lr 1e-09 --optimizer nag --min-lr 0.0001 --clip-norm 0.1
    --criterion adaptive_loss --max-tokens 9216 --update-freq 1 --tokens-per-sample 512 --seed 1
    --sample-break-mode none --skip-invalid-size-inputs-valid-test --ddp-backend=legacy_ddp --fp16
    --required-batch-size-multiple 1"""
EVALUATE = """l=1024; fairseq-eval-lm data-bin/wikitext-103/ --path wt103/checkpoint_best.pt
    --sample-break-mode none --gen-subset valid --max-sentences 1
    --model-overrides "{'max_tokens':$l, 'tokens_per_sample':$l, 'max_target_positions':$l}"
    --tokens-per-sample $l --max-tokens $l --max-target-positions $l --context-window CONTEXT"""
#: What the page says about each of their words that changes.
TRANSLATIONS = {
    "python train.py": "alibi-fairseq train",
    "fairseq-eval-lm": "alibi-fairseq eval-lm",
    "data-bin/wikitext-103/": "data/wikitext-103/data-bin",
    "data-bin/wikitext-103": "data/wikitext-103/data-bin",
    "--arch transformer_lm_wiki103": "--arch alibi_lm_wiki103",
}
#: Options that make the model as small as the formulas of released_format.py expect.
TOY = """--decoder-layers 2 --decoder-embed-dim 64 --decoder-input-dim 64 --decoder-output-dim 64
    --decoder-ffn-embed-dim 96 --adaptive-input-cutoff 24,40 --adaptive-softmax-cutoff 24,40
    --cpu --num-workers 0"""
#: Updates and length of the toy training, with a rate at which it learns.
SCHEDULE = f"--max-update 8 --tokens-per-sample {LENGTH} --warmup-updates 1"
EOS = 2


def translated(command: str) -> list[str]:
    for theirs, ours in TRANSLATIONS.items():
        command = command.replace(theirs, ours)
    return shlex.split(command)


def test_page_has_every_word_of_the_readme():
    commands = shell_commands(PAGE)
    assert translated(TRAIN) in commands
    for context in ("0", "$((l-1))"):
        assert translated(EVALUATE.replace("CONTEXT", context)) in commands


def bits_per_token(weights: dict[str, Tensor], tokens: Tensor, length: int, stride: int) -> float:
    """Return the loss by the published formulas, in windows that score ``stride`` tokens each."""
    inputs = torch.cat([torch.tensor([EOS]), tokens[:-1]])
    nats = 0.0
    for start in range(0, len(tokens), stride):
        stop = min(start + stride, len(tokens))
        first = max(0, start + stride - length)
        log_probs = log_probabilities(weights, inputs[None, first:stop])[0, start - first :]
        nats -= log_probs.gather(1, tokens[start:stop, None]).sum().item()
    return nats / len(tokens) / math.log(2)


@pytest.fixture
def text(tmp_path):
    """Return the tokens of the data that the page's commands find in the current folder."""
    dictionary = write_dictionary(tmp_path / "dict.txt")
    words = torch.arange(FIRST_WORD, FIRST_WORD + WORDS)
    # fairseq's adaptive_loss takes word 1 of each tail cluster for padding, as in the fork.
    words = words[~torch.isin(words - 1, torch.tensor(CUTOFFS))]
    rows = [words]
    for _ in range(6):
        rows.append(words[torch.randint(len(words), (40,))])
    lines = [" ".join(f"w{token - FIRST_WORD}" for token in row) for row in rows]
    (tmp_path / "text").write_text("\n".join(lines) + "\n")
    in_process(
        *("preprocess", "--only-source", "--srcdict", dictionary, "--workers", 1),
        *("--trainpref", tmp_path / "text", "--validpref", tmp_path / "text"),
        *("--destdir", tmp_path / "data" / "wikitext-103" / "data-bin"),
    )
    return torch.cat([torch.cat([row, torch.tensor([EOS])]) for row in rows])


@torch.no_grad()
def test_commands_compute_the_published_formulas(text, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    _, *train = [word for word in translated(TRAIN) if word != "--fp16"]
    vars(checkpoint_utils.save_checkpoint).pop("best", None)  # left by an earlier training
    with torch.enable_grad():
        assert cli.main([*train, *TOY.split(), *SCHEDULE.split()]) == 0
    state = torch.load("wt103/checkpoint_best.pt", weights_only=True)
    weights = {**state["model"], "decoder.embed_positions._float_tensor": torch.zeros(1)}
    best = min(record.values.loss_bits for record in load_training(tmp_path / "wt103").results)
    expected = bits_per_token(weights, text, LENGTH, LENGTH)
    assert best == pytest.approx(expected, abs=1e-4)

    length = 2 * LENGTH
    for context, stride in (("0", length), ("$((l-1))", 1)):
        _, _, *evaluate = translated(EVALUATE.replace("CONTEXT", context))
        words = []
        for word in evaluate:
            words.append(word.replace("$((l-1))", str(length - 1)).replace("$l", str(length)))
        caplog.clear()
        with caplog.at_level("INFO"):
            assert cli.main([*words, "--cpu", "--num-workers", "0"]) == 0
        (loss,) = re.findall(r"Loss \(base 2\): ([\d.]+)", caplog.text)
        expected = bits_per_token(weights, text, length, stride)
        assert float(loss) == pytest.approx(expected, abs=1e-4)


def test_stock_architecture_warns(text, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    _, *train = [word for word in translated(TRAIN) if word != "--fp16"]
    train[train.index("alibi_lm_wiki103")] = "transformer_lm_wiki103"
    vars(checkpoint_utils.save_checkpoint).pop("best", None)  # left by an earlier training
    assert cli.main([*train, *TOY.split(), *SCHEDULE.split(), "--max-update", "1"]) == 0
    (record,) = [record for record in caplog.records if "--arch" in record.message]
    assert "transformer_lm_wiki103 is fairseq's model, with position method 'sinusoidal'" in (
        record.message
    )
    assert "pass --arch alibi_lm_wiki103 here" in record.message
