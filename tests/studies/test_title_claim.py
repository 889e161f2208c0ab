"""The table and the figure of the paper's title on a study's page."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from results_documents import cells_of
from test_small_models_pages import Evaluation, change, read_losses

from studies.analysis.baseline import recovered_gain
from studies.analysis.compared_models import ComparedLosses, ComparedModels
from studies.analysis.evaluation_key import TrainedModel
from studies.analysis.study_results import StudyResults
from studies.readme.paper_page import write_paper_page
from studies.sections import six_tests
from studies.sections.title_claim import title_claim_figure, title_claim_section

ROOT = Path(__file__).parents[2]
SECONDARY = ROOT / "results" / "small_models" / "secondary"
MODELS = ComparedModels("wikipedia", 128, baseline="share")


@pytest.fixture
def results(tmp_path) -> Path:
    """Copy models of 3.1M tokens that were trained at 128 and at 512 tokens."""
    for method, length in (("alibi", 128), ("alibi", 512), ("sinusoidal", 512), ("none", 512)):
        for seed in (1, 2, 3):
            name = f"wikipedia-{method}-{length}-seed{seed}"
            shutil.copytree(SECONDARY / "cells" / name, tmp_path / "cells" / name)
    return tmp_path


def paragraphs(text: str) -> list[str]:
    """Return paragraphs without line breaks; tables keep theirs."""
    parts = []
    for part in text.split("\n\n"):
        parts.append(part if part.startswith("|") else " ".join(part.split()))
    return parts


def losses_of(folder: Path) -> ComparedLosses:
    """Return the losses of the copied models."""
    return ComparedLosses(MODELS, StudyResults.load(folder).losses)


def sections_of(folder: Path) -> list[str]:
    """Return the paragraphs of the section, each as one line unless it is a table."""
    return paragraphs(title_claim_section(losses_of(folder)))


def claim_rows(sections: list[str]) -> dict[tuple[str, str], list[str]]:
    """Return the rows of the first table by method and training length."""
    table = next(section for section in sections if section.startswith("|"))
    return {(row[0], row[1]): row[2:] for row in cells_of(table)[1:]}


def test_table_has_perplexities_and_intervals(results):
    rows = claim_rows(sections_of(results))
    losses = read_losses("secondary")
    assert list(rows) == [
        ("ALiBi", "128"),
        ("ALiBi", "512"),
        ("No positions", "512"),
        ("Sinusoidal", "512"),
    ]
    short = Evaluation("wikipedia", "alibi", 128, 512, 512)
    methods = {"ALiBi": "alibi", "No positions": "none", "Sinusoidal": "sinusoidal"}
    for (name, trained), (perplexity, changed, interval, *_) in rows.items():
        evaluation = Evaluation("wikipedia", methods[name], int(trained), 512, 512)
        nats = [seed.mean() for seed in losses[evaluation].values()]
        assert float(perplexity) == pytest.approx(math.exp(sum(nats) / 3), abs=0.006)
        if trained == "512":
            value, low, high = change(losses, short, evaluation)
            shown = [changed, *interval.split(" … ")]
            for text, number in zip(shown, (value, low, high), strict=True):
                assert float(text.rstrip("%")) == pytest.approx(number, abs=0.06)


def test_figure_says_what_it_shows(results):
    text = " ".join(title_claim_figure(StudyResults.load(results), losses_of(results)).split())
    rows = claim_rows(sections_of(results))
    for name, trained in rows:
        assert f"{name} trained on {trained}, {rows[name, trained][0]}" in text
    assert "](title-claim.svg)" in text
    assert (results / "title-claim.svg").is_file()


@pytest.mark.parametrize("value", ["alibi_slopes=0.5+0.25", "alibi_slopes=my-slopes.txt"])
def test_option_of_a_method_may_have_any_value(results, value):
    """Also one that the notation of evaluations lacks."""
    losses = dict(losses_of(results).by_key)
    key = MODELS.key("alibi-4@4")
    model = TrainedModel("wikipedia", f"alibi/{value}", 512)
    losses[replace(key, method=model.method)] = replace(losses[key], model=model)
    compared = ComparedLosses(MODELS, losses)
    rows = claim_rows(paragraphs(title_claim_section(compared)))
    ((name, _),) = [row for row in rows if value.partition("=")[2] in row[0]]
    assert rows[name, "512"] == rows["ALiBi", "512"]
    assert f"{name} trained on 512" in title_claim_figure(StudyResults.load(results), compared)


def test_baseline_of_e6_recovers_too_little(results):
    """Sinusoidal embeddings recover little after 3.1M tokens; two seeds have no outcome."""
    losses = losses_of(results)
    page = " ".join(six_tests.six_tests_section(losses).split())
    fraction = recovered_gain(losses)
    assert 0 < fraction < 0.5
    assert f"baseline not trained (recovers {100 * fraction:.0f}%) |" in page
    assert "baseline of E6 counts as trained" in page
    assert f"They recover {100 * fraction:.0f}%." in page
    shutil.rmtree(results / "cells/wikipedia-none-512-seed1")
    page = " ".join(six_tests.six_tests_section(losses_of(results)).split())
    assert "baseline not trained" not in page
    assert "- E6: No positions, L = 512 (2 of 3 seeds)" in page
    assert "baseline of E6" not in page


def test_loss_over_no_positions_is_not_a_percentage(results):
    """Exchange sinusoidal embeddings and no positions: what they gained is lost then."""
    losses = dict(losses_of(results).by_key)
    sinusoidal = MODELS.key("sinusoidal-4@4")
    none = MODELS.key("none-4@4")
    losses[sinusoidal], losses[none] = losses[none], losses[sinusoidal]
    page = " ".join(six_tests.six_tests_section(ComparedLosses(MODELS, losses)).split())
    assert "They recover none." in page


def test_no_section_without_models_trained_long(results):
    for path in results.glob("cells/*-512-*"):
        shutil.rmtree(path)
    assert sections_of(results) == [""]
    assert title_claim_figure(StudyResults.load(results), losses_of(results)) == ""


def test_paper_tables_have_the_printed_numbers(tmp_path):
    """Perplexities typed from the paper's tables, and changes computed from them."""
    sections = paragraphs(write_paper_page(tmp_path).read_text())
    tables = [cells_of(text)[1:] for text in sections if text.startswith("|")]
    holding, long, all_pairs, gaps = tables
    assert holding[0] == ["WikiText-103", "Table 5", "no overlap", "12 of 28"]
    assert holding[5] == ["CC100+RoBERTa, 1.3B", "Table 12", "no overlap", "0 of 3"]
    by_pair = {(row[1], row[2]): row[3:] for row in long}
    by_table = by_pair["Table 5", "512 and 2048"]
    assert by_table[:6] == ["18.48", "17.91", "18.87", "+3.2%", "+5.4%", "-2.1%"]
    assert by_pair["Table 5", "128 and 512"][:6] == [
        "20.67",
        "19.73",
        "20.05",
        "+4.8%",
        "+1.6%",
        "+3.1%",
    ]
    assert by_pair["Table 12", "512 and 2048"][3:6] == ["+7.9%", "-0.11%", "+8.0%"]
    assert by_pair["Table 8", "512 and 3072"][3:6] == ["+3.0%", "+10.0%", "-6.3%"]
    assert by_pair["Table 7, stride 512", "512 and 3072"][3:6] == ["+7.8%", "+5.8%", "+1.9%"]
    assert by_pair["Tables 13 and 15, stride 1", "512 and 3072"][3:6] == ["+7.9%", "+6.3%", "+1.5%"]
    assert by_pair["Table 11", "1024 and 2048"][:6] == ["8.92", "–", "9.01", "–", "–", "-1.00%"]
    assert all_pairs[0] == [
        "64",
        "+3.7%",
        "+6.7%",
        "+10.2%",
        "+12.4%",
        "+13.5%",
        "+14.4%",
        "+15.3%",
    ]
    by_model = {tuple(row[:3]): row[3:] for row in gaps}
    book = by_model["BookCorpus (Press et al.)", "247M", "3072"]
    assert book[:2] == ["13.15", "14.46 (+10.0%)"]
    pile = by_model["The Pile (Haviv et al.)", "125M", "1024"]
    assert pile == ["19.94", "21.49 (+7.8%)", "–", "–", "22.15 (+11.1%)", "29%"]
    text = " ".join(sections)
    assert "tables support this in 19 of 41 comparisons." in text
    assert "trained on 512 or more tokens, and for none trained on 128 or fewer" in text
