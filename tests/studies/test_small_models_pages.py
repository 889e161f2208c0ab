"""Page of results/small_models compared with its JSON, without code of the study."""

from __future__ import annotations

import json
import math
import re
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from results_documents import cells_of
from scipy import stats

from alibi_fairseq.results.case import Case
from alibi_fairseq.results.file import Results, save
from alibi_fairseq.results.file_names import TRAINING_FILE
from alibi_fairseq.results.result import Result
from alibi_fairseq.results.series import Reading, Series
from studies.analysis.compared_models import ComparedLosses
from studies.analysis.six_tests import run_tests
from studies.analysis.study_results import StudyResults
from studies.readme.blocks import TAKEAWAY, write_readme
from studies.sections.context_gain import context_gain_section
from studies.small_models.disclosure_page import trials_without_origin
from studies.small_models.models import MODELS
from studies.small_models.page import write_small_models_page

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "small_models"
METHODS = {
    "ALiBi": "alibi",
    "Sinusoidal": "sinusoidal",
    "sinusoidal": "sinusoidal",
    "Rotary": "rotary",
    "T5 bias": "t5",
    "No positions": "none",
    "KERPLE": "kerple",
    "FoX": "fox",
    "FIRE": "fire",
    "xPos": "xpos",
    "Sandwich": "sandwich",
    "CoPE": "cope",
    "BAM": "bam",
    "Learned": "learned",
    "Transformer-XL": "transformer_xl",
    "ALiBi, log distance": "alibi-alibi_distance=log",
    "ALiBi, even slopes": "alibi-alibi_slopes=even",
    "ALiBi, cap 50": "alibi-alibi_cap=50",
    "GRAPE-A-QK": "grape_a_qk",
    "Inkling bias, extent 128": "inkling-inkling_extent=128",
}
NAME = "|".join(map(re.escape, METHODS))
ROW = re.compile(r"^\| (?P<text>.+?) +\| +(?P<change>\S+%) \| +(?P<low>\S+) … (?P<high>\S+) \|")
CONDITION = re.compile(
    r"^\| E\d +\| (?P<text>[^|]+?) +\| [^|]+\| +"
    r"(?P<change>\S+%) \| +(?P<low>\S+) … (?P<high>\S+) \|"
)


@dataclass(frozen=True)
class Evaluation:
    """One side of a comparison."""

    corpus: str
    method: str
    train_length: int
    length: int
    stride: int
    variant: str = ""

    @property
    def model(self) -> tuple:
        return (self.corpus, self.method, self.train_length)


@cache
def read_losses(part: str) -> dict[Evaluation, dict]:
    """Return evaluation -> seed -> mean nats of each document."""
    losses: dict = {}
    for path in (RESULTS / part / "cells").glob("*/evaluation.json"):
        corpus, *method, trained, _ = path.parent.name.split("-")
        for result in json.loads(path.read_text())["results"]:
            case, values = result["case"], result["values"]
            evaluation = Evaluation(
                corpus,
                "-".join(method),  # with options: alibi-alibi_slopes=even
                int(trained),
                case["length"],
                case["stride"],
                result["reading"].get("variant", ""),
            )
            bits = np.array(values["document_bits"]) / np.array(values["document_tokens"])
            losses.setdefault(evaluation, {})[result["seed"]] = bits * math.log(2)
    return losses


def losses_of_small_models(part: str) -> ComparedLosses:
    """Return the losses as the study reads them."""
    return ComparedLosses(MODELS, StudyResults.load(RESULTS / part).losses)


