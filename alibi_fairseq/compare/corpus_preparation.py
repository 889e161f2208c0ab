"""The data of a comparison, made where it is not there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ..data.custom_text import CustomTextBuilder
from ..data.pipeline import prepare as prepare_text
from ..data.probes import PROBES
from ..data.probes import prepare as prepare_probe
from ..data.worker_pool import cores
from ..errors import UserInputError
from ..results.data_folder import DataFolder
from .comparison_config import CorpusConfig
from .document_sampling import SharedVocabulary, cut, shared_model, sources_of

#: Per cent of an excerpt's text for each of validation and test: many documents, of which little is kept.
HELD_OUT = 20.0


def data_folder(corpus: CorpusConfig, length: int, out: Path) -> Path:
    """The binary data to train on; sequences of a probe are as long as the training's."""
    return out / corpus.name / f"data-{length}" if corpus.probe else text_folder(corpus, out)


def text_folder(corpus: CorpusConfig, out: Path) -> Path:
    """The binary data of the text, which fills a probe that needs one."""
    return Path(corpus.data) if corpus.data else out / corpus.name / "data-bin"


def is_prepared(corpus: CorpusConfig, lengths: Sequence[int], out: Path) -> bool:
    folders = [data_folder(corpus, length, out) for length in lengths]
    if not all((folder / "train.bin").is_file() for folder in folders):
        return False
    manifest = DataFolder.open(text_folder(corpus, out)).manifest or {}
    return not corpus.excerpt or manifest.get("excerpt") == asdict(corpus.excerpt)


def prepare(
    corpora: Sequence[CorpusConfig],
    lengths: Sequence[int],
    shared_vocabulary: int | None,
    out: Path,
) -> None:
    """Make the data of all corpora for some training lengths, perhaps with one dictionary of all texts."""
    texts: dict[str, CustomTextBuilder] = {}
    for corpus in corpora:
        if corpus.text:
            held_out = HELD_OUT if corpus.excerpt else 5.0
            files = sources_of(corpus, out)
            texts[corpus.name] = CustomTextBuilder(
                files, corpus.tokenizer, corpus.vocabulary, held_out
            )
    if shared_vocabulary and texts:
        model = shared_model(texts, shared_vocabulary, out / "vocabulary")
        for name, text in texts.items():
            texts[name] = SharedVocabulary(text.sources, held_out=text.held_out, model=model)
    for corpus in corpora:
        data = text_folder(corpus, out)
        if corpus.text:
            folder = data.parent / "prepared" if corpus.excerpt else data.parent
            prepare_text(texts[corpus.name], folder, cores())
            if corpus.excerpt and not is_prepared(corpus, (), out):
                cut(folder / "data-bin", data, corpus.excerpt)
        if (corpus.text or corpus.data) and not (data / "train.bin").is_file():
            raise UserInputError(f"{data} has no train.bin; prepare the data again.")
        if corpus.probe:
            probe = PROBES[corpus.probe]
            for length in lengths:
                made = data_folder(corpus, length, out)
                prepare_probe(probe, length, data if probe.in_text else None, made)
