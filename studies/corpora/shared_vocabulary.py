"""Sentencepiece vocabulary shared by several texts."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from alibi_fairseq.completion_marker import CompletionMarker
from alibi_fairseq.data.custom_text import CustomTextBuilder
from alibi_fairseq.data.tokenization import SentencePiece, Tokenizer, train_sentencepiece
from alibi_fairseq.files import sha256_file
from alibi_fairseq.machine import cores


@dataclass
class SharedVocabularyBuilder(CustomTextBuilder):
    """Text tokenized with an existing sentencepiece model."""

    model: Path = Path()

    def settings(self) -> dict:
        return {**super().settings(), "vocabulary_sha256": sha256_file(self.model)}

    def build_tokenizer(self, work: Path) -> Tokenizer:
        return SentencePiece(self.model)


def train_shared_model(texts: Mapping[str, CustomTextBuilder], entries: int, folder: Path) -> Path:
    """Train a sentencepiece model on the training splits of several texts, unless it is complete.

    Args:
        texts: texts by name.
        entries: number of dictionary entries.
        folder: folder of the model, its completion marker, and temporary files.

    Returns:
        The path of the model.
    """
    model = folder / "sentencepiece.model"
    # The model depends on the texts and their splits, but not on the options of their tokenizers.
    # Fixed options keep these out of the settings below.
    raw_texts = {}
    for name, text in texts.items():
        raw_texts[name] = replace(text, tokenizer="words", vocab_size=None)
    text_settings = {name: text.settings() for name, text in raw_texts.items()}
    settings = {"entries": entries, "texts": text_settings}
    marker = CompletionMarker(model.with_suffix(".json"), settings, [], [model])
    if marker.holds():
        return model
    model.unlink(missing_ok=True)
    samples = []
    for name, text in raw_texts.items():
        work = folder / name
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        text.write_normalized_text(work, cores())
        samples.append(text.sample(work))
    train_sentencepiece(itertools.chain.from_iterable(samples), model, entries)
    for name in raw_texts:
        shutil.rmtree(folder / name)
    marker.write()
    return model