def sides(text: str) -> tuple[Evaluation, Evaluation]:
    """Return the two evaluations that a row of estimates names."""
    corpus = "books" if ", on books," in text else "wikipedia"
    text = text.replace(", on books", "")

    def evaluation(method, trained, length, stride=None, variant=""):
        length = int(length)
        stride = int(stride or length)
        return Evaluation(corpus, METHODS[method], int(trained), length, stride, variant)

    if match := re.fullmatch(rf"({NAME}), L = (\d+), at (\d+) L vs\. L", text):  # on books
        method, trained, multiple = match.groups()
        longer = int(multiple) * int(trained)
        return evaluation(method, trained, longer), evaluation(method, trained, trained)
    if match := re.fullmatch(rf"({NAME}) vs\. ({NAME}), L = (\d+), at (L|\d+)", text):
        first, second, trained, length = match.groups()
        if length == "L":
            length = trained
        return evaluation(first, trained, length), evaluation(second, trained, length)
    pattern = rf"({NAME}), L = (\d+) vs\. ({NAME}), L = (\d+), both at (\d+)"
    if match := re.fullmatch(pattern, text):
        first, short, second, long, length = match.groups()
        return evaluation(first, short, length), evaluation(second, long, length)
    longer_training = rf"({NAME}), L = (\d+) vs\. (\d+), each at its training length"
    if match := re.fullmatch(longer_training, text):
        method, first, second = match.groups()
        return evaluation(method, first, first), evaluation(method, second, second)
    if match := re.fullmatch(rf"({NAME}), L = (\d+), S = (\d+), at (\d+) vs\. (\d+)", text):
        method, trained, stride, first, second = match.groups()
        return (
            evaluation(method, trained, first, stride),
            evaluation(method, trained, second, stride),
        )
    pattern = rf"({NAME}), L = (\d+), at (\d+): (.+) vs\. (?:unchanged|unlimited)"
    match = re.fullmatch(pattern, text)
    assert match, text
    method, trained, length, variant = match.groups()
    variant = variant.replace("four shallowest slopes interpolated", "interpolated_shallow")
    return (
        evaluation(method, trained, length, variant=variant),
        evaluation(method, trained, length),
    )


def change(losses: dict, first: Evaluation, second: Evaluation) -> list[float]:
    """Return the change and its 95% interval in percent, by the formulas of protocol.md."""
    first_losses = np.stack([losses[first][seed] for seed in sorted(losses[first])])
    second_losses = np.stack([losses[second][seed] for seed in sorted(losses[second])])
    by_document = first_losses.mean(0) - second_losses.mean(0)
    if first.model == second.model:
        samples = [(first_losses - second_losses).mean(1), by_document]
    else:
        samples = [first_losses.mean(1), second_losses.mean(1), by_document]
    squared_errors = [np.square(stats.sem(sample)) for sample in samples]
    total = sum(squared_errors)
    denominator = 0.0
    for squared, sample in zip(squared_errors, samples, strict=True):
        denominator += squared**2 / (len(sample) - 1)
    freedom = total**2 / denominator  # Satterthwaite
    low, high = stats.t.interval(0.95, freedom, by_document.mean(), math.sqrt(total))
    return [100 * (math.exp(x) - 1) for x in (by_document.mean(), low, high)]


def printed_changes(pattern: re.Pattern, page: str) -> list[tuple[str, list[str]]]:
    """Return text, change, and interval of each row that a pattern matches, as printed."""
    changes = []
    for line in page.splitlines():
        if match := pattern.match(line):
            changes.append((match["text"].strip(), [match["change"], match["low"], match["high"]]))
    return changes


def assert_printed(printed: list[str], expected: list[float]) -> None:
    """Assert that printed percentages are the rounded values."""
    for shown, value in zip(printed, expected, strict=True):
        decimals = len(shown.rstrip("%").partition(".")[2])
        assert float(shown.rstrip("%")) == pytest.approx(value, abs=0.51 * 10**-decimals)


PAGE = (RESULTS / "README.md").read_text()
DISCLOSURE = (RESULTS / "disclosure.md").read_text()
CONDITIONS = printed_changes(CONDITION, PAGE)
KNOWN_CONDITIONS = printed_changes(CONDITION, DISCLOSURE)
BEYOND = printed_changes(ROW, PAGE[PAGE.index("### Estimates beyond") :])
SECONDARY = (RESULTS / "secondary.md").read_text()
ESTIMATES = printed_changes(ROW, SECONDARY)


