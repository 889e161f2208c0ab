"""Corrupted results files and configurations: one sentence, exit code 2, and no traceback."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from results_documents import document, evaluation_record

from alibi_fairseq import cli
from alibi_fairseq.results.file import save


def results_text() -> str:
    """Return the text of a valid results file."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "results.json")
        save(document(evaluation_record(tokens=5, architecture="a model")), path)
        return path.read_text()


TEXT = results_text()
#: Contents of results files.
RESULTS = {
    "a missing key": TEXT.replace('"split": "valid",', "", 1),
    "an unknown key": TEXT.replace('"tokens": 5', '"tokens": 5, "words_per_minute": 5'),
    "a huge number": TEXT.replace('"tokens": 5', '"tokens": ' + str(10**400)),
    "too many digits": TEXT.replace('"tokens": 5', '"tokens": ' + "9" * 5000),
    "deep nesting": '{"a":' * 3000,
    "half a surrogate pair": TEXT.replace("a model", "\\ud800"),
    "NaN": TEXT.replace('"tokens": 5', '"tokens": 5, "seconds": NaN'),
    "an earlier version": TEXT.replace('"version": 4', '"version": 2'),
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
    records = [evaluation_record(length=length, architecture=MARKUP) for length in (64, 128)]
    save(document(*records, corpus=MARKUP), tmp_path / "results.json")
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
