"""Manifest, dictionary, and documents of a data folder are read once and validated."""

from __future__ import annotations

import json
import shutil

import pytest
from conftest import describe

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.results import data_folder, manifest
from alibi_fairseq.results.data_folder import DataFolder
from alibi_fairseq.results.data_hashes import symbols_sha256
from alibi_fairseq.results.values import TextSummary


def count_calls(monkeypatch, module, name) -> list:
    function = getattr(module, name)
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return function(*arguments)

    monkeypatch.setattr(module, name, counted)
    return calls


def test_sweep_reads_each_description_once(sweep, trained, tmp_path, monkeypatch):
    data = shutil.copytree(trained.data, tmp_path / "data")
    (data / "documents.json").write_text('{"valid": [0, 20], "test": [0, 30]}')
    describe(data)
    manifests = count_calls(monkeypatch, manifest, "read_manifest")
    documents = count_calls(monkeypatch, data_folder, "read_json")
    sweep(data=data, splits=["valid", "test"], lengths=[16, 24], per_document="empty-lines")
    assert len(manifests) == len(documents) == 1


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "dict.txt").write_text("the 2\ncat 1\n")
    return tmp_path


def test_folder_without_description_is_named_by_path(folder):
    opened = DataFolder.open(folder)
    assert (opened.manifest, opened.document_starts) == (None, {})
    assert opened.text_summary == TextSummary()
    assert (opened.tokenizer, opened.tokenizer_files) == ({}, [])
    assert opened.corpus == folder.name
    assert opened.dictionary_sha256 == symbols_sha256(["the", "cat"])
    assert DataFolder.open(folder / "data-bin").corpus == folder.name


def test_check_split_rejects_reordered_dictionary(folder):
    describe(folder)
    described = json.loads((folder / "manifest.json").read_text())
    described["files"] = {}  # only the hash of the symbols remains
    (folder / "manifest.json").write_text(json.dumps(described))
    DataFolder.open(folder).check_split("valid")
    (folder / "dict.txt").write_text("cat 1\nthe 2\n")
    with pytest.raises(UserInputError, match=r"dict\.txt"):
        DataFolder.open(folder).check_split("valid")


def test_check_split_rejects_changed_documents(folder):
    (folder / "documents.json").write_text('{"valid": [0, 20]}')
    describe(folder)
    DataFolder.open(folder).check_split("valid")
    (folder / "documents.json").write_text('{"valid": [0, 21]}')
    with pytest.raises(UserInputError, match=r"documents\.json"):
        DataFolder.open(folder).check_split("valid")


def test_tokenizer_files_of_shard_are_next_to_manifest(folder):
    (folder / "shard00").mkdir()
    describe(folder)
    described = json.loads((folder / "manifest.json").read_text())
    described["tokenizer"] = {"kind": "sentencepiece-bpe", "files": ["sentencepiece.model"]}
    described["shards"] = ["shard00", "shard01"]
    (folder / "manifest.json").write_text(json.dumps(described))
    shard = DataFolder.open(f"{folder / 'shard00'}:{folder / 'shard01'}")
    assert shard.path == folder / "shard00"
    assert shard.tokenizer_files == [folder / "sentencepiece.model"]


def test_other_data_inside_described_folder_has_no_manifest(folder):
    describe(folder, test={"lines": 1, "words": 2, "bytes": 8, "tokens": 3})
    (folder / "mine").mkdir()
    opened = DataFolder.open(folder / "mine")
    assert opened.manifest is None
    assert opened.corpus == "mine"
