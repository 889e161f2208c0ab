"""A small binarized corpus and real checkpoints of ``fairseq-train`` on it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics

import sentencepiece
import torch
from commands import in_process

MARK = "\N{LOWER ONE EIGHTH BLOCK}"
TRAIN_LENGTH = 32

SMALL = "--decoder-layers 2 --decoder-embed-dim 32 --decoder-ffn-embed-dim 64 "
ADAPTIVE = (
    "--adaptive-input --adaptive-input-cutoff 60,200 --adaptive-input-factor 2 "
    "--adaptive-softmax-cutoff 60,200 --adaptive-softmax-factor 2 --tie-adaptive-weights "
    "--tie-adaptive-proj --no-share-decoder-input-output-embed --criterion adaptive_loss "
    "--ddp-backend legacy_ddp "
)


def pieces_of(line: str) -> str:
    """Split words into pieces of three letters, and mark the first piece like sentencepiece."""
    parts = []
    for word in line.split():
        parts.append(MARK + word[:3])
        parts += [word[begin : begin + 3] for begin in range(3, len(word), 3)]
    return " ".join(parts)


def text_of(split: str) -> list[str]:
    """Return lines of English. Every word of ``valid`` and ``test`` also occurs in ``train``."""
    words = re.findall("[a-z]+", " ".join(topics[name] for name in sorted(topics))[:60000].lower())
    known = set(words[:6000])
    ranges = {"train": (0, 6000), "valid": (6000, 6200), "test": (6200, 6350)}
    begin, end = ranges[split]
    words = [word for word in words[begin:end] if word in known]
    return [" ".join(words[i : i + 11]) for i in range(0, len(words), 11)]


def binarize(folder: Path, lines: dict[str, list[str]], pieces: Callable[[str], str] = str) -> Path:
    """Binarize splits given by their lines, which ``pieces`` divides into symbols."""
    prefixes = []
    for split, content in lines.items():
        text = "".join(f"{pieces(line)}\n" for line in content)
        (folder / split).write_text(text, encoding="utf-8")
        prefixes += [f"--{split}pref", folder / split]
    data = folder / "data-bin"
    in_process("preprocess", "--only-source", *prefixes, "--destdir", data, "--workers", 1)
    return data


def make_sentencepiece(path: Path, vocabulary: int = 300):
    """Train a byte pair encoding on the training text and write it to ``path``."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text_of("train")),
        model_prefix=str(path.with_suffix("")),
        model_type="bpe",
        vocab_size=vocabulary,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


TRAINING = f"""
    --task language_modeling --tokens-per-sample {TRAIN_LENGTH} --sample-break-mode none
    --max-tokens 512 --max-update 12 --optimizer adam --lr 0.01 --seed 3 --cpu --num-workers 0
    --no-progress-bar --disable-validation --no-epoch-checkpoints
"""


def train(data: Path, folder: Path, flags: str) -> Path:
    """Train for twelve updates at length 32 and return the checkpoint."""
    options = f"{TRAINING} {flags}".split()
    with torch.enable_grad():  # the requesting test may disable gradients
        in_process("train", data, "--save-dir", folder, *options)
    return folder / "checkpoint_last.pt"


class Trained:
    """Corpus, and checkpoints that are trained on first use."""

    FLAGS = {
        "alibi": "--arch alibi_lm --position-method alibi " + SMALL,
        "alibi-modern": "--arch alibi_lm_modern --position-method alibi " + SMALL,
        "alibi-adaptive": "--arch alibi_lm --position-method alibi " + SMALL + ADAPTIVE,
        "bloom": "--arch alibi_lm_bloom --decoder-attention-heads 8 "
        "--decoder-layers 2 --decoder-embed-dim 32 --decoder-ffn-embed-dim 128",
        "sinusoidal": "--arch alibi_lm --position-method sinusoidal " + SMALL,
        "learned": "--arch alibi_lm --position-method learned " + SMALL,
        "rotary": "--arch alibi_lm --position-method rotary " + SMALL,
        "transformer-xl": "--task segment_language_modeling --arch alibi_lm "
        "--position-method transformer_xl --mem-len 24 " + SMALL,
        "stock": "--arch transformer_lm --decoder-normalize-before " + SMALL,
    }

    def __init__(self, folder: Path):
        self.folder = folder
        splits = ("train", "valid", "test")
        self.data = binarize(folder, {split: text_of(split) for split in splits}, pieces_of)
        self._checkpoints: dict[str, Path] = {}

    def __call__(self, name: str) -> Path:
        if name not in self._checkpoints:
            self._checkpoints[name] = train(self.data, self.folder / name, self.FLAGS[name])
        return self._checkpoints[name]