def changes_beyond_length() -> list[tuple[str, str, str, str]]:
    """Return method, training length, heading, and cell of each change of a secondary model."""
    section = SECONDARY.split("## Beyond the training length\n")[1].partition("\n## ")[0]
    (_, _, *headers), *rows = cells_of(section)
    changes = []
    for method, train_length, *cells in rows:
        for header, cell in zip(headers, cells, strict=True):
            if cell != "–":
                changes.append((method, train_length, header, cell))
    return changes


BEYOND_LENGTH = changes_beyond_length()


def record_divergence(folder: Path) -> None:
    """Write the record of a training of ALiBi that diverged."""
    method = {"layers": [{"name": "alibi"}]}
    case = Case("validation", None, "valid", 128, 128)
    end = Result(Series({"method": method}), Reading(None), 2, case, None, status="diverged")
    save(Results([end]), folder / TRAINING_FILE)


def test_page_lists_diverged_models(tmp_path):
    for part in ("primary", "secondary"):
        record_divergence(tmp_path / part / "cells" / f"{part}-alibi-128-seed2")
    page = write_small_models_page(tmp_path).read_text()
    estimates = (tmp_path / "secondary.md").read_text()
    assert "diverged. They are not replaced: `primary-alibi-128-seed2`." in page
    assert "diverged. They are not replaced: `secondary-alibi-128-seed2`." in estimates


def test_page_has_estimates():
    assert len(CONDITIONS) >= 10
    assert len(KNOWN_CONDITIONS) >= 13
    assert len(BEYOND) >= 3
    assert len(ESTIMATES) >= 30
    assert len(BEYOND_LENGTH) >= 46


@pytest.mark.parametrize(("text", "printed"), ESTIMATES, ids=lambda value: str(value)[:60])
def test_page_states_changes_and_intervals(text, printed):
    assert_printed(printed, change(read_losses("secondary"), *sides(text)))


@pytest.mark.parametrize(("method", "train_length", "header", "cell"), BEYOND_LENGTH)
def test_page_states_changes_beyond_the_training_length(method, train_length, header, cell):
    multiple = re.fullmatch(r"(\d+) L vs\. L", header)[1]
    at_length, longer = (
        Evaluation("wikipedia", METHODS[method], int(train_length), length, length)
        for length in (int(train_length), int(multiple) * int(train_length))
    )
    printed = re.fullmatch(r"(\S+) \((\S+) … (\S+)\)", cell).groups()
    assert_printed(printed, change(read_losses("secondary"), longer, at_length))


def condition_sides(text: str) -> tuple[Evaluation, Evaluation]:
    """Return the two evaluations that a condition of the six tests compares; L is 128."""

    def evaluation(method, multiple=1, stride=None, variant="", trained=128):
        length = int(multiple) * 128
        stride = int(stride or length)
        return Evaluation("wikipedia", METHODS[method], trained, length, stride, variant)

    if text == "ALiBi (L) vs. sinusoidal (4 L), at 4 L":
        return evaluation("ALiBi", 4), evaluation("sinusoidal", 4, trained=512)
    if match := re.fullmatch(rf"({NAME}) at (\d+) L vs\. (\d+ )?L(?:, S = (\d+))?", text):
        method, multiple, other, stride = match.groups()
        return evaluation(method, multiple, stride), evaluation(method, other or 1, stride)
    if match := re.fullmatch(rf"({NAME}) vs\. ({NAME}) at (\d+ )?L", text):
        first, second, multiple = match.groups()
        return evaluation(first, multiple or 1), evaluation(second, multiple or 1)
    pattern = rf"({NAME}) at (\d+) L: attention limited to L vs\. unlimited"
    match = re.fullmatch(pattern, text)
    assert match, text
    method, multiple = match.groups()
    return evaluation(method, multiple, variant="limited"), evaluation(method, multiple)


