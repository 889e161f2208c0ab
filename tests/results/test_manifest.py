import json

import pytest

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.files import sha256_file
from alibi_fairseq.results import manifest as manifests
from alibi_fairseq.results.data_folder import DataFolder
from alibi_fairseq.results.data_hashes import symbols_sha256

SPLITS = {"train": {"lines": 2, "words": 3, "bytes": 12, "tokens": 5}}


@pytest.fixture
def data_bin(tmp_path):
    folder = tmp_path / "data-bin"
    folder.mkdir()
    (folder / "dict.txt").write_text("the 2\ncat 1\n")
    (folder / "train.bin").write_bytes(b"123")
    return folder


def describe(folder, **changes):
    values = dict(
        corpus="books",
        identified_by=None,
        splits=SPLITS,
        tokenizer={"kind": "words"},
        sources=[],
        settings={"seed": 1},
        seconds=1.0,
    )
    return manifests.describe(folder, **{**values, **changes})


def test_saved_manifest_is_read_back(data_bin):
    manifest = describe(data_bin, seed=7)
    manifests.save(manifest, data_bin)
    assert DataFolder.open(data_bin).manifest == json.loads(json.dumps(manifest))
    assert manifest["dictionary"] == {"entries": 6, "sha256": symbols_sha256(["the", "cat"])}
    assert manifest["files"]["train.bin"] == {
        "bytes": 3,
        "sha256": sha256_file(data_bin / "train.bin"),
    }
    assert manifest["provenance"]["seed"] == 7
    assert str(data_bin.parent) not in json.dumps(manifest)  # no path of this machine
    assert DataFolder.open(data_bin.parent).manifest is None


def test_shards_find_the_manifest_above_them(data_bin):
    shards = [data_bin / "shard00", data_bin / "shard01"]
    shards[0].mkdir()
    manifest = describe(data_bin, shards=["shard00", "shard01"])
    manifests.save(manifest, data_bin)
    joined = manifests.data_argument(data_bin, manifest)
    assert joined == f"{shards[0]}:{shards[1]}"
    assert DataFolder.open(joined).corpus == "books"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "version must be 1, not 2"),
        (
            {"splits": {"train": {**SPLITS["train"], "bytes": 0}}},
            "splits.train.bytes must be .*, not 0",
        ),
        # Names must not point outside of the folder.
        ({"corpus": "../escaped"}, "corpus"),
        ({"shards": [".."]}, "shards"),
        ({"tokenizer": {"kind": "sentencepiece", "files": ["../secret.model"]}}, "tokenizer"),
    ],
)
def test_invalid_manifests_are_rejected(data_bin, change, words):
    path = data_bin / manifests.FILE_NAME
    path.write_text(json.dumps({**describe(data_bin), **change}))
    with pytest.raises(UserInputError, match=words):
        DataFolder.open(data_bin)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("wiki-mini-v1.zip", "wiki-mini-v1"),
        ("WikiText_103-v1.zip", "other-text"),
        ("cc-100.txt", "other-text"),
    ],
)
def test_other_text_never_has_name_of_paper_corpus(file, name):
    assert manifests.other_name(file) == name
