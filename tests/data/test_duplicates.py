import random
import re

import pytest

from alibi_fairseq.data import duplicates
from alibi_fairseq.data.duplicates import GRAM, THRESHOLD, groups, shingles

WORDS = [f"word{n}" for n in range(500)]


def text(seed, words=2000):
    return " ".join(random.Random(seed).choices(WORDS, k=words))


def naive_shingles(book):
    words = re.findall(r"\w+", book.lower())
    return {tuple(words[i : i + GRAM]) for i in range(len(words) - GRAM + 1)}


def naive_groups(books):
    """By definition: sets of tuples, every pair, then the transitive closure."""
    sets = [naive_shingles(book) for book in books]
    leader = list(range(len(books)))
    for i in range(len(books)):
        for j in range(i):
            alike = len(sets[i] & sets[j]) >= THRESHOLD * min(len(sets[i]), len(sets[j]))
            if alike and (sets[i] or books[i] == books[j]) and sets[j]:
                old, new = max(leader[i], leader[j]), min(leader[i], leader[j])
                leader = [new if x == old else x for x in leader]
    return leader


def corpus():
    a, b, c = text(1), text(2), text(3)
    words = a.split()
    return [
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


def test_groups_are_those_of_the_definition():
    books = corpus()
    found = groups([shingles(book) for book in books])
    assert found == naive_groups(books)
    assert found == [0, 1, 0, 3, 1, 5, 0, 7, 8, 9, 3, 3]


def test_hashes_count_the_distinct_runs_of_words():
    for book in corpus():
        assert len(shingles(book)) == len(naive_shingles(book))


def test_a_part_of_the_hashes_estimates_the_same():
    books = [text(1, 20_000), text(2, 20_000)]
    books.append(books[0][: len(books[0]) // 3] + " " + text(3, 15_000))
    kept = [shingles(book, one_in=10) for book in books]
    assert [len(k) for k in kept] == pytest.approx([2000, 2000, 2100], rel=0.1)
    assert set(kept[0]) < set(shingles(books[0]))
    assert groups(kept) == [0, 1, 0]


def test_widespread_passages_are_no_sign_of_repetition(monkeypatch):
    monkeypatch.setattr(duplicates, "_WIDESPREAD", 5)
    licence = text(99, 300)
    books = [f"{licence} {text(seed)}" for seed in range(6)]
    assert groups([shingles(b) for b in books]) == list(range(6))
    assert groups([shingles(b) for b in books[:5]]) == [0] * 5


def test_hashes_stay_what_they_are():
    # Two runs of eight words, written down once: a shared list of splits stays valid for ever.
    found = shingles("one two three four five six seven eight nine")
    assert found.tolist() == [1635881572428191480, 14958279935184619535]
