"""Results files: written, read, and merged without a change of any result."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from commands import ROOT
from results_documents import PROVENANCE

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.files import json_text
from alibi_fairseq.results import file
from alibi_fairseq.results.benchmark import Benchmark, BenchmarkFile, save_benchmarks
from alibi_fairseq.results.case import Case
from alibi_fairseq.results.file import Results
from alibi_fairseq.results.provenance import Provenance
from alibi_fairseq.results.result import Result
from alibi_fairseq.results.series import Facts, Reading, Series
from alibi_fairseq.results.values import ProbeValues, TextValues

CELLS = ROOT / "results" / "small_models" / "secondary" / "cells"
SETTINGS = {"method": {"layers": [{"name": "alibi"}]}, "data.train": "a" * 64, "model.dropout": 0.2}
CASE = Case("text", "e" * 64, "test", 256, 256, corpus="books")
RESULT = Result(Series(SETTINGS), Reading(500), 1, CASE, TextValues(3.0), "a.pt", "f" * 64)


def read_again(results: list[Result], folder: Path) -> list[Result]:
    file.save(Results(results), folder / "results.json")
    return list(file.load(folder / "results.json").results)


@pytest.mark.parametrize("name", ["wikipedia-learned-128-seed1", "wikipedia-alibi-512-seed2"])
def test_committed_results_are_merged_and_read_back(name, tmp_path):
    loaded = [file.load(path) for path in sorted((CELLS / name).glob("[et]*.json"))]
    merged = file.merge(loaded)
    assert len(merged.results) == sum(len(results.results) for results in loaded)
    path = tmp_path / "results.json"
    file.save(merged, path)
    again = file.load(path)
    assert again.results == list(merged.results)
    assert again.provenance == merged.provenance
    content = json.loads(path.read_text())
    assert len({result["series"] for result in content["results"]}) == len(content["series"])
    assert len({result.series for result in again.results}) == 1


def test_everything_in_a_result_is_kept(tmp_path):
    settings = {**SETTINGS, "optimization.max_update": 500}
    series = Series(SETTINGS, start="0" * 64, facts=Facts(layers=3), label="ours")
    results = [
        replace(RESULT, series=series.resumed(40, {**settings, "model.dropout": 0.5})),
        replace(RESULT, reading=Reading("best", {"data.valid": {"valid": "b" * 64}})),
        replace(RESULT, reading=Reading(5, overrides={"attention_window": 64}, variant="limited")),
        replace(RESULT, case=Case("probe", "c" * 64, "", 64, 64, depth=0.5)),
        replace(RESULT, values=ProbeValues(0.5, 9, 100, 0.1)),
        replace(RESULT, values=None, status="diverged", seed=None),
        replace(RESULT, values=TextValues(3.0, position_bits=(1.0,), position_errors=(None,))),
    ]
    again = read_again(results, tmp_path)
    assert again == results
    for before, after in zip(results, again, strict=True):
        assert after.series.settings == before.series.settings
        assert after.series.facts == before.series.facts
        assert after.series.label == before.series.label
        assert after.reading.variant == before.reading.variant
        assert after.case.corpus == before.case.corpus


def test_file_stores_settings_and_no_hash_of_them(tmp_path):
    read_again([RESULT, replace(RESULT, seed=2)], tmp_path)
    text = (tmp_path / "results.json").read_text()
    assert RESULT.series.id not in text
    assert json.loads(text)["series"] == {"s1": {"settings": SETTINGS}}


def test_merged_files_share_series_by_what_they_are(tmp_path):
    """Keys hold in one file only, and settings that do not count make no other series."""
    elsewhere = replace(RESULT, series=Series({**SETTINGS, "common.log_interval": 5}), seed=2)
    other = replace(RESULT, series=Series({**SETTINGS, "model.dropout": 0.3}))
    files = []
    for number, results in enumerate([[RESULT, other], [other, elsewhere], [RESULT]]):
        path = tmp_path / f"{number}.json"
        file.save(Results(results), path)
        files.append(file.load(path))
    merged = file.merge(files).results
    assert list(merged) == [RESULT, other, elsewhere]
    assert len({result.series for result in merged}) == 2


def test_merge_keeps_details_and_rejects_contradictions():
    detailed = replace(RESULT, values=TextValues(3.0, document_bits=(5.0,), document_tokens=(2,)))
    merged = file.merge([Results([RESULT]), Results([detailed]), Results([RESULT])])
    assert list(merged.results) == [detailed]
    contradicting = replace(RESULT, values=TextValues(3.5))
    with pytest.raises(UserInputError, match="differ"):
        file.merge([Results([RESULT]), Results([contradicting])])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"results": [{"series": "s9"}]}, "reading is missing"),
        ({"series": {"s1": {"settings": {}}}}, "must have a position method"),
        ({"series": {"s1": {"settings": SETTINGS, "id": "0"}}}, "id"),
        ({"results": None}, "results"),
        ({"more": 1}, "more"),
        ({"version": 3}, "not a results file of version 4"),
        ({"schema": "someone/else"}, "not a results file"),
        ({"provenance": {"seconds": -1}}, "command is missing"),
    ],
)
def test_wrong_content_is_named(tmp_path, change, named):
    file.save(Results([RESULT]), tmp_path / "results.json")
    content = json.loads((tmp_path / "results.json").read_text())
    (tmp_path / "results.json").write_text(json.dumps({**content, **change}))
    with pytest.raises(UserInputError, match=named):
        file.load(tmp_path / "results.json")


def test_unknown_series_and_text_as_a_number_are_rejected(tmp_path):
    path = tmp_path / "results.json"
    file.save(Results([RESULT]), path)
    text = path.read_text()
    path.write_text(text.replace('"series": "s1"', '"series": "s2"'))
    with pytest.raises(UserInputError, match="no series 's2'"):
        file.load(path)
    path.write_text(text.replace('"loss_bits": 3.0', '"loss_bits": "3.0"'))
    with pytest.raises(UserInputError, match="loss_bits"):
        file.load(path)


def test_benchmarks_are_read_back_and_wrong_keys_named(tmp_path):
    path = tmp_path / "train-cpu.json"
    record = Benchmark(name="train", case={"length": 512}, measured={"seconds": [0.5, 0.25]})
    provenance = Provenance(**PROVENANCE)
    written = BenchmarkFile(corpus="random tokens", provenance=provenance, records=[record])
    save_benchmarks(written, path)
    assert file.load(path) == Results([], provenance, [record])
    path.write_text(path.read_text().replace('"length": 512', '"length": [512]'))
    with pytest.raises(UserInputError, match=r"train-cpu\.json: .*records\[0\]\.case\.length"):
        file.load(path)


def test_json_text_writes_number_lists_on_one_line():
    content = {"numbers": [1, -2.5, 1e-7, 3e22], "text": "[\n  1,\n  2\n]", "mixed": [1, None]}
    text = json_text(content)
    assert json.loads(text) == content
    assert text.splitlines()[1] == '  "numbers": [1, -2.5, 1e-07, 3e+22],'


def test_derived_values():
    values = TextValues(4.0, tokens=1000, words=500, bytes=8000)
    assert values.perplexity == 16.0
    assert values.word_perplexity == 256.0
    assert values.bits_per_byte == 0.5
    assert TextValues(4.0, tokens=1000, words=3).word_perplexity is None
    assert TextValues(4.0, tokens=1000).bits_per_byte is None
