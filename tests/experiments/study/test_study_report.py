"""The page of a study."""

from test_study_verdicts import as_the_paper, results

from alibi_fairseq.experiments.study.claims import CLAIMS
from alibi_fairseq.experiments.study.page import write_page
from alibi_fairseq.results.points import Point


def points():
    for method in ("alibi", "sinusoidal", "rotary"):
        for length in (128, 256, 512):
            for seed in (1, 2, 3):
                perplexity = 100 + seed - (length > 128 and method == "alibi")
                yield Point(method, 128, length, length, "test", perplexity, seed=seed, corpus="w")


def test_page_has_every_claim_with_its_verdict_and_numbers(tmp_path):
    found = results(as_the_paper)
    path = write_page(
        "A study", "What it is.", found, list(points()), ["books-bam-128-seed3"], tmp_path
    )
    page = path.read_text()
    rows = {line.split("|")[1].strip(): line for line in page.splitlines() if line.startswith("|")}
    for claim in CLAIMS:
        if not claim.later:
            assert claim.verdict(found) in rows[claim.title]
        for finding in claim.findings(found):
            assert finding.verdict in rows[finding.what]
    gain = rows["ALiBi trained at 128, tested at 256 against 128"]
    assert "-9.5 %" in gain and "-6.7 %" in gain  # 21.70 / 23.98 in Table 5, 2 ** -0.1 here
    assert "books-bam-128-seed3" in page
    assert (tmp_path / "study.png").stat().st_size > 10_000 and (tmp_path / "study.svg").is_file()


def test_page_without_any_results_says_what_is_left(tmp_path):
    page = write_page(
        "A study", "", results(as_the_paper, seeds=1), [], ["x"], tmp_path
    ).read_text()
    assert "same direction" not in page  # a single seed decides nothing
