import json

import pytest
from results_documents import (
    PROVENANCE,
    document,
    evaluation_record,
    make_record,
)
from version_3_files import save_version_3

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.files import json_text
from alibi_fairseq.results.benchmark import Benchmark
from alibi_fairseq.results.version_3 import ProbeMeasurement, load_results_file

PROBE = make_record(
    ProbeMeasurement,
    method="alibi",
    train_length=64,
    length=128,
    depth=0.5,
    gap=60,
    trials=100,
    accuracy=0.5,
    chance=0.03,
)
BENCHMARK = Benchmark(name="train", case={"length": 512}, measured={"seconds": [0.5, 0.25]})


@pytest.mark.parametrize(
    "results",
    [
        document(evaluation_record(), evaluation_record(20.0, length=256, mean_context=127.5)),
        document(evaluation_record(options={"lr": "0.1"}, overrides={"alibi_scale": "4"})),
        document(PROBE, kind="probe"),
        document(BENCHMARK, kind="benchmark"),
        document(evaluation_record(), parts=[PROVENANCE, PROVENANCE]),
    ],
    ids=["evaluation", "options", "probe", "benchmark", "parts"],
)
def test_saved_file_is_read_back(tmp_path, results):
    path = tmp_path / "out" / "results.json"
    save_version_3(results, path)
    assert load_results_file(path) == results
    assert [p.name for p in path.parent.iterdir()] == ["results.json"]


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("schema", "someone/else", "not a results file"),
        ("version", 2, "not a results file of version 3"),
        ("corpus", "", "corpus"),
        ("provenance", None, "provenance"),
        ("provenance.seconds", -1, r"provenance\.seconds"),
        ("provenance.date", "yesterday", r"provenance\.date"),
        ("records.0.tokens", 2**63, r"records\[0\]\.tokens"),
        ("records.0.model.overrides", "[1]", r"records\[0\]\.model\.overrides"),
        ("records.1.tokens", 10.5, r"records\[1\]\.tokens"),
        ("records.0.loss_bits", float("nan"), "must be a finite number"),
        ("records.0.model.method", None, r"records\[0\]\.model\.method"),
        ("records.0.perplexity", 16.0, r"records\[0\]\.perplexity: there is no such key"),
    ],
)
def test_error_names_wrong_key(tmp_path, path, value, named):
    file = tmp_path / "results.json"
    save_version_3(document(evaluation_record(), evaluation_record(length=256)), file)
    content = json.loads(file.read_text())
    keys = [int(key) if key.isdigit() else key for key in path.split(".")]
    parent = content
    for key in keys[:-1]:
        parent = parent[key]
    parent[keys[-1]] = value
    file.write_text(json.dumps(content))
    with pytest.raises(UserInputError, match=named) as caught:
        load_results_file(file)
    message = str(caught.value)
    assert str(file) in message
    assert "\n" not in message
    assert message[-1] == "."


def test_json_text_writes_number_lists_on_one_line():
    content = {"numbers": [1, -2.5, 1e-7, 3e22], "text": "[\n  1,\n  2\n]", "mixed": [1, None]}
    text = json_text(content)
    assert json.loads(text) == content
    assert text.splitlines()[1] == '  "numbers": [1, -2.5, 1e-07, 3e+22],'
