"""Whatever is wrong with results files or with YAML: one sentence, exit code 2, and no traceback."""

from __future__ import annotations

import json

import pytest
from results_documents import document, evaluation_cell

from alibi_fairseq import cli

GOOD = document(evaluation_cell())


def without(*path):
    """The document without the key at the end of a path."""
    changed = json.loads(json.dumps(GOOD))
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return json.dumps(changed)


def with_cell(**values):
    return json.dumps(document(evaluation_cell() | values))


RESULTS = {
    "a missing key": without("corpus"),
    "a missing key of a cell": without("cells", 0, "tokens"),
    "a huge number": with_cell(tokens=10**400),
    "a number for which Python has no digits": with_cell(tokens=5).replace(
        ": 5", ": " + "9" * 5000
    ),
    "deep nesting": '{"a":' * 3000,
    "half a surrogate pair": with_cell(model="\ud800"),
    "NaN": with_cell(seconds=float("nan")),
    "overrides that are no JSON": with_cell(model_overrides="{'a': 1}"),
    "text that is no object": json.dumps(document(evaluation_cell(), text=5)),
    "no JSON": "hello",
    "latin-1": "n\u00e4".encode("latin-1"),
    "another document": "[]",
}


@pytest.mark.parametrize("name", RESULTS)
def test_damaged_results(tmp_path, refuse, name):
    content = RESULTS[name]
    path = tmp_path / "results.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    for command in (
        ["report", path, "--out", tmp_path / "out"],
        ["merge-shards", path, "--out", tmp_path / "merged.json"],
    ):
        assert str(path) in refuse(*command)
    assert not (tmp_path / "out").exists() and not (tmp_path / "merged.json").exists()


def test_shards_that_are_none(tmp_path, refuse):
    path = tmp_path / "shard.json"
    path.write_text(with_cell(shard="1/1", checkpoint="c.pt"))
    said = refuse("merge-shards", path, "--out", tmp_path / "merged.json")
    assert "shards as `alibi-fairseq eval --shard` writes them (KeyError" in said


NASTY = "<script>x</script> | **b** ![i](http://e) `c` $x^{$ " + "long" * 100


def test_text_of_results_is_no_markup(tmp_path, arguments_of_pytest_stay):
    cells = [evaluation_cell(16.0, length=length, model=NASTY) for length in (64, 128)]
    (tmp_path / "results.json").write_text(json.dumps(document(*cells, corpus=NASTY)))
    out = tmp_path / "out"
    words = ["report", tmp_path / "results.json", "--out", out]
    assert cli.main([str(word) for word in words]) == 0
    for page in out.rglob("*.md"):
        text = page.read_text()
        assert "<script" not in text and "&lt;script&gt;" in text
        assert "**b**" not in text and "![i](" not in text and " | **" not in text
        assert len(page.name) < 200
    assert list(out.rglob("*.png"))


def odd_yaml(tmp_path, text):
    path = tmp_path / "comparison.yaml"
    path.write_text(text)
    return ["compare", path, "--out", tmp_path / "out"]


@pytest.mark.parametrize(
    "text",
    ["{", "a: [", "\tx", "2026-99-99", "!!python/object/apply:os.system [x]", "[" * 3000, "?"],
)
def test_garbage_instead_of_yaml(tmp_path, refuse, text):
    assert "comparison.yaml" in refuse(*odd_yaml(tmp_path, text))


def test_an_output_in_a_place_that_cannot_be(tmp_path, refuse):
    (tmp_path / "results.json").write_text(json.dumps(GOOD))
    (tmp_path / "file").touch()
    for out in (tmp_path / "file" / "below", tmp_path / ("x" * 300)):
        words = ["report", tmp_path / "results.json", "--out", out]
        assert "cannot be used (" in refuse(*words)
