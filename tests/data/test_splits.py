import hashlib
import random
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alibi_fairseq.data import near_duplicates as near_duplicates_module
from alibi_fairseq.data.book_splits import DROPPED, Book, assign_block_splits, assign_book_splits
from alibi_fairseq.data.custom_text import assign_splits
from alibi_fairseq.data.near_duplicates import GRAM, THRESHOLD, near_duplicates, shingles
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


@pytest.mark.parametrize("assign", [assign_book_splits, assign_block_splits])
@settings(deadline=None)
@given(
    groups=st.lists(st.integers(0, 40), min_size=60, max_size=200),
    seed=st.integers(0, 9),
    held_out=st.integers(1, 20),
)
def test_near_duplicates_share_a_split(assign, groups, seed, held_out):
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


WORDS = [f"word{n}" for n in range(500)]


def text(seed, words=2000):
    return " ".join(random.Random(seed).choices(WORDS, k=words))


def digests_of(books):
    return [hashlib.sha256(book.encode()).hexdigest() for book in books]


def naive_shingles(book):
    words = re.findall(r"\w+", book.lower())
    return {tuple(words[i : i + GRAM]) for i in range(len(words) - GRAM + 1)}


def naive_groups(books):
    """Group books by definition: sets of tuples, all pairs, and the transitive closure."""
    sets = [naive_shingles(book) for book in books]
    leader = list(range(len(books)))
    for i in range(len(books)):
        for j in range(i):
            shared = len(sets[i] & sets[j])
            is_similar = shared and shared >= THRESHOLD * min(len(sets[i]), len(sets[j]))
            if is_similar or books[i] == books[j]:
                old = max(leader[i], leader[j])
                new = min(leader[i], leader[j])
                leader = [new if x == old else x for x in leader]
    return leader


def test_near_duplicates_equal_naive_definition():
    a = text(1)
    b = text(2)
    c = text(3)
    words = a.split()
    books = [
        a,
        b,
        a.upper().replace(" ", ",  "),  # the same words
        c,
        f"{b} {text(4)}",  # b inside of a longer book
        " ".join(words[:90]) + " " + text(5),  # under a twentieth of a: unrelated
        " ".join(words[:300]) + " " + text(6),  # over a twentieth
        "too short",
        "too short",
        " ".join(f"{w} and" for w in words),  # the same words in other 8-grams
        "short, too",
        f"{c[: len(c) // 2]} {text(7)}",
        f"{text(7)} {text(8)}",  # linked to c by the book before
    ]
    assert [len(shingles(book)) for book in books] == [len(naive_shingles(b)) for b in books]
    groups = near_duplicates([shingles(book) for book in books], digests_of(books))
    assert groups == naive_groups(books)
    assert groups == [0, 1, 0, 3, 1, 5, 0, 7, 7, 9, 10, 3, 3]


def test_sampled_shingles_find_near_duplicates():
    books = [text(1, 20_000), text(2, 20_000)]
    books.append(books[0][: len(books[0]) // 3] + " " + text(3, 15_000))
    samples = [shingles(book, one_in=10) for book in books]
    assert [len(sample) for sample in samples] == pytest.approx([2000, 2000, 2100], rel=0.1)
    assert set(samples[0]) < set(shingles(books[0]))
    assert near_duplicates(samples, digests_of(books)) == [0, 1, 0]


def test_near_duplicates_ignore_boilerplate(monkeypatch):
    monkeypatch.setattr(near_duplicates_module, "_BOILERPLATE", 5)
    license_text = text(99, 300)
    books = [f"{license_text} {text(seed)}" for seed in range(6)]
    samples = [shingles(book) for book in books]
    digests = digests_of(books)
    assert near_duplicates(samples, digests) == list(range(6))
    assert near_duplicates(samples[:5], digests[:5]) == [0] * 5


def test_copies_are_no_boilerplate(monkeypatch):
    monkeypatch.setattr(near_duplicates_module, "_BOILERPLATE", 5)
    book = text(1)
    books = [text(2), *[book] * 6, f"{book} {text(3)}"]
    samples = [shingles(book) for book in books]
    assert near_duplicates(samples, digests_of(books)) == [0] + [1] * 7


def test_shingles_are_stable():
    # Recorded hashes of two 8-grams. Other hashes would invalidate published lists of splits.
    hashes = shingles("one two three four five six seven eight nine")
    assert hashes.tolist() == [1635881572428191480, 14958279935184619535]
