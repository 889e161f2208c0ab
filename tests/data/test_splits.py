import random
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alibi_fairseq.data import near_duplicates as near_duplicates_module
from alibi_fairseq.data.book_splits import DROPPED, Book, split_blocks, split_books
from alibi_fairseq.data.corpus_builder import SPLITS
from alibi_fairseq.data.custom_text import split_documents
from alibi_fairseq.data.near_duplicates import GRAM, THRESHOLD, near_duplicates, shingles
from alibi_fairseq.errors import UserInputError


def books(groups):
    return [Book(f"book{n}.txt", f"{n:064x}", group) for n, group in enumerate(groups)]


def straddling(found):
    """Return the groups in more than one split."""
    where = {}
    for book in found:
        if book.split != DROPPED:
            where.setdefault(book.group, set()).add(book.split)
    return [group for group, splits in where.items() if len(splits) > 1]


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 40), min_size=60, max_size=200), st.integers(0, 9), st.integers(1, 20)
)
def test_near_duplicates_share_a_split(groups, seed, held_out):
    for split in (split_books, split_blocks):
        found = books(groups)
        try:
            split(found, held_out, seed)
        except UserInputError:
            continue
        assert straddling(found) == []
        wanted = max(1, round(len(found) * held_out / 100))
        for name in ("valid", "test"):
            assert 1 <= sum(book.split == name for book in found) <= wanted
        if split is split_books:
            assert all(book.split != DROPPED for book in found)


def test_split_depends_only_on_seed_and_contents():
    first, again, other = books(range(100)), books(range(100)), books(range(100))
    split_books(first, 5, seed=1)
    shuffled = again[50:] + again[:50]
    for number, book in enumerate(again):
        book.name = f"renamed{number}"
    split_books(shuffled, 5, seed=1)
    split_books(other, 5, seed=2)
    assert Counter(book.split for book in first) == {"train": 90, "valid": 5, "test": 5}
    splits = [{b.sha256: b.split for b in found} for found in (first, again, other)]
    assert splits[0] == splits[1] != splits[2]


def test_split_blocks_drops_neighbors_of_held_out_ranges():
    for seed in range(50):
        found = books(range(100))
        split_blocks(found, 3, seed)
        row = [book.split for book in found]
        for name in ("valid", "test"):
            first = row.index(name)
            assert row[first : first + 3] == [name] * 3
            assert row.count(name) == 3
            around = [row[i] for i in (first - 1, first + 3) if 0 <= i < 100]
            assert set(around) == {DROPPED}


@pytest.mark.parametrize(("split", "groups"), [(split_books, [0] * 3), (split_blocks, range(5))])
def test_split_rejects_too_few_books(split, groups):
    with pytest.raises(UserInputError):
        split(books(groups), 1, 1)


def test_split_documents_depends_on_size_and_seed():
    sizes = [1000 + 37 * (n % 11) for n in range(200)]
    found = split_documents(sizes, 5, seed=1)
    share = {s: sum(z for z, f in zip(sizes, found) if f == s) / sum(sizes) for s in SPLITS}
    assert share["valid"] == pytest.approx(0.05, abs=0.01)
    assert share["test"] == pytest.approx(0.05, abs=0.01)
    assert found == split_documents(sizes, 5, seed=1) != split_documents(sizes, 5, seed=2)
    assert split_documents([10, 10, 10], 5, seed=1) is None  # too few
    # One long document stays in training.
    mixed = split_documents([10_000, *[100] * 60], 2, seed=3)
    assert mixed[0] == "train" and mixed.count("valid") in (2, 3, 4)


WORDS = [f"word{n}" for n in range(500)]


def text(seed, words=2000):
    return " ".join(random.Random(seed).choices(WORDS, k=words))


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
            if shared and shared >= THRESHOLD * min(len(sets[i]), len(sets[j])):
                old, new = max(leader[i], leader[j]), min(leader[i], leader[j])
                leader = [new if x == old else x for x in leader]
    return leader


def test_near_duplicates_equal_naive_definition():
    a, b, c = text(1), text(2), text(3)
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
        " ".join(f"{w} and" for w in words),  # the same words, other runs of eight
        f"{c[: len(c) // 2]} {text(7)}",
        f"{text(7)} {text(8)}",  # chained to c by the one before
    ]
    assert [len(shingles(book)) for book in books] == [len(naive_shingles(b)) for b in books]
    found = near_duplicates([shingles(book) for book in books])
    assert found == naive_groups(books)
    assert found == [0, 1, 0, 3, 1, 5, 0, 7, 8, 9, 3, 3]


def test_sampled_shingles_find_near_duplicates():
    books = [text(1, 20_000), text(2, 20_000)]
    books.append(books[0][: len(books[0]) // 3] + " " + text(3, 15_000))
    kept = [shingles(book, one_in=10) for book in books]
    assert [len(k) for k in kept] == pytest.approx([2000, 2000, 2100], rel=0.1)
    assert set(kept[0]) < set(shingles(books[0]))
    assert near_duplicates(kept) == [0, 1, 0]


def test_near_duplicates_ignore_boilerplate(monkeypatch):
    monkeypatch.setattr(near_duplicates_module, "_BOILERPLATE", 5)
    license_text = text(99, 300)
    books = [shingles(f"{license_text} {text(seed)}") for seed in range(6)]
    assert near_duplicates(books) == list(range(6))
    assert near_duplicates(books[:5]) == [0] * 5


def test_shingles_are_stable():
    # Recorded hashes of two 8-grams: lists of splits that were shared stay valid.
    found = shingles("one two three four five six seven eight nine")
    assert found.tolist() == [1635881572428191480, 14958279935184619535]
