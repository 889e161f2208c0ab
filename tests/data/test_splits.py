from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alibi_fairseq.data.book_splits import DROPPED, Book, assign_block_splits, assign_book_splits
from alibi_fairseq.data.custom_text import assign_splits
from alibi_fairseq.errors import UserInputError


def books(groups):
    return [Book(f"book{n}.txt", f"{n:064x}", group) for n, group in enumerate(groups)]


def straddling(books):
    """Return the groups in more than one split."""
    splits_of_group = {}
    for book in books:
        if book.split != DROPPED:
            splits_of_group.setdefault(book.group, set()).add(book.split)
    return [group for group, splits in splits_of_group.items() if len(splits) > 1]


@pytest.mark.ci
@pytest.mark.parametrize("assign", [assign_book_splits, assign_block_splits])
@settings(deadline=None)
@given(
    groups=st.lists(st.integers(0, 40), min_size=60, max_size=200),
    seed=st.integers(0, 9),
    held_out=st.integers(1, 20),
)
def test_duplicates_share_a_split(assign, groups, seed, held_out):
    items = books(groups)
    try:
        assign(items, held_out, seed)
    except UserInputError:
        return
    assert straddling(items) == []
    wanted = max(1, round(len(items) * held_out / 100))
    for name in ("valid", "test"):
        assert 1 <= sum(item.split == name for item in items) <= wanted
    if assign is assign_book_splits:
        assert all(item.split != DROPPED for item in items)


def splits_by_content(books, seed):
    """Split books, and return the split of each by the hash of its text."""
    assign_book_splits(books, 5, seed)
    return {book.sha256: book.split for book in books}


def test_split_has_stated_sizes():
    splits = splits_by_content(books(range(100)), seed=1)
    assert Counter(splits.values()) == {"train": 90, "valid": 5, "test": 5}


def test_split_depends_on_seed():
    first = splits_by_content(books(range(100)), seed=1)
    assert splits_by_content(books(range(100)), seed=2) != first


def test_split_ignores_names_and_order():
    first = splits_by_content(books(range(100)), seed=1)
    renamed = books(range(100))
    for number, book in enumerate(renamed):
        book.name = f"renamed{number}"
    assert splits_by_content(renamed[50:] + renamed[:50], seed=1) == first


def test_split_blocks_drops_neighbors_of_held_out_ranges():
    for seed in range(50):
        blocks = books(range(100))
        assign_block_splits(blocks, 3, seed)
        splits = [block.split for block in blocks]
        for name in ("valid", "test"):
            first = splits.index(name)
            assert splits[first : first + 3] == [name] * 3
            assert splits.count(name) == 3
            neighbors = splits[max(0, first - 1) : first] + splits[first + 3 : first + 4]
            assert set(neighbors) == {DROPPED}


DOCUMENT_SIZES = [1000 + 37 * (n % 11) for n in range(200)]


@pytest.mark.parametrize("name", ["valid", "test"])
def test_split_of_documents_has_stated_size(name):
    splits = assign_splits(DOCUMENT_SIZES, 5, seed=1)
    held_out = [size for size, split in zip(DOCUMENT_SIZES, splits, strict=True) if split == name]
    assert sum(held_out) / sum(DOCUMENT_SIZES) == pytest.approx(0.05, abs=0.01)


def test_split_of_documents_depends_on_seed():
    first = assign_splits(DOCUMENT_SIZES, 5, seed=1)
    assert assign_splits(DOCUMENT_SIZES, 5, seed=1) == first
    assert assign_splits(DOCUMENT_SIZES, 5, seed=2) != first


def test_few_documents_are_not_split():
    assert assign_splits([10, 10, 10], 5, seed=1) is None


def test_long_document_stays_in_training():
    splits = assign_splits([10_000, *[100] * 60], 2, seed=3)
    assert splits[0] == "train"
    assert splits.count("valid") in (2, 3, 4)
