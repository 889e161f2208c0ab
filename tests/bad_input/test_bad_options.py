"""Invalid options: one sentence, exit code 2, and no traceback."""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path

import pytest
from bad_input_cases import mostly_slow
from commands import SHORT

#: Options of a training, and a part of the message.
TRAINING = {
    "--dropout 2": "--dropout",
    "--decoder-attention-heads 5": "5 attention heads",
    "--tokens-per-sampel 8": "--tokens-per-sampel",
    "--restore-file CHECKPOINT --decoder-embed-dim 64": "embed_tokens",
    "--restore-file CHECKPOINT --decoder-layers 2": "layers.1",
    "--adaptive-input --adaptive-input-cutoff 1000": "cutoff",
    # fairseq would train nothing and exit with 0, hang, or be ended by a signal.
    "--distributed-init-method nosuch": "--distributed-init-method",
    "--write-checkpoints-asynchronously": "without an update",
    "--alibi-slopes /dev/zero": "alibi_slopes",
    "--required-batch-size-multiple 0": "--required-batch-size-multiple",
    "--tie-adaptive-weights": "--tie-adaptive-weights",
    "--base-layers 1": "--base-layers",
    "--decoder-layers-to-keep x": "decoder_layers_to_keep",
    "--output-dictionary-size 20": "--no-share-decoder-input-output-embed",
    "--finetune-from-model FOLDER": "--finetune-from-model",
    "--fp16": "--fp16",
    "--decoder-ffn-embed-dim 0": "--decoder-ffn-embed-dim",
    "--arch alibi_lm_tny": "Did you mean 'alibi_lm_tiny'?",
    "--position-method my_method": "--user-dir",
    # fairseq, NumPy, or PyTorch raises an error where it uses the value first.
    "--criterion ctc": "criterion 'ctc'",
    "--adaptive-softmax-cutoff 20,10": "negative dimension",
    "--adam-betas test": "self.cfg.adam_betas",
    "--update-freq ' '": "ast.literal_eval",
    "--seed 99999999999999999999999": "train_seed",
    "--quant-noise-pq 0.1 --quant-noise-pq-block-size 0": "block_size",
    "--criterion adaptive_loss --adaptive-softmax-cutoff 10,20": "--ddp-backend=legacy_ddp",
    "--adaptive-input": "--adaptive-input-cutoff",
}


@pytest.mark.parametrize("flags", mostly_slow(TRAINING, 27))
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


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("train DATA --arch alibi_lm_tiny --max-tokens 64", "--task language_modeling"),
        (f"train nowhere {' '.join(SHORT)}", "nowhere"),
        (f"train EMPTY {' '.join(SHORT)}", "dict.txt"),
        ("eval-lm DATA --cpu --path none.pt", "none.pt"),
        ("eval-lm DATA --cpu --path CHECKPOINT --gen-subset dev", "dev"),
        (
            "eval-lm DATA --cpu --path CHECKPOINT --tokens-per-sample 16 --max-tokens 8",
            "max_tokens",
        ),
        ("eval DATA --path CHECKPOINT --lengths 8 --out r.json --memory-gb inf", "--memory-gb"),
        ("compair", "Did you mean 'compare'?"),
        ("compare . --out x --methods alibi sinusoidal", "--methods alibi,sinusoidal"),
        ("compare . --out x --lr x", "--lr: 'x' must be a valid number."),
        ("compare . --out x --tokens-per-update 100", "--tokens-per-update: 100 is not"),
        ("compare . --out x --lengths 4y", "--lengths: '4y' must be a number of tokens"),
        ("compare . --out x --arch alibi_lm_tny", "Did you mean 'alibi_lm_tiny'?"),
        ("compare . --out x --methods my_method", "--user-dir"),
        ("prepare txt .", "Did you mean 'text'?"),
        ("prepare text name\udcff.txt", "not UTF-8"),
        ("prepare text NAMES", "not UTF-8"),
        ("eval DATA --path RUN --lengths 8 --out r.json", "RUN/checkpoint_best.pt"),
        ("eval-lm DATA --cpu --path RUN", "RUN/checkpoint_best.pt"),
    ],
)
def test_invalid_options_are_rejected(
    data_bin, checkpoint, tmp_path, refuse, words, named, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "names").mkdir()
    Path(tmp_path, "names", "a\udcff.txt").touch()
    paths = {
        "DATA": data_bin,
        "CHECKPOINT": checkpoint,
        "EMPTY": tmp_path,
        "RUN": checkpoint.parent,
        "NAMES": tmp_path / "names",
    }
    named = named.replace("RUN", str(checkpoint.parent))
    assert named in refuse(*(paths.get(word, word) for word in words.split()))


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
