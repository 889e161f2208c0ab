"""The texts given with ``--corpus``, checked before any work."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..dataprep import bookcorpus, cc100_roberta, wikitext103
from ..dataprep.books import is_line_edition
from ..dataprep.sources import estimated_text_bytes, text_files
from ..errors import BadInput
from ..recipes import CORPORA
from ..results.manifest import other_name

#: The unit in which a corpus's preparation reads text; distinguishes the folders of other texts.
UNITS = {"wikitext-103": "words", "bookcorpus": "books", "cc100-roberta": "documents"}


@dataclass(frozen=True)
class Source:
    """A corpus of the paper, or a text used in its place.

    Attributes:
        corpus: the corpus's name.
        path: file or folder.
        other: whether another text is allowed.
    """

    corpus: str
    path: Path
    other: bool

    @property
    def text(self) -> str:
        """The name of the text: that of the paper's corpus only if no other is allowed."""
        return other_name(self.path) if self.other else self.corpus

    @property
    def folder(self) -> str:
        """A folder name for everything made from it."""
        return f"{self.text}-as-{UNITS[self.corpus]}" if self.other else self.corpus

    @property
    def files(self) -> list[Path]:
        """All files that are read."""
        if self.corpus == wikitext103.CORPUS and self.path.is_dir():
            return [self.path / f"wiki.{split}.tokens" for split in wikitext103.SPLITS]
        return text_files(self.path)

    def flags(self) -> list[str]:
        """The arguments of ``alibi-fairseq prepare CORPUS`` that name the source."""
        path = str(self.path)
        other = ["--allow-other-text"] if self.other else []
        if self.corpus == wikitext103.CORPUS:
            return ["--from-dir" if self.path.is_dir() else "--archive", path, *other]
        return [path, *(other if self.corpus == bookcorpus.CORPUS else [])]


def parse(given: list[str], needed: list[str], other: bool, complete: bool) -> dict[str, Source]:
    """``NAME=PATH …`` as sources by corpus.

    Args:
        needed: corpora of the plan.
        other: text that is not the paper's is allowed.
        complete: every needed corpus must be given; otherwise its name stands for its path.

    Raises:
        BadInput: a name or a path is wrong, or a corpus is missing.
    """
    paths: dict[str, Path] = {}
    for text in given:
        name, _, path = text.partition("=")
        if name not in CORPORA or not path:
            raise BadInput(
                f"--corpus takes NAME=PATH with one of the names {', '.join(CORPORA)}, not '{text}'."
            )
        paths[name] = Path(path)
        if not paths[name].exists():
            raise BadInput(f"--corpus {text}: there is no such file or folder.")
    missing = [name for name in needed if name not in paths]
    if missing and complete:
        flags = " ".join(f"--corpus {name}=PATH" for name in missing)
        raise BadInput(
            f"The text of {' and '.join(missing)} is needed; give it with {flags} "
            f"(data-prep/{missing[0]}/README.md says how to get it)."
        )
    return {
        name: Source(name, paths.get(name, Path(name.upper())), other and name in paths)
        for name in needed
    }


def check(source: Source) -> None:
    """Check a text as its preparation will.

    Raises:
        BadInput: it cannot be prepared, or is not the paper's corpus and no other text is allowed.
    """
    path = source.path
    if source.corpus == wikitext103.CORPUS:
        archive, folder = (None, path) if path.is_dir() else (path, None)
        wikitext103.identify(archive, folder, source.other)
        return
    files = text_files(path)
    if source.other:
        return
    if source.corpus == bookcorpus.CORPUS and not is_line_edition([path]):
        what = "one file per book: the Toronto BookCorpus has one sentence per line"
    elif source.corpus == cc100_roberta.CORPUS and not cc100_roberta.is_of_that_size(
        sum(map(estimated_text_bytes, files))
    ):
        what = f"less text than the paper's {cc100_roberta.PAPER_BYTES / 1e9:.0f} GB"
    else:
        return
    raise BadInput(
        f"--corpus {source.corpus}={path}: {what}; --allow-other-text accepts it under its "
        "own name."
    )
