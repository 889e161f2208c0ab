import copy
import json

import pytest
from results_documents import PROVENANCE, document, evaluation_cell

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.files import json_text
from alibi_fairseq.results import identity, merging, results_file, schema
from alibi_fairseq.results.identity import KEYS, Role
from alibi_fairseq.results.measurements import Measurement


def test_saved_document_is_read_back(tmp_path):
    path = tmp_path / "out" / "results.json"
    saved = document(evaluation_cell(), evaluation_cell(20.0, length=256, mean_context=127.5))
    results_file.save_results_file(saved, path)
    assert results_file.load_results_file(path) == saved
    assert [p.name for p in path.parent.iterdir()] == ["results.json"]


def test_each_kind_has_valid_record():
    run = {"position_method": "alibi", "train_length": 64}
    loss = run | {"subset": "valid", "loss_bits": 4.0}
    cells = {
        "evaluation": evaluation_cell(),
        "training": loss | {"updates": 100},
        "probe": run
        | {"length": 128, "depth": 0.5, "gap": 60, "trials": 100, "accuracy": 0.5, "chance": 0.03},
        "benchmark": {"name": "train", "baseline": None, "ratio": None, "share_skipped": 0.25},
    }
    assert set(cells) == set(schema.KINDS)
    for kind, cell in cells.items():
        results_file.new_results_file(kind, "demo", PROVENANCE, [cell])
        for key in cell.keys() - {"share_skipped"}:
            without = {k: v for k, v in cell.items() if k != key}
            with pytest.raises(UserInputError, match=rf"cells\[0\]\.{key} is missing"):
                results_file.new_results_file(kind, "demo", PROVENANCE, [without])


def changed(path: str, value) -> dict:
    """Return a valid results file with one value replaced, for example ``cells.0.tokens``."""
    result = copy.deepcopy(document(evaluation_cell(), evaluation_cell(length=256)))
    keys = [int(key) if key.isdigit() else key for key in path.split(".")]
    parent = result
    for key in keys[:-1]:
        parent = parent[key]
    parent[keys[-1]] = value
    return result


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("schema", "someone/else", "schema"),
        ("version", 2, "version is 2"),
        ("kind", "evalation", "kind"),
        ("corpus", "", "corpus"),
        ("provenance", None, "provenance"),
        ("provenance.seconds", -1, r"provenance\.seconds"),
        ("provenance.date", "yesterday", r"provenance\.date"),
        ("cells.0.tokens", 2**63, r"cells\[0\]\.tokens"),
        ("cells.0.model_overrides", "[1]", r"cells\[0\]\.model_overrides"),
        ("cells.0.shard", "1/3", r"cells\[0\]\.shard"),
        ("cells.1.tokens", 10.5, r"cells\[1\]\.tokens"),
        ("cells.0.loss_bits", float("nan"), r"cells\[0\]\.loss_bits"),
        ("cells.0.perplexity", float("inf"), r"cells\[0\]\.perplexity"),
        ("cells.0.position_method", None, r"cells\[0\]\.position_method"),
        ("cells.0.own_measure", ["a"], r"cells\[0\]\.own_measure"),
        ("cells.0.stride", 129, r"cells\[0\].*stride"),
        ("cells.0.loss_bits", 2.77, "in bits"),  # the natural logarithm of 16
        ("cells.1", evaluation_cell(32.0), r"cells\[1\] measures the same thing as cells\[0\]"),
    ],
)
def test_error_names_wrong_key(path, value, named):
    with pytest.raises(UserInputError, match=named) as caught:
        schema.validate_results(changed(path, value), "results.json")
    message = str(caught.value)
    assert message.startswith("results.json: ")
    assert "\n" not in message
    assert message[-1] == "."


