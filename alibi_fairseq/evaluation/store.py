"""The results file of a sweep: complete after every measurement, and resumed if it exists."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from ..errors import BadInput
from ..results import manifest
from ..results.provenance import collect_provenance
from ..results.schema import load_document, merge_documents, new_document, save_document


class SweepPoint(NamedTuple):
    """One measurement of a sweep."""

    checkpoint: Path
    subset: str
    length: int
    stride: int

    def made(self, cell: dict) -> bool:
        """Whether a cell belongs to this measurement."""
        return self == (Path(cell["checkpoint"]), cell["subset"], cell["length"], cell["stride"])


class Store:
    """The cells of a sweep on disk.

    Args:
        path: the results document.
        kind: its kind.
        corpus: name of the text.
        data: folder of the binarised text; its hashes go into the provenance.
        subsets: splits that are evaluated.
        settings: keys and values common to all cells.

    Raises:
        BadInput: if the file exists and is not such a document, or was measured with other settings.
    """

    def __init__(
        self, path: Path, kind: str, corpus: str, data: Path, subsets: list[str], settings: dict
    ):
        self.path, self.kind, self.corpus, self.settings = path, kind, corpus, settings
        self._began = time.monotonic()
        self._provenance = collect_provenance(
            seconds=0, precision=settings["precision"], data=data, subsets=sorted(subsets)
        )
        if text := manifest.summary(data):
            self._provenance["text"] = text
        self._new: list[dict] = []
        self._earlier = load_document(path) if path.exists() else None
        if self._earlier is not None:
            self._check_same(self._earlier)

    def _check_same(self, earlier: dict) -> None:
        hashes = {key: self._provenance[key] for key in ("data_sha256", "dictionary_sha256")}
        optional = ("model_overrides", "shard", "documents", "score_from", "score_to")
        settings = {**dict.fromkeys(optional), **self.settings}
        for found, wanted in (
            (earlier, {"kind": self.kind, "corpus": self.corpus}),
            (earlier["provenance"], hashes),
            *((cell, settings) for cell in earlier["cells"]),
        ):
            for key, here in wanted.items():
                if found.get(key) != here:
                    raise BadInput(
                        f"'{self.path}' contains results of another sweep: {key} is "
                        f"{found.get(key)} there and {here} here; choose another --out or remove "
                        "the file."
                    )

    @property
    def cells(self) -> list[dict]:
        """All cells, earlier ones first."""
        return (self._earlier["cells"] if self._earlier else []) + self._new

    def cells_of(self, point: SweepPoint, checkpoint_sha256: str) -> list[dict]:
        """Finished cells of a measurement; empty if it has not been made yet."""
        cells = [cell for cell in self.cells if point.made(cell)]
        if any(cell["checkpoint_sha256"] != checkpoint_sha256 for cell in cells):
            raise BadInput(
                f"'{self.path}' contains results of another checkpoint with the name "
                f"'{point.checkpoint}'; choose another --out or remove the file."
            )
        return cells

    def add(self, cells: list[dict]) -> None:
        """Write the cells of a finished measurement to disk."""
        self._new += [{**cell, **self.settings} for cell in cells]
        seconds = round(time.monotonic() - self._began, 3)
        provenance = {**self._provenance, "seconds": seconds}
        document = new_document(self.kind, self.corpus, provenance, self._new)
        if self._earlier is not None:
            document = merge_documents([self._earlier, document])
        save_document(document, self.path)
