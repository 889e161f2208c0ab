"""Documents of a binarised text, and what is cut of a corpus."""

from __future__ import annotations

import json

import pytest
import torch
from fairseq.data import Dictionary, data_utils, indexed_dataset

from alibi_fairseq.data.excerpt import sample
from alibi_fairseq.errors import BadInput
from alibi_fairseq.experiments.study.data import cut, document_starts, documents
from alibi_fairseq.experiments.study.description import StudyCorpus

TITLES = [
    "",
    " = One = ",
    "",
    "a a a b",
    " = = Section = = ",
    "a = b",
    " = Two = ",
    "b a",
    " = Three of a = ",
    "rare a",
]
STORIES = ["", "a a b", "b", "", "", "rare b", "a = ", "", "b a"]


def binarised(lines: list[str], folder) -> Dictionary:
    dictionary = Dictionary()
    for line in [*["a b ="] * 3, "a b", "a", *lines]:
        for word in line.split():
            dictionary.add_symbol(word)
    dictionary.finalize(padding_factor=1)
    folder.mkdir()
    dictionary.save(str(folder / "dict.txt"))
    for split in ("train", "valid", "test"):
        prefix = str(folder / split)
        builder = indexed_dataset.make_builder(f"{prefix}.bin", impl="mmap", vocab_size=50)
        for line in lines:
            builder.add_item(dictionary.encode_line(line, add_if_not_exist=False).long())
        builder.finalize(f"{prefix}.idx")
    return dictionary


def read(folder, split: str) -> list[str]:
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    lines = data_utils.load_indexed_dataset(str(folder / split), dictionary)
    return [dictionary.string(lines[number]) for number in range(len(lines))]


@pytest.mark.parametrize(
    ("lines", "kind", "expected"),
    [
        (TITLES, "titles", [range(1, 6), range(6, 8), range(8, 10)]),
        (STORIES, "empty-lines", [range(1, 3), range(5, 7), range(8, 9)]),
    ],
)
def test_documents_begin_where_their_layout_says(tmp_path, lines, kind, expected):
    dictionary = binarised(lines, tmp_path / "data")
    tensors = [dictionary.encode_line(line, add_if_not_exist=False) for line in lines]
    assert list(documents(tensors, dictionary, kind)) == expected


def corpus(**changes) -> StudyCorpus:
    values = {"documents": "titles", "vocabulary": 3, "train": 8, "test": (2, 6)} | changes
    return StudyCorpus("wiki", "wikitext-103", **values)


def test_a_cut_holds_the_beginnings_and_knows_where_documents_begin(tmp_path):
    binarised(TITLES, tmp_path / "data")
    cut(corpus(), tmp_path / "data", tmp_path / "cut")
    # Whole lines, until the number of tokens is reached; words beyond the three are unknown.
    assert read(tmp_path / "cut", "train") == ["", "= <unk> =", "", "a a a b"]
    assert read(tmp_path / "cut", "test") == ["= <unk> =", "", "a a a b", "= <unk> =", "b a"]
    assert document_starts(tmp_path / "cut") == [0, 4 + 1 + 5]
    sizes = torch.tensor([len(line.split()) + 1 for line in read(tmp_path / "cut", "test")])
    assert json.loads((tmp_path / "cut" / "documents.json").read_text()) == {
        "test": [0, int(sizes[:3].sum())]
    }


def test_one_document_is_too_few(tmp_path):
    binarised(["a b", "b"], tmp_path / "data")
    with pytest.raises(BadInput, match="has 1 documents; intervals need at least two"):
        cut(corpus(documents="empty-lines"), tmp_path / "data", tmp_path / "cut")
    assert not (tmp_path / "cut").exists()


def test_a_sample_is_of_whole_documents_and_the_same_each_time(tmp_path):
    (tmp_path / "texts").mkdir()
    for number in range(30):
        (tmp_path / "texts" / f"{number}.txt").write_text(f"text {number}\n" * 10)
    first, second = (sample(tmp_path / "texts", tmp_path / name, 500) for name in ("one", "two"))
    files = {path.name: path.read_bytes() for path in first.iterdir()}
    assert files == {path.name: path.read_bytes() for path in second.iterdir()}
    sizes = [len(content) for content in files.values()]
    assert 500 <= sum(sizes) < 500 + max(sizes)
