import copy
import json

import pytest
from results_documents import PROVENANCE, document, evaluation_record, make_record

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.files import json_text
from alibi_fairseq.positions.spec import MethodSpec
from alibi_fairseq.results.files import load_results_file, merge_results_files, save_results_file
from alibi_fairseq.results.record import Benchmark, ProbeMeasurement
from alibi_fairseq.results.results_file import BenchmarkFile, Provenance

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
    save_results_file(results, path)
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
        ("records.0.perplexity", 16.0, r"records\[0\]\.perplexity is 16.0: there is no such key"),
    ],
)
def test_error_names_wrong_key(tmp_path, path, value, named):
    file = tmp_path / "results.json"
    save_results_file(document(evaluation_record(), evaluation_record(length=256)), file)
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


def test_derived_values():
    record = evaluation_record(loss_bits=4.0, tokens=1000, words=500, bytes=8000)
    assert record.perplexity == 16.0
    assert record.word_perplexity == 256.0
    assert record.bits_per_byte == 0.5
    assert evaluation_record(loss_bits=4.0, tokens=1000, words=3).word_perplexity is None
    assert evaluation_record().bits_per_byte is None


def merged_provenance(*results) -> Provenance:
    return merge_results_files(results).provenance


def test_merge_keeps_each_record_once_and_all_parts():
    first = document(evaluation_record(), seconds=1.0, command="first", date="2026-01-01T00:00:00Z")
    second = document(
        evaluation_record(), evaluation_record(20.0, length=256), seconds=2.5, threads=1
    )
    merged = merge_results_files([first, second])
    assert [record.length for record in merged.records] == [128, 256]
    provenance = merged.provenance
    assert provenance.seconds == 3.5
    assert provenance.command.split("\n") == ["first", PROVENANCE["command"]]
    assert provenance.date == PROVENANCE["date"]
    assert provenance.threads is None
    assert provenance.seed == 1
    assert provenance.parts == [first.provenance, second.provenance]
    again = merged_provenance(merged, document(evaluation_record(9.0, length=64)))
    assert len(again.parts) == 3
    assert again.seconds == 16.0


def test_merge_counts_equal_parts_once():
    """Two steps of a run can write to one file."""
    first = document(evaluation_record(), seconds=1.0, date="2026-01-01T00:00:00Z")
    second = document(evaluation_record(20.0, length=256), seconds=2.5)
    shared = merge_results_files([first, second])
    third = document(evaluation_record(9.0, length=64), seconds=4.0, date="2026-02-01T00:00:00Z")
    provenance = merged_provenance(shared, shared, third)
    assert [part.seconds for part in provenance.parts] == [1.0, 2.5, 4.0]
    assert provenance.seconds == 7.5


def test_checkpoint_of_two_paths_is_one_run():
    before = evaluation_record(checkpoint="runs/1/last.pt", checkpoint_sha256="d" * 64)
    after = before.with_model(checkpoint="/moved/1/last.pt")
    after.tokens_per_second = 5.0
    merged = merge_results_files([document(before), document(after)])
    assert merged.records == document(before).records
    after.loss_bits = 4.5
    with pytest.raises(UserInputError, match="differ for the same measurement"):
        merge_results_files([document(before), document(after)])


def test_merge_keeps_seed_of_each_record():
    documents = [document(evaluation_record(16.0 + seed), seed=seed) for seed in (1, 2)]
    merged = merge_results_files(documents)
    assert merged.provenance.seed is None
    assert [record.model.seed for record in merged.records] == [1, 2]


def test_key_ignores_outcomes_and_unused_boundaries():
    record = evaluation_record(seed=1)
    assert record.key == evaluation_record(3.0, seed=1, seconds=2.0).key
    assert record.key == evaluation_record(seed=1, documents="titles").key
    cut = evaluation_record(seed=1, score_from=8)
    assert cut.key != record.key
    assert cut.key != evaluation_record(seed=1, score_from=8, documents="titles").key


@pytest.mark.parametrize(
    "change",
    [
        {"method": MethodSpec.plain("none")},
        {"method": MethodSpec.parse("alibi/alibi_scale=4")},
        {"train_length": 32},
        {"architecture": "alibi_lm"},
        {"layers": 3},
        {"updates": 7},
        {"precision": "bf16"},
        {"overrides": {"alibi_scale": "4"}},
        {"memory_length": 4},
        {"options": {"dropout": "0"}},
        {"label": "scaled"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_model_differs_in_each_identifying_field(change):
    model = evaluation_record(options={"lr": "1"}).model
    assert model.key == model.model_copy(update={"seed": 2, "checkpoint": "b.pt"}).key
    assert model.key != model.model_copy(update=change).key


def test_benchmarks_differ_in_their_case_only():
    """A benchmark with two attention dropouts was once rejected as a repetition."""
    case = {"variant": "alibi", "attention_dropout": 0.0}
    record = Benchmark(name="a step", case=case, measured={"seconds": 1.0})
    slower = copy.deepcopy(record)
    slower.measured["seconds"] = 2.0
    assert slower.key == record.key
    other = copy.deepcopy(record)
    other.case["attention_dropout"] = 0.1
    assert other.key != record.key
    origin = Provenance(**PROVENANCE)
    file = BenchmarkFile(corpus="random tokens", provenance=origin, records=[record, other])
    assert merge_results_files([file]).records == [record, other]


def test_json_text_writes_number_lists_on_one_line():
    content = {"numbers": [1, -2.5, 1e-7, 3e22], "text": "[\n  1,\n  2\n]", "mixed": [1, None]}
    text = json_text(content)
    assert json.loads(text) == content
    assert text.splitlines()[1] == '  "numbers": [1, -2.5, 1e-07, 3e+22],'