@pytest.mark.parametrize(("text", "printed"), CONDITIONS, ids=lambda value: str(value)[:60])
def test_page_states_changes_of_conditions(text, printed):
    assert_printed(printed, change(read_losses("primary"), *condition_sides(text)))


@pytest.mark.parametrize(("text", "printed"), KNOWN_CONDITIONS, ids=lambda value: str(value)[:60])
def test_page_states_changes_that_were_known_before(text, printed):
    assert_printed(printed, change(read_losses("secondary"), *condition_sides(text)))


@pytest.mark.parametrize(("text", "printed"), BEYOND, ids=lambda value: str(value)[:60])
def test_page_states_changes_beyond_the_tests(text, printed):
    assert_printed(printed, change(read_losses("primary"), *condition_sides(text)))


@pytest.mark.parametrize("seeds", [0, 2])
def test_page_lists_models_without_all_seeds(tmp_path, seeds):
    shutil.copytree(RESULTS, tmp_path / "small_models")
    cells = tmp_path / "small_models" / "primary" / "cells"
    for seed in range(seeds + 1, 4):
        shutil.rmtree(cells / f"wikipedia-rotary-128-seed{seed}")
    page = write_small_models_page(tmp_path / "small_models").read_text()
    for test in ("E2", "E3"):
        (line,) = re.findall(rf"^- {test}: (.*)$", page, re.MULTILINE)
        assert f"Rotary, L = 128 ({seeds} of 3 seeds)" in line
        assert "ALiBi, L = 128 (" not in line


def test_readme_states_what_was_found(tmp_path):
    """The committed README is current, and its numbers are those of the committed losses."""
    readme = tmp_path / "README.md"
    shutil.copy(ROOT / "README.md", readme)
    write_readme(readme)
    text = readme.read_text()
    assert text == (ROOT / "README.md").read_text()
    found = " ".join(text.split())
    assert "4.3%, 6.9%, and 8.9% lower" in found
    assert "ALiBi's perplexity is 7.4% lower after 12.3M training tokens, but only 1.9%" in found
    assert "lower (95% interval: 0.68% to 3.1%) after 49.1M." in found
    assert "With sliding windows, the 95% interval of the final difference includes zero." in found
    assert "at the longer of the two lengths by 2.6% in our 0.85M-parameter models" in found
    assert "32-token instead of 128-token sequences; with sliding windows, the increase is" in found
    assert "perplexity is 0.10% lower after training on 512-token instead of 2,048-token" in found
    assert "sequences (95% interval: 1.4% lower to 1.2% higher)" in found
    assert "the paper reports a 3.2% increase for the same lengths." in found
    assert "ALiBi wins [19 of 41 such comparisons]" in found
    assert "the gain is 2.1% instead of 6.9%." in found


def test_caption_of_readme_says_what_the_figure_shows():
    losses = read_losses("primary")
    levels = {}
    for method in ("alibi", "t5", "sinusoidal", "rotary"):
        levels[method] = []
        for length in (128, 256, 512, 1024, 2048):
            evaluation = Evaluation("wikipedia", method, 128, length, length)
            levels[method].append(np.mean([nats.mean() for nats in losses[evaluation].values()]))
    assert "keeps falling beyond the training length with ALiBi" in TAKEAWAY.read_text()
    assert (np.diff(levels["alibi"]) < 0).all()
    assert "falls and then rises slightly with T5 bias" in TAKEAWAY.read_text()
    assert (np.diff(levels["t5"][:4]) < 0).all()
    assert 0 < levels["t5"][4] - levels["t5"][3] < math.log(1.02)
    assert "rises steeply with\nsinusoidal and rotary" in TAKEAWAY.read_text()
    for method in ("sinusoidal", "rotary"):
        assert levels[method][4] - levels[method][0] > math.log(2)


