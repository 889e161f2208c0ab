"""The page of results/study against its JSON, by a program that shares no code with the package.

It reads the rows of the page as a reader does, computes every change, interval and verdict from the
losses in ``cells/`` by the rules of docs/experiments.md, and compares.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

STUDY = Path(__file__).parents[2] / "results" / "study"
METHODS = {
    **{"ALiBi": "alibi", "Sinusoidal": "sinusoidal", "sinusoidal": "sinusoidal"},
    **{"Rotary": "rotary", "T5 bias": "t5", "No positions": "none", "KERPLE": "kerple"},
    **{"FoX": "fox", "FIRE": "fire", "xPos": "xpos", "Sandwich": "sandwich", "CoPE": "cope"},
    **{"BAM": "bam", "Learned": "learned", "Transformer-XL": "transformer_xl"},
}
#: A row in words, with letters for methods (A, B), training lengths (N, M), windows (K, M) and strides (D) →
#: evaluations: method, training length, window, stride (0: the window), variant. What the first loses
#: more than the second; of four, the difference of the first two less that of the others.
ROWS = {
    "A against B, trained and tested at N": ("A N N", "B N N"),
    "A against B, trained at N, tested at K": ("A N K", "B N K"),
    "A trained and tested at M against N": ("A M M", "A N N"),
    "A trained at N, tested at K against M": ("A N K", "A N M"),
    "A trained at N, S=D, tested at K against N": ("A N K D", "A N N D"),
    "A trained at N, tested at 50 tokens further against N": ("A N N+50", "A N N"),
    "A trained at N, tested at K L against N": ("A N K*N", "A N N"),
    "A trained at N against B trained at M, both tested at M": ("A N M", "B M M"),
    "A trained at N against B trained at M, tested at M, S=D": ("A N M D", "B M M D"),
    "A trained at N, tested at K: attention limited to N against not": ("A N K 0 limited", "A N K"),
    "A trained at N, tested at K: interpolated against not": ("A N K 0 interpolated", "A N K"),
    "A trained at N, tested at K: interpolated, shallow against not": (
        *("A N K 0 interpolated_shallow", "A N K"),
    ),
    "A against B, trained at N: what 4 L loses": ("A N 4*N", "A N N", "B N 4*N", "B N N"),
}
#: What is claimed where the paper has no number of its own: −1 lower, 0 level, 1 higher.
CLAIMED = {
    "ALiBi against rotary and T5 bias at equal length": -1,
    "ALiBi gains from windows longer than its training length": -1,
    "The order in which they break": 1,
    "ALiBi does not use what is further away than its training length": 0,
    "The same slopes serve another domain": -1,
    "Very long windows lose again at 1.3B parameters": 1,
    "KERPLE is ahead of ALiBi past the training length": -1,
    "Interpolated positions help ALiBi at twice its training length": -1,
}
NOT_HERE = "does not apply at this scale"
WORST = ("contradicted", "cannot be told", "same direction", "same direction and size", NOT_HERE)


def losses() -> dict:
    """(method, trained at, window, stride, variant) → (seeds, documents) bits, and the tokens."""
    found: dict = {}
    for path in sorted((STUDY / "cells").glob("*/evaluation.json")):
        corpus, method, length, seed = path.parent.name.split("-")
        for cell in json.loads(path.read_text())["cells"]:
            stride = cell["stride"] if cell["stride"] != cell["length"] else 0
            key = (corpus, method, int(length), cell["length"], stride, cell.get("label", ""))
            if cell["corpus"] == corpus:
                found.setdefault(key, {})[seed] = (cell["document_bits"], cell["document_tokens"])
    return {
        key: (np.array([s[0] for s in seeds.values()]), np.array(next(iter(seeds.values()))[1]))
        for key, seeds in found.items()
    }


def interval(terms, random, draws=3000):
    """Change with its interval, of the sum of losses with signs; equal models share their seeds."""
    tokens = terms[0][2]
    value = sum(sign * (bits.sum(1) / tokens.sum()).mean() for sign, bits, _, _ in terms)
    drawn = np.zeros(draws)
    for draw in range(draws):
        documents = random.integers(len(tokens), size=len(tokens))
        chosen: dict = {}
        for sign, bits, _, model in terms:
            count = len(bits)
            seeds = chosen.setdefault(model, random.integers(count, size=count))
            by_seed = bits[:, documents].sum(1) / tokens[documents].sum()
            wider = math.sqrt(count / max(1, count - 1))
            drawn[draw] += sign * (
                by_seed.mean() + wider * (by_seed[seeds].mean() - by_seed.mean())
            )
    low, high = np.quantile(drawn, [0.025, 0.975])
    return tuple(2.0 ** np.array([value, low, high]) - 1), min(len(b) for _, b, _, _ in terms)


def verdict(value, low, high, seeds, direction, paper):
    if seeds == 1:
        return "cannot be told"
    if direction == 0:
        if low >= -0.005 and high <= 0.005:
            return "same direction and size"
        return "contradicted" if low > 0.005 or high < -0.005 else "cannot be told"
    if direction * low >= 0.005 and direction * high >= 0.005:
        same = paper and math.log1p(value) / math.log1p(paper)
        return "same direction and size" if same and 0.5 <= same <= 2 else "same direction"
    other_side = max(direction * low, direction * high) < 0.005
    return "contradicted" if other_side else "cannot be told"


def share(text: str) -> float:
    return float(text.replace("%", "").replace(",", "").replace("−", "-")) / 100


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


@pytest.fixture(scope="module")
def page():
    text = (STUDY / "README.md").read_text()
    first, *sections = re.split(r"\n#{2,3} ", text)
    return rows(first), {part.split("\n")[0]: part for part in sections}


def pattern_of(row: str) -> str:
    seen: set[str] = set()

    def group(found):
        letter = found[0]
        kind = "|".join(METHODS) if letter in "AB" else r"\d+"
        pattern = f"(?P={letter})" if letter in seen else f"(?P<{letter}>{kind})"
        seen.add(letter)
        return pattern

    return re.sub(r"\b[ABDKMN]\b", group, row)


def terms_of(what, found, main):
    """The losses that a row in words compares: (sign, bits, tokens, model) each."""
    named = re.fullmatch(r"(.*?)(?: \((\w+)\))?", what)
    words, corpus = named[1], named[2] or main
    matches = ((re.fullmatch(pattern_of(row), words), row) for row in ROWS)
    ((match, row),) = [pair for pair in matches if pair[0]]
    terms = []
    for sign, evaluation in zip((1, -1, -1, 1), ROWS[row]):
        method, *numbers = (match.groupdict().get(word, word) for word in evaluation.split())
        variant = numbers.pop() if len(numbers) == 4 else ""
        length, window, stride = (
            sum(
                math.prod(int(match.groupdict().get(each, each)) for each in term.split("*"))
                for term in number.split("+")
            )
            for number in (*numbers, "0")[:3]
        )
        key = (corpus, METHODS[method], length, window, stride * (stride != window), variant)
        terms.append((sign, *found[key], key[:3]))
    return terms


def test_the_page_says_what_the_json_says(page):
    table, sections = page
    found, random = losses(), np.random.default_rng(7)
    main = next(iter(found))[0] if not any(k[0] == "wikipedia" for k in found) else "wikipedia"
    learned = {}
    for n in sorted({key[2] for key in found if key[:2] == (main, "none")}):
        pair = [(main, method, n, n, 0, "") for method in ("sinusoidal", "none")]
        if all(key in found for key in pair):
            one, other = (found[key][0].sum(1).mean() / found[key][1].sum() for key in pair)
            learned[n] = 2 ** (one - other) - 1 <= -0.02
    checked = 0
    for title, section in sections.items():
        if title == "Perplexity and bits per byte":
            continue
        verdicts = []
        for cells in rows(section):
            if len(cells) != 6 or cells[0] in ("comparison",) or set(cells[0]) <= {"-", ":"}:
                continue
            what, paper, here, printed, seeds, said = cells
            if what.startswith("speed of"):
                continue
            terms = terms_of(what, found, main)
            (value, low, high), least = interval(terms, random)
            ends = [share(end) for end in printed.split(" … ")]
            rounding = 0.0006 if abs(share(here)) >= 0.0095 else 0.00006
            assert abs(share(here) - value) <= rounding * (10 if abs(value) >= 1 else 1), what
            for end, ours in zip(ends, (low, high)):
                assert abs(end - ours) <= 0.15 * (high - low) + 0.0006, what
            assert str(least) in seeds
            checked += 1
            number = math.nan if paper == "–" else share(paper)
            direction = CLAIMED.get(title) if paper == "–" else None
            if paper != "–":
                direction = 0 if abs(number) < 0.005 else int(math.copysign(1, number))
            if title == "The order in which they break":
                direction, number = 1, math.nan
            if title in ("Very long windows lose again at 1.3B parameters",):
                direction = 1
            if title == "The same slopes serve another domain" and "sinusoidal" in what:
                direction = None if paper == "–" else direction  # only at the paper's lengths
            if direction is None:
                assert said == ""
                continue
            ours = verdict(value, ends[0], ends[1], least, direction, number)
            baselines = [length for *_, (_, method, length) in terms if method == "sinusoidal"]
            if "1.3B" in title or not all(learned.get(length) for length in baselines):
                ours = NOT_HERE
            assert said == ours, what
            verdicts.append(ours)
        worst = next((each for each in WORST if each in verdicts), "")
        if verdicts:
            assert f"Here: **{worst}**" in section, title
            if said_above := [row[2] for row in table if row[0] == title]:
                assert said_above == [f"{worst} ({verdicts.count(worst)} of {len(verdicts)})"]
    assert checked >= 10


def test_perplexities_and_bits_per_byte_are_means_over_the_seeds(page):
    tables = page[1]["Perplexity and bits per byte"].split("Bits per byte on ")
    checked = 0
    for kind, text in enumerate(tables):
        (_, *lengths), _, *models = rows(text)
        for label, *printed in models:
            name, n = label.split(", L=")
            files = sorted((STUDY / "cells").glob(f"wikipedia-{METHODS[name]}-{n}-seed*"))
            cells = [json.loads((file / "evaluation.json").read_text())["cells"] for file in files]
            for length, said in zip(lengths, printed, strict=True):
                same = [
                    (sum(cell["document_bits"]), cell)
                    for of_seed in cells
                    for cell in of_seed
                    if (cell["length"], cell["stride"]) == (int(length), int(length))
                    and "label" not in cell
                ]
                assert len(same) == len(files)
                values = (
                    bits / cell["bytes"] if kind else 2 ** (bits / cell["tokens"])
                    for bits, cell in same
                )
                expected = sum(values) / len(same)
                assert abs(float(said.split()[0]) - expected) <= (6e-5 if kind else 6e-3)
                checked += 1
    assert checked >= 100
