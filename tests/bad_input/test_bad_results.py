"""Corrupted results files and configurations: one sentence, exit code 2, and no traceback."""

from __future__ import annotations

import json

import pytest
from bad_input_cases import without
from results_documents import document, evaluation_cell

from alibi_fairseq import cli


def results_with(**values) -> str:
    """Return a results file whose record has other values."""
    return json.dumps(document(evaluation_cell() | values))


#: Contents of results files.
RESULTS = {
    "a missing key": json.dumps(without(document(evaluation_cell()), "corpus")),
    "a missing key of a cell": json.dumps(document(without(evaluation_cell(), "tokens"))),
    "a huge number": results_with(tokens=10**400),
    "too many digits": results_with(tokens=5).replace(": 5", ": " + "9" * 5000),
    "deep nesting": '{"a":' * 3000,
    "half a surrogate pair": results_with(model="\ud800"),
    "NaN": results_with(seconds=float("nan")),
    "overrides that are not JSON": results_with(model_overrides="{'a': 1}"),
    "text that is not an object": json.dumps(document(evaluation_cell(), text=5)),
    "a speed that is text": results_with(evaluation_tokens_per_second="fast"),
    "a speed of zero": results_with(evaluation_tokens_per_second=0),
    "a number of tokens that is text": results_with(trained_tokens="many"),
    "not JSON": "hello",
    "latin-1": "n\u00e4".encode("latin-1"),
    "another document": "[]",
}


@pytest.mark.parametrize("name", RESULTS)
def test_corrupted_results_are_rejected(tmp_path, refuse, name):
    content = RESULTS[name]
    path = tmp_path / "results.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    assert str(path) in refuse("report", path, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


MARKUP = "<script>x</script> | **b** ![i](http://e) `c` $x^{$ " + "long" * 100


def test_results_text_is_escaped(tmp_path, arguments_of_pytest_stay):
    cells = [evaluation_cell(16.0, length=length, model=MARKUP) for length in (64, 128)]
    (tmp_path / "results.json").write_text(json.dumps(document(*cells, corpus=MARKUP)))
    out = tmp_path / "out"
    assert cli.main(["report", str(tmp_path / "results.json"), "--out", str(out)]) == 0
    pages = list(out.rglob("*.md"))
    assert pages
    for page in pages:
        text = page.read_text()
        assert "<script" not in text
        assert "&lt;script&gt;" in text
        assert "**b**" not in text
        assert "![i](" not in text
        assert " | **" not in text
        assert len(page.name) < 200
    assert list(out.rglob("*.png"))


@pytest.mark.parametrize(
    "text",
    ["{", "a: [", "\tx", "2026-99-99", "!!python/object/apply:os.system [x]", "[" * 3000, "?"],
)
def test_invalid_yaml_is_rejected(tmp_path, refuse, text):
    path = tmp_path / "comparison.yaml"
    path.write_text(text)
    assert "comparison.yaml" in refuse("compare", path, "--out", tmp_path / "out")
