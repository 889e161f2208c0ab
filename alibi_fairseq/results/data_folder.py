"""A folder of binary data with its description: manifest, dictionary hash, and document starts."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError

from ..errors import UserInputError, describe_invalid
from ..files import read_json, sha256_file
from . import manifest as manifests
from .data_hashes import data_folders, dictionary_sha256
from .json_types import NonNegativeInt
from .values import TextSummary

#: File in a data folder with the first positions of each split's documents.
DOCUMENTS_FILE = "documents.json"
_DOCUMENTS_TYPE = TypeAdapter(dict[str, list[NonNegativeInt]], config=ConfigDict(strict=True))


@dataclass(frozen=True)
class DataFolder:
    """A folder written by ``fairseq-preprocess`` or ``alibi-fairseq prepare``.

    Each file is read and validated at most once. The dictionary and ``documents.json`` are read
    when they are first needed, because training and text generation use neither.

    Attributes:
        path: the folder.
        manifest: content of ``manifest.json``, or None without one.
        manifest_path: path of ``manifest.json``, or None without one.
    """

    path: Path
    manifest: dict | None
    manifest_path: Path | None

    @classmethod
    def open(cls, data: str | os.PathLike) -> DataFolder:
        """Open a data folder and read its manifest.

        Args:
            data: fairseq's data argument. Of several folders joined by ``:`` (shards), the first
                is opened. The manifest of a shard is in the folder above it and lists the shard.

        Raises:
            UserInputError: the manifest is corrupted or has an unknown version.
        """
        folder = data_folders(data)[0]
        manifest_path = folder / manifests.FILE_NAME
        if manifest_path.is_file():
            return cls(folder, manifests.read_manifest(manifest_path), manifest_path)
        manifest_path = folder.parent / manifests.FILE_NAME
        if manifest_path.is_file():
            manifest = manifests.read_manifest(manifest_path)
            # Another folder next to the shards has data that this manifest does not describe.
            if folder.name in manifest.get("shards", []):
                return cls(folder, manifest, manifest_path)
        return cls(folder, None, None)

    @property
    def corpus(self) -> str:
        """The corpus name for results, from the manifest or else from the name of the folder."""
        if self.manifest is not None:
            return self.manifest["corpus"]
        folder = self.path.resolve()
        if folder.name in ("data-bin", "data_bin"):
            folder = folder.parent
        return folder.name

    @property
    def text_summary(self) -> TextSummary:
        """The tokenizer and the sizes of dictionary and training text, as far as they are known.

        Perplexities of two texts are in the same units only if their tokenizers and dictionaries
        agree.
        """
        if self.manifest is None:
            return TextSummary()
        train = self.manifest["splits"].get("train", {})
        return TextSummary(
            tokenizer=self.manifest["tokenizer"].get("kind"),
            vocabulary=self.manifest["dictionary"].get("entries"),
            train_tokens=train.get("tokens"),
            train_bytes=train.get("bytes"),
        )

    @property
    def tokenizer(self) -> dict:
        """The tokenizer of the manifest; empty without a manifest."""
        if self.manifest is None:
            return {}
        return self.manifest["tokenizer"]

    @property
    def tokenizer_files(self) -> list[Path]:
        """Paths of the tokenizer's files in the order of the manifest."""
        if self.manifest_path is None:
            return []
        folder = self.manifest_path.parent
        return [folder / name for name in self.tokenizer.get("files", [])]

    @cached_property
    def dictionary_sha256(self) -> str:
        """SHA-256 of the symbols in ``dict.txt``, see :func:`.data_hashes.symbols_sha256`."""
        return dictionary_sha256(self.path)

    @cached_property
    def document_starts(self) -> dict[str, list[int]]:
        """The first position of each document by split, from ``documents.json``.

        Splits that the file does not name are missing; without a file there are none.

        Raises:
            UserInputError: naming the file and the first value that is wrong.
        """
        path = self.path / DOCUMENTS_FILE
        if not path.is_file():
            return {}
        try:
            return _DOCUMENTS_TYPE.validate_python(read_json(path))
        except ValidationError as error:
            raise UserInputError(f"{path}: {describe_invalid(error)}") from error

    def check_split(self, split: str) -> None:
        """Check that a split, its documents, and the dictionary are as the manifest describes.

        Raises:
            UserInputError: the contents of a file differ.
        """
        if self.manifest is None or self.manifest_path is None:
            return
        expected_files = self.manifest.get("files", {})
        for path in (
            self.path / f"{split}.bin",
            self.path / f"{split}.idx",
            self.path / "dict.txt",
            self.path / DOCUMENTS_FILE,
        ):
            name = path.relative_to(self.manifest_path.parent).as_posix()
            expected = expected_files.get(name)
            if expected is None or not path.is_file():
                continue
            if path.stat().st_size != expected["bytes"] or sha256_file(path) != expected["sha256"]:
                raise self._contents_differ(path)
        expected_dictionary = self.manifest["dictionary"].get("sha256")
        if expected_dictionary not in (None, self.dictionary_sha256):
            raise self._contents_differ(self.path / "dict.txt")

    def _contents_differ(self, path: Path) -> UserInputError:
        return UserInputError(
            f"'{path}' is not the file that {self.manifest_path} describes (its contents differ). "
            "Prepare the data again, or remove the manifest if the change was intended."
        )


def check_shards(data: str, splits: Iterable[str]) -> None:
    """Check that the folder that is evaluated has the whole of each split.

    Args:
        data: fairseq's data argument. Of several folders joined by ``:`` (shards), only the first
            is evaluated.
        splits: names of the splits to evaluate.

    Raises:
        UserInputError: a split is divided among the shards.
    """
    if ":" in data and "train" in splits:
        raise UserInputError(
            "--subset train is divided among the shards, and only the first would be evaluated. "
            f"Pass one folder instead of {data}."
        )