def cell_with_all_losses(decimals: int | None = None) -> dict:
    """Return a record of 1,000 tokens in three documents, with all losses rounded equally."""
    document_bits = [1234.56789, 300.05123, 2765.43219]
    loss_bits = sum(document_bits) / 1000
    losses = {
        "loss_bits": loss_bits,
        "perplexity": 2**loss_bits,
        "word_perplexity": 2 ** (loss_bits * 1000 / 600),
        "bits_per_byte": loss_bits * 1000 / 3000,
    }
    if decimals is not None:
        losses = {key: round(loss, decimals) for key, loss in losses.items()}
        document_bits = [round(bits, decimals) for bits in document_bits]
    documents = {"document_tokens": [500, 100, 400], "document_bits": document_bits}
    positions = {
        "position_ends": [1, 2, 16],
        "position_tokens": [100, 400, 500],
        "position_bits": [document_bits[1], document_bits[2], document_bits[0]],
    }
    sizes = {"words": 600, "bytes": 3000}
    return evaluation_cell() | losses | documents | positions | sizes


@pytest.mark.parametrize("decimals", [None, 6, 4, 2, 1])
def test_rounded_measures_of_a_loss_agree(decimals):
    schema.validate_results(document(cell_with_all_losses(decimals)))


@pytest.mark.parametrize("decimals", [None, 4])
@pytest.mark.parametrize(
    ("key", "wrong", "rule"),
    [
        ("perplexity", 16.1, r"2\^loss_bits, not 16\.1"),
        ("word_perplexity", 101.7, r"2\^\(loss_bits × tokens / words\), not 101\.7"),
        ("bits_per_byte", 1.4347, r"loss_bits × tokens / bytes, not 1\.4347"),
        ("document_bits", [1234.5679, 300.0512, 2766.4322], r"add up to loss_bits × tokens"),
        ("document_bits", [1234.5679, 3065.4322], "same length"),
        ("document_tokens", [500, 100, 401], "add up to tokens, not to 1001"),
        ("position_bits", [300.0512, 2766.4322, 1234.5679], r"position_bits must add up"),
        ("position_bits", [3065.4322, 1234.5679], "same length"),
        ("position_tokens", [100, 400, 499], "position_tokens must add up to tokens, not to 999"),
        ("position_ends", [1, 16], "same length"),
        ("position_ends", [1, 2, 2], "position_ends must increase"),
    ],
)
def test_contradictory_measures_are_rejected(decimals, key, wrong, rule):
    contradictory = document(evaluation_cell(length=64), cell_with_all_losses(decimals))
    contradictory["cells"][1][key] = wrong
    with pytest.raises(UserInputError, match=rule) as caught:
        schema.validate_results(contradictory, "results.json")
    message = str(caught.value)
    assert message.startswith("results.json: cells[1] contradicts itself: ")
    assert "\n" not in message


@pytest.mark.parametrize("key", ["position_ends", "position_tokens", "position_bits"])
def test_losses_by_position_need_all_keys(key):
    incomplete = cell_with_all_losses()
    del incomplete[key]
    with pytest.raises(UserInputError, match="need one another"):
        schema.validate_results(document(incomplete))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (json.dumps(changed("version", float("nan"))), "version is nan"),
        ("{", "not a JSON file"),
        (None, "cannot be read"),
    ],
)
def test_unreadable_files_are_rejected(tmp_path, content, expected):
    path = tmp_path / "results.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserInputError, match=expected):
        results_file.load_results_file(path)


def test_benchmark_identity_excludes_measurements():
    cell = {"name": "train", "baseline": None, "ratio": None, "length": 512, "step_ms": 10.0}
    for case in ({"length": 1024}, {"attention_dropout": 0.1}):
        schema.validate_results(document(cell, cell | case, kind="benchmark"))
    with pytest.raises(UserInputError, match="measures the same thing"):
        schema.validate_results(document(cell, cell | {"step_ms": 11.0}, kind="benchmark"))


def test_merge_keeps_each_record_once_and_all_parts():
    first = document(evaluation_cell(), seconds=1.0, command="first", date="2026-01-01T00:00:00Z")
    second = document(evaluation_cell(), evaluation_cell(20.0, length=256), seconds=2.5, threads=1)
    merged = merging.merge_results_files([first, second])
    assert [cell["length"] for cell in merged["cells"]] == [128, 256]
    provenance = merged["provenance"]
    assert provenance["seconds"] == 3.5
    assert provenance["command"].split("\n") == ["first", PROVENANCE["command"]]
    assert provenance["date"] == PROVENANCE["date"]
    assert provenance["threads"] is None
    assert provenance["seed"] == 1
    assert provenance["parts"] == [first["provenance"], second["provenance"]]
    again = merging.merge_results_files([merged, document(evaluation_cell(9.0, length=64))])
    assert len(again["provenance"]["parts"]) == 3
    assert again["provenance"]["seconds"] == 16.0


