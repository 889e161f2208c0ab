"""Invalid options: one sentence, exit code 2, and no traceback."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from pathlib import Path

import pytest
import torch
from bad_input_cases import mostly_slow
from commands import SHORT

from alibi_fairseq.data.probe_data import PROBE_FILE

#: Options of a training, and a part of the message.
TRAINING = {
    "--decoder-attention-heads 5": "--decoder-attention-heads must be a divisor of the width, 32",
    "--keep-at soon": "--keep-at must be numbers of updates",
    "--ffn geglu": "--ffn must be mlp or swiglu",
    "--ffn swiglu --activation-fn gelu": "--activation-fn must be relu with --ffn swiglu",
    "--key-value-heads 3": "--key-value-heads must be a divisor of",
    "--block-diagonal eos --mem-len 8": "--block-diagonal must be none with --mem-len",
    "--position-method transformer_xl --mem-len 8": "Add --task segment_language_modeling",
    "--tokens-per-sampel 8": "--tokens-per-sampel",
    # fairseq would train nothing and exit with 0, hang, or be ended by a signal.
    "--distributed-init-method nosuch": "--distributed-init-method",
    "--write-checkpoints-asynchronously": "without an update",
    "--alibi-slopes /dev/zero": "alibi_slopes",
    "--alibi-slopes none.txt": "none.txt cannot be used (No such file or directory)",
    "--alibi-slopes 1,1,1": "--alibi-slopes has 3 numbers",
    "--position-method rotary,none": "--position-method rotary,none lists 2 layers",
    "--position-method rotary --rotary-percent 0.3": "--rotary-percent 0.3 rotates",
    "--position-method rotary --p-rope 0.5 --rotary-percent 0.5": "--p-rope cannot be combined",
    "--position-method rotary --rotary-scaling yarn": "--rotary-scaling must be none, or one of pi",
    "--position-method t5 --t5-max-distance 16": "--t5-max-distance must be an integer above 16",
    "--p-rope 0.5": "--p-rope applies only to position method rotary",
    "--attention-window 8k": "--attention-window must be a number of tokens",
    "--attention-backend sdp": "There is no attention backend 'sdp'",
    "--tie-adaptive-weights": "--tie-adaptive-weights",
    "--base-layers 1": "--base-layers",
    "--decoder-layers-to-keep 0": "--decoder-layers-to-keep",
    "--finetune-from-model FOLDER": "--finetune-from-model",
    "--fp16": "--fp16",
    "--arch alibi_lm_tny": "Did you mean 'alibi_lm_tiny'?",
    "--position-method my_method": "--user-dir",
    "--criterion ctc": "criterion 'ctc'",
    "--seed 99999999999999999999999": "train_seed",
}


@pytest.mark.parametrize("flags", mostly_slow(TRAINING, 24))
def test_invalid_training_options_are_rejected(data_bin, checkpoint, tmp_path, refuse, flags):
    paths = {"CHECKPOINT": checkpoint, "FOLDER": tmp_path}
    words = [paths.get(word, word) for word in shlex.split(flags)]
    run = tmp_path / "run"
    assert TRAINING[flags] in refuse("train", data_bin, *SHORT, *words, "--save-dir", run)
    assert not run.exists()


#: Options that are not checked. fairseq, NumPy, or PyTorch raises an unexpected error.
UNEXPECTED = (
    *(
        "--adaptive-input --adaptive-input-cutoff 20,10",
        "--adam-betas (0.9)",
        "--criterion adaptive_loss --adaptive-softmax-cutoff 10,20",
        "--lr =",
        "--task masked_lm",
    ),
    *("--log-file /nosuch/x", "--seed -1", "--update-freq 0", "--num-workers -1"),
    "--lr-scheduler inverse_sqrt --warmup-updates 0",
)


@pytest.mark.parametrize("flags", mostly_slow(UNEXPECTED, 4))
def test_unexpected_error_saves_traceback(data_bin, tmp_path, fail, capsys, monkeypatch, flags):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code, message = fail("train", data_bin, *SHORT, *flags.split(), "--save-dir", tmp_path / "run")
    assert code in (1, 2)
    assert "Traceback" not in capsys.readouterr().err
    if code == 1:
        traceback = Path(message.partition("its traceback is in ")[2]).read_text()
        assert message.partition(": ")[0] in traceback
        assert "Traceback" in traceback
    assert not list(tmp_path.rglob("*.pt"))
    assert not list(tmp_path.rglob("*.lock"))


#: Arguments of each command, and a part of the message.
COMMANDS = {
    "": [
        ("compair", "Did you mean 'compare'?"),
        ("models --unknown 3", "arguments: --unknown 3. "),
    ],
    "train": [
        (f"nowhere {' '.join(SHORT)}", "nowhere"),
        (f"EMPTY {' '.join(SHORT)}", "dict.txt"),
        ("DATA --user-dir nowhere", "there is no folder"),
    ],
    "eval-lm": [
        ("DATA --cpu --path RUN", "RUN/checkpoint_best.pt"),
    ],
    "eval": [
        ("DATA --path CHECKPOINT --lengths 16,x", "--lengths must be a number of tokens"),
        ("DATA --path CHECKPOINT --lengths 0", "--lengths must be a number of tokens"),
        ("DATA --path CHECKPOINT --lengths 16 --strides 17", "--strides"),
        (
            "DATA --path CHECKPOINT --lengths 16 --strides half",
            "--strides must be 'full' or a number of tokens, not 'half'",
        ),
        ("DATA --path CHECKPOINT --lengths 8 --model-overrides {'a':1}", "must be a JSON object"),
        ("DATA --path CHECKPOINT --lengths 8 --out /dev/full", "/dev/full"),
        (
            "DATA --path CHECKPOINT --lengths 8 --device abacus",
            "--device must be auto, cpu, or a GPU",
        ),
        (
            "DATA --path CHECKPOINT --lengths 8 --memory-gb inf",
            "--memory-gb must be a positive number",
        ),
        ("DATA --path CHECKPOINT --lengths 8 --per-document lines", "--per-document"),
        ("DATA --path CHECKPOINT --lengths 8 --per-document titles", "finds only one document"),
        ("DATA --path CHECKPOINT --lengths 8 --score-from 99999", "leave no token to score"),
        ("DATA --path CHECKPOINT --lengths 8 --score-from 9 --score-to 9", "leave no token"),
        ("DATA --path CHECKPOINT --lengths 8 --score-from=0", "tokens of at least 1"),
        ("DATA --path CHECKPOINT --lengths 8 --score-to=-5", "tokens of at least 1"),
        ("DATA --path CHECKPOINT --lengths 8 --subset dev", "'dev' of"),
        ("DATA --path RUN --lengths 8", "RUN/checkpoint_best.pt"),
        ("DATA --path EMPTY --lengths 8", "nor a Hugging Face model (config.json)"),
        ("DATA:EMPTY --path CHECKPOINT --lengths 8 --subset valid,train", "among the shards"),
        ("PROBE --path CHECKPOINT --lengths 8 --by-position", "--by-position has no effect on"),
        ("PROBE --path CHECKPOINT --lengths 8 --per-document", "--per-document has no effect on"),
        ("PROBE --path CHECKPOINT --lengths 8 --score-from 2", "--score-from has no effect on"),
        ("PROBE --path CHECKPOINT --lengths 8 --strides 4", "--strides has no effect on"),
        ("PROBE --path CHECKPOINT --lengths 8 --subset test", "--subset has no effect on"),
    ],
    "compare": [
        (". --out x --methods alibi sinusoidal", "--methods alibi,sinusoidal"),
        (". --out x --methods my_method", "--user-dir"),
        (". --out x --lr x", "--lr must be a valid number, not 'x'."),
        (". --out x --tokens-per-update 100", "--tokens-per-update: 100 is not"),
        (
            ". --out x --lengths 4y",
            "--lengths must be a number of tokens, or like 4x",
        ),
        (". --out x --arch alibi_lm_tny", "Did you mean 'alibi_lm_tiny'?"),
        (". --out x --slurm-option partition=gpu", "requires --slurm"),
        (". --out x --slurm --slurm-option gpu", "NAME=VALUE"),
        ("--out x", "There is no text to compare on"),
        ("DATA --out x --subset dev", "no split 'dev'. Choose from test, train, valid."),
        ("DATA PROMPT --out x", "is already binary data"),
        ("DATA --out x --vocab-size 9", "is already binary data"),
        ("YAML --out x --seeds 2", "cannot be combined with other options"),
        ("PROMPT YAML --out x", "a.yaml cannot be combined with other options"),
        ("PLUGIN --out x", "Pass --user-dir plugin as well"),
        ("--probes copy --out x --lengths 96", "--lengths has no effect here"),
        ("--probes copy --out x --per-document", "--per-document has no effect here"),
    ],
    "prepare": [("txt .", "Did you mean 'text'?")],
    "train --recipe": [
        ("RECIPE DATA --gpus 2", "--save-dir"),
        ("RECIPE --gpus 2 --save-dir d", "required: data"),
        ("wikitext-103/alibi DATA --gpus 2 --save-dir d", "wikitext-103/alibi"),
        ("RECIPE DATA --save-dir d", "Pass --cpu N"),
        (
            "RECIPE DATA --gpus 5 --save-dir d",
            "numbers of GPUs: 1, 2, 3, 4, 6, 8, 9, 12, 16, 18, 24, 36, 48, 72, 144.",
        ),
        ("RECIPE DATA --gpus 9 --nodes 2 --rdzv-endpoint a:1 --save-dir d", "2 nodes"),
        ("RECIPE DATA --gpus 8 --nodes 2 --save-dir d", "--rdzv-endpoint"),
        ("RECIPE DATA --gpus 0 --save-dir d", "--gpus must be a positive integer, not '0'"),
        ("RECIPE DATA --cpu -2 --save-dir d", "--cpu"),
        ("RECIPE DATA --cpu 2 --nodes 0 --save-dir d", "--nodes must be a positive integer"),
        ("RECIPE DATA --gpus 2 --cpu 2 --save-dir d", "--gpus and --cpu exclude each other"),
        ("RECIPE DATA --gpus 2 --save-dir d --lrr 1", "--lrr"),
        ("RECIPE DATA --gpus 2 --save-dir d --keep-at 999999", "--max-update 286000"),
        ("extend/alibi-512-at-512 DATA --cpu 2 --save-dir d", "--finetune-from-model"),
    ],
    "reproduce": [
        ("all", "--corpus wikitext-103=PATH --corpus bookcorpus=PATH --corpus cc100-roberta="),
        ("table5 --corpus wikitext-2=EMPTY", "wikitext-103, bookcorpus"),
        ("table5 --corpus wikitext-103=EMPTY --corpus wikitext-103=EMPTY", "one --corpus for each"),
        ("table5 --cpu 1 --corpus wikitext-103=nowhere.zip", "nowhere.zip"),
        ("table17", "Choose from table2"),
        ("table1", "python -m benchmarks.methods"),
        ("figure3", "no data"),
        ("table5 --corpus wikitext-103=EMPTY", "Pass --cpu N"),
        ("table5 --corpus wikitext-103=EMPTY --gpus 8", "--cpu N"),
        ("table5 --corpus wikitext-103=EMPTY --slurm", "--slurm requires resources"),
        ("table8 --dry-run --gpus 0", "--gpus must be a positive integer, not '0'"),
        ("table8 --dry-run --cpu 0", "--cpu must be a positive integer, not '0'"),
        ("table8 --dry-run --gpus 2 --cpu 2", "--gpus and --cpu exclude each other"),
        ("table8 --dry-run --gpus 5", "numbers of GPUs: 1, 2, 3"),
    ],
}


@pytest.mark.parametrize(
    ("command", "words", "named"),
    [(command, *case) for command, cases in COMMANDS.items() for case in cases],
)
def test_invalid_options_are_rejected(
    data_bin, checkpoint, tmp_path, refuse, command, words, named, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    Path("empty").mkdir()
    Path("probe").mkdir()
    Path("probe", PROBE_FILE).write_text("{}")
    Path("prompt.txt").write_text("w1 w2 w3\n")
    Path("a.yaml").write_text("corpora: [{name: a, text: [.]}]")
    Path("plugin.yaml").write_text("user_dir: plugin\ncorpora: [{name: a, text: [.]}]")
    paths = {"CHECKPOINT": checkpoint, "DATA": data_bin, "RUN": checkpoint.parent}
    paths |= {"EMPTY": "empty", "PROBE": "probe", "PROMPT": "prompt.txt"}
    paths |= {"YAML": "a.yaml", "PLUGIN": "plugin.yaml", "RECIPE": "wikitext-103/alibi-512"}
    for name, path in paths.items():
        words = re.sub(rf"\b{name}\b", str(path), words)
        named = named.replace("RUN", str(checkpoint.parent))
    if command == "eval" and "--out" not in words:
        words += " --out r.json"
    if command == "reproduce":
        words += " --out x"
    before = set(tmp_path.rglob("*"))
    assert named in refuse(*command.split(), *words.split())
    left = [path for path in set(tmp_path.rglob("*")) - before if path.is_file()]
    assert {path.name for path in left} <= {"lock"}


#: Commands that would read a device or a pipe forever.
ENDLESS = (
    *("report INPUT", "compare INPUT.yaml --out x", "prepare text INPUT", "eval DATA --path INPUT"),
    *("eval-lm DATA --cpu --path INPUT", "import-checkpoint INPUT --dict INPUT --out x"),
    *("import-checkpoint CHECKPOINT --dict INPUT --out x",),
    "export --path CHECKPOINT --data DATA --out x --tokenizer-files INPUT",
)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("words", ENDLESS)
@pytest.mark.parametrize("kind", ["/dev/zero", "pipe"])
def test_input_must_be_regular_file(
    data_bin, checkpoint, tmp_path, refuse, words, kind, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    input_path = tmp_path / "input"
    for path in (input_path, tmp_path / "input.yaml"):
        if kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(kind)
    for name, path in (("DATA", data_bin), ("CHECKPOINT", checkpoint), ("INPUT", input_path)):
        words = words.replace(name, str(path))
    if words.startswith("eval "):
        words += " --lengths 8 --out r.json"
    assert "is a device or a pipe" in refuse(*words.split())
