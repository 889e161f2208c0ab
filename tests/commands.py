"""Commands of fairseq and of this package, run in this process or in a separate process."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "alibi_fairseq"

_SHORT = """
    --task language_modeling --arch alibi_lm_tiny --decoder-layers 1
    --decoder-embed-dim 32 --decoder-ffn-embed-dim 32 --dropout 0
    --tokens-per-sample 16 --max-tokens 128 --max-update 3 --cpu
    --optimizer adam --lr 0.01 --log-format simple --num-workers 0
    --no-epoch-checkpoints
"""
#: Flags of a training that takes a moment.
SHORT = tuple(_SHORT.split())

#: Configuration of a training that takes a moment, for hydra-train, with relative paths.
YAML = """\
common: {cpu: true, log_format: simple, tensorboard_logdir: logs}
checkpoint: {save_dir: out, no_epoch_checkpoints: true}
task: {_name: language_modeling, data: data-bin, tokens_per_sample: 16}
dataset: {max_tokens: 128, num_workers: 0}
criterion: {_name: cross_entropy}
optimization: {max_update: 2, lr: [0.01]}
optimizer: {_name: adam}
lr_scheduler: {_name: fixed}
model: {_name: alibi_lm_tiny, decoder_layers: 1, decoder_embed_dim: 32}
"""


def in_process(program: str, *arguments: object):
    """Run ``fairseq-<program>`` in this process, and propagate its exceptions."""
    from fairseq import checkpoint_utils

    vars(checkpoint_utils.save_checkpoint).pop("best", None)  # set by an earlier training
    before = sys.argv
    sys.argv = [f"fairseq-{program}", *map(str, arguments)]
    try:
        return import_module(f"fairseq_cli.{program}").cli_main()
    finally:
        sys.argv = before


def as_process(
    *command: object, cwd: Path = ROOT, python=(), stdin: str | None = None, **environment: object
):
    """Run ``python -m …`` in a separate process, with output in ``stdout`` and ``stderr``."""
    variables = {"OMP_NUM_THREADS": "1", **{key: str(value) for key, value in environment.items()}}
    return subprocess.run(
        [sys.executable, *python, *map(str, command)],
        cwd=cwd,
        env={**os.environ, **variables},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=300,
    )


def make_data(folder: Path, words: int = 40) -> Path:
    """Create a data folder of random words with train, valid, and test splits."""
    rng = random.Random(0)
    prefixes = []
    for split, lines in (("train", 120), ("valid", 20), ("test", 20)):
        text = folder / f"{split}.txt"
        with text.open("w") as file:
            for _ in range(lines):
                line = [f"w{rng.randrange(words)}" for _ in range(rng.randrange(4, 20))]
                file.write(" ".join(line) + "\n")
        prefixes += [f"--{split}pref", text]
    data = folder / "data-bin"
    in_process("preprocess", "--only-source", *prefixes, "--destdir", data, "--workers", 1)
    return data
