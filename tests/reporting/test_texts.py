"""Names of the texts of results."""

from __future__ import annotations

import random

from results_documents import evaluation_record, results_of

from alibi_fairseq.reporting.texts import Text, group_by_text, text_names
from alibi_fairseq.results.case import Case

SEPARATORS = ("", "empty-lines", "titles")


def random_text(random_numbers: random.Random) -> Text:
    """Return one of the texts that a report can have, of whatever kind."""
    score_from, score_to = random_numbers.choice([(0, None), (32, None), (0, 64), (32, 64)])
    is_raw = random_numbers.random() < 0.4
    separator = random_numbers.choice(SEPARATORS)
    documents = None
    if is_raw:
        documents = separator or None
    elif score_from or score_to:
        documents = random_numbers.choice([None, "d" * 64, "e" * 64, "f" * 64])
    case = Case(
        kind="text",
        text=random_numbers.choice([None, "a" * 64, "b" * 64]),
        split=random_numbers.choice(["valid", "test"]),
        length=0,
        stride=0,
        documents=documents,
        score_from=score_from,
        score_to=score_to,
        tokens=random_numbers.choice(["7" * 64, "8" * 64]) if is_raw else None,
        separator=separator,
    )
    tokens = random_numbers.choice([None, 900, 1000])
    return Text(case, tokens, random_numbers.choice([None, 4000, 5000]))


def test_texts_of_a_split_have_different_names():
    random_numbers = random.Random(1)
    for _ in range(3000):
        texts = [random_text(random_numbers) for _ in range(random_numbers.randint(1, 6))]
        names = text_names(texts)
        named = {(text.case.split, name) for text, name in names.items()}
        assert len(named) == len(set(texts)), names


def test_changed_boundaries_of_one_rule_have_tables_of_their_own():
    titles = {"documents": "titles", "score_from": 32}
    records = [
        evaluation_record(10.0, documents_sha256="d" * 64, **titles),
        evaluation_record(11.0, documents_sha256="e" * 64, **titles),
        evaluation_record(12.0, documents_sha256="f" * 64, score_from=32, documents="empty-lines"),
    ]
    scored = "tokens 32 to the end of each document"
    assert [group.text for group in group_by_text(results_of(*records))] == [
        f"{scored}, documents by titles, documents dddddddd",
        f"{scored}, documents by titles, documents eeeeeeee",
        f"{scored}, documents by empty-lines, documents ffffffff",
    ]


def test_only_texts_with_documents_state_them():
    records = [evaluation_record(9.0)]
    for letter in "de":
        by_document = {"documents": "titles", "documents_sha256": letter * 64}
        records.append(evaluation_record(10.0, score_from=32, **by_document))
    texts = [group.text for group in group_by_text(results_of(*records))]
    scored = "tokens 32 to the end of each document"
    assert texts == ["all scored", f"{scored}, documents dddddddd", f"{scored}, documents eeeeeeee"]
