"""The page of results/small_models against its JSON, by a program that shares no code with it."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

RESULTS = Path(__file__).parents[2] / "results" / "small_models"
METHODS = {
    **{"ALiBi": "alibi", "Sinusoidal": "sinusoidal", "sinusoidal": "sinusoidal"},
    **{"Rotary": "rotary", "T5 bias": "t5", "No positions": "none", "KERPLE": "kerple"},
    **{"FoX": "fox", "FIRE": "fire", "xPos": "xpos", "Sandwich": "sandwich", "CoPE": "cope"},
    **{"BAM": "bam", "Learned": "learned", "Transformer-XL": "transformer_xl"},
}
NAME = "|".join(map(re.escape, METHODS))
ROW = re.compile(r"^\| (?P<text>.+?) +\| +(?P<change>\S+%) \| +(?P<low>\S+) … (?P<high>\S+) \|")


def read_losses(part: str) -> dict:
    """Return (corpus, method, L, window, stride, variant) -> seed -> mean nats of each article."""
    losses: dict = {}
    for path in (RESULTS / part / "cells").glob("*/evaluation.json"):
        corpus, method, trained, _ = path.parent.name.split("-")
        for cell in json.loads(path.read_text())["cells"]:
            label = cell.get("label", "")
            key = (corpus, method, int(trained), cell["length"], cell["stride"], label)
            bits = np.array(cell["document_bits"]) / np.array(cell["document_tokens"])
            losses.setdefault(key, {})[cell["seed"]] = bits * math.log(2)
    return losses


def sides(text: str) -> tuple:
    """Return the keys of the two evaluations that a row of estimates names."""
    corpus = "books" if ", on books," in text else "wikipedia"
    text = text.replace(", on books", "")

    def key(method, trained, length, stride=None, variant=""):
        return (corpus, METHODS[method], trained, length, stride or length, variant)

    if m := re.fullmatch(rf"({NAME}), L = (\d+), at (\d+) L against L", text):
        trained = int(m[2])
        return key(m[1], trained, int(m[3]) * trained), key(m[1], trained, trained)
    if m := re.fullmatch(rf"({NAME}) against ({NAME}), L = (\d+), at (L|\d+)", text):
        trained = int(m[3])
        length = trained if m[4] == "L" else int(m[4])
        return key(m[1], trained, length), key(m[2], trained, length)
    if m := re.fullmatch(rf"({NAME}), L = (\d+), against ({NAME}), L = (\d+), both at (\d+)", text):
        return key(m[1], int(m[2]), int(m[5])), key(m[3], int(m[4]), int(m[5]))
    if m := re.fullmatch(rf"({NAME}), L = (\d+) against (\d+), each at its L", text):
        return key(m[1], int(m[2]), int(m[2])), key(m[1], int(m[3]), int(m[3]))
    if m := re.fullmatch(rf"({NAME}), L = (\d+), S = (\d+), at (\d+) against (\d+)", text):
        trained = int(m[2])
        stride = int(m[3])
        return key(m[1], trained, int(m[4]), stride), key(m[1], trained, int(m[5]), stride)
    m = re.fullmatch(rf"({NAME}), L = (\d+), at (\d+): (.+) against (?:not|unlimited)", text)
    assert m, text
    variant = m[4].replace("four shallowest slopes interpolated", "interpolated_shallow")
    trained = int(m[2])
    length = int(m[3])
    return key(m[1], trained, length, None, variant), key(m[1], trained, length)


def change(losses: dict, first: tuple, second: tuple) -> tuple[float, float, float]:
    """Return the change and its 95% interval in percent, by the formulas of protocol.md."""
    seeds = sorted(losses[first])
    one = np.stack([losses[first][seed] for seed in seeds])
    two = np.stack([losses[second][seed] for seed in sorted(losses[second])])
    articles = one.mean(0) - two.mean(0)
    paired = first[:3] == second[:3]
    groups = [(one - two).mean(1)] if paired else [one.mean(1), two.mean(1)]
    squared = [np.square(stats.sem(group)) for group in [*groups, articles]]
    freedom = [len(group) - 1 for group in [*groups, articles]]
    total = sum(squared)
    satterthwaite = total**2 / sum(s**2 / f for s, f in zip(squared, freedom))
    low, high = stats.t.interval(0.95, satterthwaite, articles.mean(), math.sqrt(total))
    return tuple(100 * (math.exp(x) - 1) for x in (articles.mean(), low, high))


def rows() -> list[tuple[str, list[str]]]:
    text = (RESULTS / "README.md").read_text()
    text = text[text.index("## Estimates") :]
    found = [ROW.match(line) for line in text.splitlines()]
    return [(m["text"].strip(), [m["change"], m["low"], m["high"]]) for m in found if m]


def test_page_has_estimates():
    assert len(rows()) >= 60


@pytest.mark.parametrize(("text", "printed"), rows(), ids=lambda value: str(value)[:60])
def test_page_states_changes_and_intervals(text, printed):
    expected = change(read_losses("secondary"), *sides(text))
    for shown, value in zip(printed, expected, strict=True):
        decimals = len(shown.rstrip("%").partition(".")[2])
        assert float(shown.rstrip("%")) == pytest.approx(value, abs=0.51 * 10**-decimals)


def test_page_is_current(tmp_path):
    """The committed page is what its generator makes of the committed JSON."""
    import shutil

    from studies.small_models.page import write_page

    shutil.copytree(RESULTS, tmp_path / "results")
    page = write_page(tmp_path / "results")
    assert page.read_text() == (RESULTS / "README.md").read_text()


def test_readme_table_is_current(tmp_path):
    """The committed README has the table that its generator makes of the committed JSON."""
    import shutil

    from studies.small_models.page import write_readme_table

    readme = tmp_path / "README.md"
    shutil.copy(RESULTS.parents[1] / "README.md", readme)
    write_readme_table(RESULTS, readme)
    assert readme.read_text() == (RESULTS.parents[1] / "README.md").read_text()


def test_readme_table_states_perplexities():
    """Perplexities of the README are those of the JSON, the mean of the seeds' losses."""
    losses = read_losses("secondary")
    table = (RESULTS.parents[1] / "README.md").read_text().partition("small-models-table: begin")[2]
    rows = re.findall(rf"^\| ({NAME}) +\| +(\S+) \| +(\S+) \| +(\S+) \|", table, re.MULTILINE)
    assert len(rows) >= 8
    for name, *perplexities in rows:
        for length, shown in zip((128, 512, 2048), perplexities, strict=True):
            by_seed = losses["wikipedia", METHODS[name], 128, length, length, ""]
            mean = np.mean([nats.mean() for nats in by_seed.values()])
            assert float(shown) == pytest.approx(math.exp(mean), abs=0.006)