def test_merge_counts_equal_parts_once():
    """Two steps of a run can write to one file."""
    first = document(evaluation_cell(), seconds=1.0, date="2026-01-01T00:00:00Z")
    second = document(evaluation_cell(20.0, length=256), seconds=2.5)
    shared = merging.merge_results_files([first, second])
    third = document(evaluation_cell(9.0, length=64), seconds=4.0, date="2026-02-01T00:00:00Z")
    provenance = merging.merge_results_files([shared, shared, third])["provenance"]
    assert [part["seconds"] for part in provenance["parts"]] == [1.0, 2.5, 4.0]
    assert provenance["seconds"] == 7.5


def test_checkpoint_of_two_paths_is_one_run():
    before = evaluation_cell(checkpoint="runs/1/last.pt", checkpoint_sha256="d" * 64)
    after = before | {"checkpoint": "/moved/1/last.pt", "tokens_per_second": 5.0}
    schema.validate_results(document(before, after))
    merged = merging.merge_results_files([document(before), document(after)])
    assert merged["cells"] == [before]
    other_loss = evaluation_cell(17.0, checkpoint="/moved/1/last.pt", checkpoint_sha256="d" * 64)
    with pytest.raises(UserInputError, match="measures the same thing"):
        schema.validate_results(document(before, other_loss))
    with pytest.raises(UserInputError, match="differ for the same measurement"):
        merging.merge_results_files([document(before), document(other_loss)])


def test_merge_keeps_seed_of_each_file():
    documents = [document(evaluation_cell(16.0 + seed), seed=seed) for seed in (1, 2)]
    merged = merging.merge_results_files(documents)
    assert merged["provenance"]["seed"] is None
    assert [cell["seed"] for cell in merged["cells"]] == [1, 2]


def test_measurement_has_every_identifying_key():
    point = Measurement("alibi", 64, 128, 128, "valid")
    keys = {key for role in Role for key in KEYS[role]}
    assert keys - {"depth"} <= vars(point).keys()
    assert keys <= schema.ResultRecord.model_fields.keys()


def test_identity_ignores_outcomes_and_unused_boundaries():
    cell = evaluation_cell(seed=1)
    assert identity.identity(cell) == identity.identity(cell | {"perplexity": 3.0, "seconds": 2.0})
    assert identity.identity(cell) == identity.identity(cell | {"documents": "title"})
    cut = cell | {"score_from": 8}
    assert identity.identity(cut) != identity.identity(cut | {"documents": "title"})
    assert identity.identity(cell, Role.MODEL) == identity.identity(
        cell | {"seed": 2, "checkpoint": "b.pt", "length": 64}, Role.MODEL
    )


@pytest.mark.parametrize(
    ("contradictory", "expected"),
    [
        (document(evaluation_cell(17.0)), "differ for the same measurement"),
        (document(evaluation_cell(), corpus="other"), "different corpus"),
        (document(evaluation_cell(), data_sha256="c" * 64), "different data_sha256"),
        (document(evaluation_cell(), dictionary_sha256="c" * 64), "different dictionary_sha256"),
        (document(kind="training"), "different kind"),
    ],
)
def test_merge_rejects_contradictions(contradictory, expected):
    with pytest.raises(UserInputError, match=expected):
        merging.merge_results_files([document(evaluation_cell()), contradictory])


def test_json_text_writes_number_lists_on_one_line():
    content = {"numbers": [1, -2.5, 1e-7, 3e22], "text": "[\n  1,\n  2\n]", "mixed": [1, None]}
    text = json_text(content)
    assert json.loads(text) == content
    assert text.splitlines()[1] == '  "numbers": [1, -2.5, 1e-07, 3e+22],'