def test_conditions_known_before_were_inside_their_ranges():
    """The README says so of E1, E2, E4, and E5."""
    results = run_tests(losses_of_small_models("secondary"))
    tests = {test.name: test for test in results}
    for name in ("E1", "E2", "E4", "E5"):
        test = tests[name]
        assert {test.location(condition) for condition in test.conditions} == {"inside"}


def test_page_states_shares_of_the_decrease():
    """At 4 L, and with limited attention at 16 L, from the losses and in log perplexity."""
    losses = read_losses("primary")

    def level(length, stride=None, variant=""):
        evaluation = Evaluation("wikipedia", "alibi", 128, length, stride or length, variant)
        return np.mean([nats.mean() for nats in losses[evaluation].values()])

    section = context_gain_section(losses_of_small_models("primary"))
    rows = {row[0]: row for row in cells_of(section)}
    sliding = (level(512, 16) - level(128, 16)) / (level(512) - level(128))
    limited = (level(2048, variant="limited") - level(128)) / (level(2048) - level(128))
    assert rows["4 L"][3] == f"{100 * sliding:.0f}%"
    assert rows["16 L"][5] == f"{100 * limited:.0f}%"
    assert rows["4 L"][6] == "+1.7%"  # 18.28 / 17.98, Table 15
    assert rows["2 L"][6:] == ["-0.33%", "+0.92%"]  # 17.92 / 17.98 and 17.62 / 17.46


def test_page_compares_rates_with_those_of_longer_trials(tmp_path):
    """Trials at 12.0M tokens choose 0.0113, a much better rate, or one that hardly matters."""
    folder = tmp_path / "small_models"
    shutil.copytree(RESULTS, folder)
    shutil.rmtree(folder / "rates-12M", ignore_errors=True)
    sinusoidal = folder / "sinusoidal-12M/tuning/wikipedia/sinusoidal-128-tuning.json"

    def disclosure(**bits: dict[float, float]) -> str:
        for method, losses in bits.items():
            trials = json.loads(sinusoidal.read_text())
            trials["result"]["trials"] = [
                {"lr": lr, "loss_bits": loss} for lr, loss in losses.items()
            ]
            trials["result"]["lr"] = min(losses, key=losses.__getitem__)
            path = folder / f"rates-12M/tuning/wikipedia/{method}-128-tuning.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(trials))
        write_small_models_page(folder)
        return " ".join((folder / "disclosure.md").read_text().split())

    larger = "A difference of this size is larger than the margin of E3 (2%)"
    page = disclosure()
    assert f"The rate 0.0113 of ALiBi and T5 bias wasn't checked in this way. {larger}" in page
    page = disclosure(alibi={0.0057: 6.1, 0.008: 6.05, 0.0113: 6.0})
    assert "For ALiBi, 0.0113 has the lowest loss there as well. The rate 0.0113 of T5 bias" in page
    page = disclosure(t5={0.0057: 6.1, 0.008: 6.05, 0.0113: 6.06})
    change = "For T5 bias, the perplexity of 0.008 is 0.69% lower than that of 0.0113."
    assert f"{change} This is less than the margin of E3 (2%)." in page
    page = disclosure(t5={0.0057: 6.0, 0.008: 6.05, 0.0113: 6.06})
    assert "the perplexity of 0.0057 is 4.1% lower than that of 0.0113." in page
    assert larger in page
    for path in (folder / "primary" / "tuning" / "wikipedia").glob("*.json"):
        path.unlink()
    assert "margin of E3" not in disclosure()


def test_page_says_which_trials_have_no_origin():
    unknown = {"trials": [{"lr": 0.004}]}
    known = {"trials": [{"lr": 0.004, "provenance": {"git_commit": "abc"}}]}
    assert trials_without_origin({"a/t5-128": known}) == ""
    assert (
        trials_without_origin({"a/t5-128": unknown})
        == "Their commit and processor are not recorded."
    )
    sentence = trials_without_origin({"a/t5-128": known, "a/fox-128": unknown})
    assert sentence.endswith("only for the trials of `a/t5-128`.")
