import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alibi_fairseq.data.splits import (
    DROPPED,
    Book,
    apply_list,
    split_blocks,
    split_books,
    write_list,
)
from alibi_fairseq.errors import BadInput


def books(groups):
    return [Book(f"book{n}.txt", f"{n:064x}", group) for n, group in enumerate(groups)]


def straddling(found):
    """Groups in more than one split."""
    where = {}
    for book in found:
        if book.split != DROPPED:
            where.setdefault(book.group, set()).add(book.split)
    return [group for group, splits in where.items() if len(splits) > 1]


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 40), min_size=60, max_size=200), st.integers(0, 9), st.integers(1, 20)
)
def test_near_duplicates_never_straddle(groups, seed, held_out):
    for split in (split_books, split_blocks):
        found = books(groups)
        try:
            split(found, held_out, seed)
        except BadInput:
            continue
        assert straddling(found) == []
        wanted = max(1, round(len(found) * held_out / 100))
        for name in ("valid", "test"):
            assert 1 <= sum(book.split == name for book in found) <= wanted
        if split is split_books:
            assert all(book.split != DROPPED for book in found)


def test_held_out_share_is_met_when_nothing_repeats():
    found = books(range(300))
    split_books(found, 2.0, seed=1)
    assert [sum(b.split == s for b in found) for s in ("train", "valid", "test")] == [288, 6, 6]


def test_split_depends_on_seed_and_contents_alone():
    first, again, other = books(range(100)), books(range(100)), books(range(100))
    split_books(first, 5, seed=1)
    shuffled = again[50:] + again[:50]
    for number, book in enumerate(again):
        book.name, book.group = f"renamed{number}", book.group
    split_books(shuffled, 5, seed=1)
    split_books(other, 5, seed=2)
    splits = [{b.sha256: b.split for b in found} for found in (first, again, other)]
    assert splits[0] == splits[1] != splits[2]


def test_held_out_blocks_are_runs_and_their_neighbours_are_dropped():
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


def test_block_that_repeats_a_held_out_one_is_dropped():
    found = books(range(100))
    split_blocks(found, 3, seed=1)
    valid = next(n for n, b in enumerate(found) if b.split == "valid")
    train = next(n for n, b in enumerate(found) if b.split == "train")
    repeated = books([valid if n == train else n for n in range(100)])
    split_blocks(repeated, 3, seed=1)
    assert [a.split for a in repeated] == [
        DROPPED if n == train else b.split for n, b in enumerate(found)
    ]


def test_list_gives_the_same_split_elsewhere(tmp_path):
    first = books([0, 0, *range(2, 50)])
    split_books(first, 5, seed=3)
    write_list(first, tmp_path / "splits.tsv")
    again = list(reversed(books([0, 0, *range(2, 50)])))
    apply_list(again, tmp_path / "splits.tsv")
    assert {b.sha256: b.split for b in first} == {b.sha256: b.split for b in again}


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [*lines, lines[-1].replace("train", "valid")[:-1] + "x"],  # a book too many
        lambda lines: lines[:-1],  # a book too few
        # near-duplicates apart
        lambda lines: [lines[0], lines[1].replace("train", "valid"), *lines[2:]],
        lambda lines: [line.replace("train", "training") for line in lines],
        lambda lines: ["train\tbook"],
        lambda lines: [],
    ],
)
def test_lists_that_do_not_fit_are_refused(tmp_path, change):
    """The first two books are near-duplicates and in the training split."""
    path = tmp_path / "splits.tsv"
    found = books([0, 0, *range(2, 50)])
    split_books(found, 10, seed=1)
    apply = functools.partial(apply_list, found, path)
    write_list(found, path)
    apply()
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")
    with pytest.raises(BadInput, match="--split-list"):
        apply()


@pytest.mark.parametrize(
    ("split", "groups"), [(split_books, [0, 1]), (split_books, [0] * 3), (split_blocks, range(5))]
)
def test_too_few_books_are_refused(split, groups):
    with pytest.raises(BadInput):
        split(books(groups), 1, 1)
