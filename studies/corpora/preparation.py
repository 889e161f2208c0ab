"""Binary data of a study's corpora: excerpts of texts that share one vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from alibi_fairseq.data.custom_text import CustomTextBuilder
from alibi_fairseq.data.pipeline import prepare_corpus
from alibi_fairseq.data.sources import check_output_folder
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.experiment.corpora import is_missing
from alibi_fairseq.machine import cores
from alibi_fairseq.results.manifest import other_name

from .config import StudyCorpus
from .document_sampling import sample_documents
from .excerpt import cut_excerpt, is_excerpt
from .shared_vocabulary import SharedVocabularyBuilder, train_shared_model

#: Percentage of a text held out for validation, and again for test.
HELD_OUT = 5.0
#: The same percentage for an excerpt, which needs many test documents.
EXCERPT_HELD_OUT = 20.0


def data_folder(name: str, text: Path, folder: Path) -> Path:
    """Return the folder of a corpus's binary data, which may be given instead of the text.

    Args:
        folder: folder of the study's data and checkpoints.
    """
    if (text / "dict.txt").is_file():
        return text
    return folder / name / "data-bin"


def is_prepared(corpus: StudyCorpus, data: Path) -> bool:
    """Return True if the binary data of a corpus exists, and is the excerpt that it names."""
    if not (data / "train.bin").is_file():
        return False
    return corpus.excerpt is None or is_excerpt(data, corpus.excerpt)


def prepare_corpora(
    corpora: Iterable[StudyCorpus], texts: Mapping[str, Path], entries: int, folder: Path
) -> None:
    """Prepare the binary data of all corpora whose text is given.

    A text that is missing on this machine is not needed if its binary data was prepared before, on
    this or on another machine.

    Args:
        texts: path of the text, or of the binary data, of each corpus.
        entries: number of entries of the dictionary that all texts share.
        folder: folder of the study's data and checkpoints.

    Raises:
        UserInputError: binary data is not the requested excerpt, the folder is in a folder of text,
            or some of the texts are missing.
    """
    builders = {}
    excerpts = {}
    without_text = []
    for corpus in corpora:
        if corpus.name not in texts:
            without_text.append(corpus.name)
            continue
        text = texts[corpus.name]
        data = data_folder(corpus.name, text, folder)
        check_output_folder(folder, [text])
        if data != text and not (is_missing([str(text)]) and (data / "train.bin").is_file()):
            builders[corpus.name] = _builder(corpus, text, folder)
            excerpts[corpus.name] = corpus.excerpt
        elif not is_prepared(corpus, data):
            raise UserInputError(
                f"{data} is not the excerpt of the corpus '{corpus.name}'. Provide the text, or "
                "correct 'excerpt'."
            )
        elif data != text:
            without_text.append(corpus.name)
            print(
                f"The text of {corpus.name} ({text}) is missing. Using the prepared data in {data}."
            )
    if not builders:
        return
    if without_text:
        flags = " ".join(f"--corpus {name}=PATH" for name in without_text)
        raise UserInputError(
            f"The dictionary is learned from all texts. Pass {flags} with the text as well."
        )
    model = train_shared_model(builders, entries, folder / "vocabulary")
    for name, builder in builders.items():
        shared = SharedVocabularyBuilder(builder.sources, held_out=builder.held_out, model=model)
        excerpt = excerpts[name]
        if excerpt is None:
            prepare_corpus(shared, folder / name, cores())
            continue
        whole = folder / name / "prepared"
        manifest, _ = prepare_corpus(shared, whole, cores())
        data = folder / name / "data-bin"
        if not is_excerpt(data, excerpt, manifest):
            cut_excerpt(whole / "data-bin", data, excerpt)


def _builder(corpus: StudyCorpus, text: Path, folder: Path) -> CustomTextBuilder:
    """Return the builder of a text's binary data. Its documents are written first, if necessary."""
    sources = [str(text)]
    if corpus.documents == "titles" or corpus.sample:
        documents = folder / corpus.name / "documents" / other_name(text)
        sample_documents(sources, documents, corpus.documents, corpus.sample)
        sources = [str(documents)]
    held_out = EXCERPT_HELD_OUT if corpus.excerpt else HELD_OUT
    return CustomTextBuilder(sources, held_out=held_out)
