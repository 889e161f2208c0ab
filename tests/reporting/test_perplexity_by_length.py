"""Tables of perplexity by evaluation length."""

from dataclasses import replace

import pytest
from results_documents import Record, cells_of, changed, evaluation_record, results_of

from alibi_fairseq.evaluation.windows import plan_windows
from alibi_fairseq.positions import MethodSpec
from alibi_fairseq.positions.spec import LayerMethod
from alibi_fairseq.reporting import markdown, notes, perplexity_by_length
from alibi_fairseq.reporting.differing_conditions import differing_conditions, row_keys
from alibi_fairseq.reporting.figures_by_length import has_several_tokenizers, length_line
from alibi_fairseq.reporting.rows import build_rows as models_of
from alibi_fairseq.results.result import Result
from alibi_fairseq.results.values import TextSummary


def length_table(*records):
    return perplexity_by_length.length_table(results_of(*records))


def rows_of(*records):
    """Return the rows of the tables of perplexity and bits per byte."""
    _, _, tables = length_table(*records).partition("Perplexity on ")
    return cells_of(tables)[1:]


def names_of(*records):
    """Return the names of the rows of the table of perplexity."""
    return [row[0] for row in rows_of(*records)]


def conditions_of(*records):
    """Return the headers of the table of conditions, and its rows by the name of the model."""
    above, _, _ = length_table(*records).partition("Perplexity on ")
    headers, *rows = cells_of(above) or [[""]]
    return headers[1:], {row[0]: row[1:] for row in rows}


def test_numbers_have_the_papers_format():
    perplexities = [markdown.perplexity(value) for value in (18.3951, 999.994, 1000.4, 2.5e7)]
    assert perplexities == ["18.40", "999.99", "1000", "2.50e+07"]
    differences = [markdown.difference(value) for value in (0.034, -1.2, 12345.0)]
    assert differences == ["+0.03", "-1.20", "+1.2e+04"]
    speeds = [markdown.thousands(value) for value in (28300, 999.6, 3.2)]
    assert speeds == ["28.3k", "1000", "3"]


def test_length_table_has_a_row_per_model():
    shown = length_table(
        evaluation_record(70.0, method="sinusoidal", length=64),
        evaluation_record(60.0, length=64),
        evaluation_record(59.0, length=256),
        evaluation_record(50.0, train_length=128, length=256),
    )
    assert shown.startswith(
        "All models: demo; fp32; learning rate 0.25; a single seed.\n\n"
        "Perplexity on valid, non-overlapping:\n"
    )
    assert cells_of(shown) == [
        ["trained ↓ evaluated at →", "64", "256"],
        ["ALiBi, L=64", "60.00", "59.00"],
        ["ALiBi, L=128", "–", "50.00"],
        ["Sinusoidal, L=64", "70.00", "missing"],
    ]


#: Results on a text of 1,548 tokens.
SHORT_TEXT = [
    evaluation_record(60.0, length=1024, tokens=1548, longest_window=1024),
    evaluation_record(59.0, length=2048, tokens=1548, longest_window=1548),
    evaluation_record(59.0, length=4096, tokens=1548, longest_window=1548),
]


def test_tables_mark_lengths_past_the_end():
    shown = length_table(*SHORT_TEXT)
    assert cells_of(shown)[1] == ["ALiBi, L=64", "60.00", "59.00 †", "59.00 †"]
    assert "†: no window is this long" in shown
    assert "has 1,548 tokens" in shown
    assert "†" not in length_table(SHORT_TEXT[0])


def test_tables_of_one_text_have_one_note():
    sizes = {"tokens": 1548, "bytes": 6000, "longest_window": 1548}
    shown = length_table(evaluation_record(59.0, length=2048, **sizes))
    assert shown.count(" †") == 2  # a perplexity, and its bits per byte
    assert shown.count("†: ") == 1
    assert shown.endswith("its value is repeated.\n")


def test_lines_end_where_the_text_ends():
    (line,) = models_of(results_of(*SHORT_TEXT))
    drawn = length_line(line)
    assert drawn.x == [1024, 1548]
    assert drawn.y == pytest.approx([60.0, 59.0])


def test_sliding_windows_near_the_end_are_separate_measurements():
    records = []
    for length, window, perplexity in ((960, 960, 62.0), (976, 960, 61.0), (1000, 976, 60.0)):
        windows = {"length": length, "stride": 64, "longest_window": window}
        records.append(evaluation_record(perplexity, **windows))
    assert "†" not in length_table(*records)
    (line,) = models_of(results_of(*records))
    drawn = length_line(line)
    assert drawn.x == [960, 976, 1000]
    assert drawn.y == pytest.approx([62.0, 61.0, 60.0])


@pytest.mark.parametrize(
    ("tokens", "length", "stride", "longest", "marked"),
    [(7687, 8192, 2048, 7687, True), (12, 10, 7, 8, False)],
)
def test_tables_mark_sliding_windows_with_the_whole_text(tokens, length, stride, longest, marked):
    """Those of other lengths have the same inputs only if one window has the whole text."""
    windows = plan_windows(tokens, length, stride)
    assert max(window.length for window in windows) == longest
    assert (windows == plan_windows(tokens, 2 * length, stride)) == marked
    record = evaluation_record(length=length, stride=stride, tokens=tokens, longest_window=longest)
    assert ("†" in length_table(record)) == marked


def test_tables_do_not_mark_scored_ranges():
    assert "†" not in length_table(evaluation_record(length=2048, tokens=100, score_from=2048))
    sliding = {"length": 2048, "stride": 64, "tokens": 100, "longest_window": 100}
    assert "†" not in length_table(evaluation_record(**sliding, score_from=64))


def test_splits_and_strides_have_separate_tables():
    shown = length_table(
        evaluation_record(1.5, subset="test"),
        evaluation_record(2.5, stride=16),
        evaluation_record(3.5, stride=1),
        evaluation_record(4.5),
    )
    titles = [line for line in shown.splitlines() if line.startswith("Perplexity")]
    assert titles == [
        "Perplexity on valid, non-overlapping:",
        "Perplexity on valid, S=1:",
        "Perplexity on valid, S=16:",
        "Perplexity on test, non-overlapping:",
    ]
    assert [row[1] for row in cells_of(shown)[1::2]] == ["4.50", "3.50", "2.50", "1.50"]


def test_bits_per_byte_are_averaged_where_known():
    known = {"bytes": 2000, "seed": 1}
    records = [evaluation_record(8.0, **known), evaluation_record(12.0, seed=2)]
    records.append(evaluation_record(9.0, method="none"))
    records.append(evaluation_record(9.0, method="t5", bytes=500))  # 1000 tokens
    rows = [row[1] for row in rows_of(*records)]
    assert rows[:3] == ["10.00 ± 2.83", "9.00", "9.00"]
    assert rows[4:] == ["1.5000", f"{records[-1].loss_bits * 2:.4f}", "missing"]


def test_bits_per_byte_by_document_are_shown_separately():
    raw_text = {"bytes": 4000, "data_sha256": "c" * 64, "architecture": "LlamaForCausalLM"}
    whole = {"tokens_sha256": "d" * 64, "loss_bits": 5.0}
    documents = {"documents": "empty-lines", "tokens_sha256": "e" * 64, "loss_bits": 6.0}
    records = [
        evaluation_record(**raw_text, **whole),
        evaluation_record(**raw_text, **documents),
    ]
    tables = length_table(*records).split("\nBits per byte on ")[1:]
    assert [cells_of(table)[1][1] for table in tables] == ["1.2500", "1.5000"]
    titles = [table.partition(":")[0] for table in tables]
    assert titles == [
        "valid, non-overlapping, all scored",
        "valid, non-overlapping, all scored, tokenized by document",
    ]
    assert not has_several_tokenizers(results_of(*records))


@pytest.mark.parametrize(
    ("runs", "variants"),
    [
        (
            [
                {"updates": 100, "checkpoint": "a"},
                {"updates": 900, "checkpoint": "b"},
                {"updates": 900, "checkpoint": "c"},
            ],
            ["100 updates", "900 updates", "900 updates, run 2"],
        ),
        ([{}, {"overrides": {"x": 2}}], ["", "x=2"]),
        (
            [{"checkpoint": "a/last.pt"}, {"checkpoint": "b/last.pt"}, {}],
            ["", "run 2", "run 3"],
        ),
        (
            [
                {"options": None, "checkpoint": "models/a"},
                {"options": None, "checkpoint": "models/b"},
            ],
            ["models/a", "models/b"],
        ),
    ],
)
def test_different_runs_have_separate_rows(runs, variants):
    records = []
    expected = []
    for index, (run, variant) in enumerate(zip(runs, variants, strict=True)):
        records.append(evaluation_record(10.0 + index, **run))
        name = f"ALiBi, L=64 ({variant})" if variant else "ALiBi, L=64"
        expected.append([name, f"{10 + index:.2f}"])
    assert rows_of(*records) == expected


@pytest.mark.parametrize(
    ("runs", "variants"),
    [
        (
            [{"checkpoint": "checkpoint_1000.pt"}, {"checkpoint": "averaged.pt"}],
            ["averaged.pt", "checkpoint_1000.pt"],
        ),
        ([{"seed": 1}, {"seed": 2, "data": None}], ["", "seed 2"]),
        ([{"seed": None}, {"seed": 2}], ["", "unknown seed"]),
    ],
    ids=["unknown seeds", "unknown data", "unknown seed"],
)
def test_runs_at_different_lengths_have_separate_rows(runs, variants):
    results = []
    for length, run in zip((512, 2048), runs, strict=True):
        data = run.pop("data", "a" * 64)
        record = evaluation_record(length=length, **run)
        results += results_of(record, seed=None, data_sha256=data)
    assert [model.variant for model in models_of(results)] == variants


def test_seeds_at_different_lengths_share_a_row():
    records = [evaluation_record(10.0, seed=seed, length=128) for seed in (1, 2)]
    records.append(evaluation_record(9.0, seed=3, length=256))
    assert rows_of(*records) == [["ALiBi, L=64", "10.00 ± 0.00", "9.00"]]


def test_number_of_seeds_is_in_cells_only_if_it_varies():
    alibi = [evaluation_record(10.0, seed=seed) for seed in (1, 2)]
    rotary = [evaluation_record(9.0, method="rotary", seed=seed) for seed in (1, 2, 3)]
    single = evaluation_record(8.0, method="none", seed=1)
    rows = rows_of(*alibi, single)
    assert [row[1] for row in rows] == ["10.00 ± 0.00", "8.00"]
    rows = rows_of(*alibi, *rotary, single)
    cells = ["10.00 ± 0.00 (2 seeds)", "9.00 ± 0.00 (3 seeds)", "8.00"]
    assert [row[1] for row in rows] == cells


def test_rule_of_documents_is_named_only_if_it_varies():
    ranges = {"score_to": 500, "data_sha256": "c" * 64}
    by_lines = evaluation_record(documents="empty-lines", **ranges)
    by_titles = evaluation_record(documents="titles", **ranges)
    assert "valid, non-overlapping, tokens 0 to 500 of each document:" in length_table(by_lines)
    shown = length_table(by_lines, by_titles)
    for rule in ("empty-lines", "titles"):
        assert f"tokens 0 to 500 of each document, documents by {rule}:" in shown


def test_seeds_of_moved_checkpoints_are_averaged():
    records = []
    for folder in ("runs", "/moved/runs"):
        for seed, sha256 in ((1, "d" * 64), (2, "e" * 64)):
            run = {"checkpoint": f"{folder}/{seed}/last.pt", "checkpoint_sha256": sha256}
            records.append(evaluation_record(10.0 * seed, seed=seed, **run))
    records[3] = changed(records[3], length=256, stride=256)
    assert rows_of(*records) == [["ALiBi, L=64", "15.00 ± 7.07", "20.00"]]


def test_checkpoints_of_one_path_are_distinguished_by_hash():
    records = []
    for length, sha256 in ((128, "d" * 64), (256, "e" * 64)):
        run = {"checkpoint": "hf", "checkpoint_sha256": sha256}
        records.append(evaluation_record(length=length, seed=None, options=None, **run))
    names = names_of(*records)
    assert names == [f"ALiBi, L=64 (checkpoint hash {letter * 8})" for letter in "de"]


def test_updates_distinguish_best_checkpoints_of_one_path():
    records = []
    for length, updates in ((128, 900), (256, 1000)):
        run = {"checkpoint": "runs/1/checkpoint_best.pt", "updates": updates}
        records.append(evaluation_record(length=length, **run))
    assert names_of(*records) == ["ALiBi, L=64", "ALiBi, L=64 (run 2)"]


def test_splits_evaluated_one_by_one_share_a_row():
    results = []
    for seed in (1, 2):
        for subset, data in (("valid", "a" * 64), ("test", "b" * 64)):
            record = evaluation_record(10.0, subset=subset)
            results += results_of(record, seed=seed, data_sha256=data)
    (model,) = models_of(results)
    assert [point.seeds for point in model.points] == [2, 2]


def seeds(first: dict, second: dict):
    """Return records of two seeds, with further fields."""
    return [
        evaluation_record(10.0, **{"seed": 1, **first}),
        evaluation_record(12.0, **{"seed": 2, **second}),
    ]


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        ({"options": {"lr": "0.1"}}, {"options": {"lr": "0.2"}}, ["(lr 0.1)", "(lr 0.2)"]),
        (
            {"options": {"dropout": "0", "fp16": ""}},
            {"options": {"dropout": "0.1"}},
            ["(dropout 0, fp16)", "(dropout 0.1, no fp16)"],
        ),
        ({"options": {"dropout": "0"}}, {}, ["(dropout 0)", "(dropout 0.1)"]),
        (
            {"options": {"dropout": "0"}},
            {"options": None},
            ["ALiBi, L=64", "(unknown training options)"],
        ),
        (
            {"options": {"data": "a", "dropout": "0"}},
            {"options": {"data": "b", "dropout": "0"}},
            ["(trained on a)", "(trained on b)"],
        ),
        (
            {"options": {"data": "x/a/data-bin"}},
            {"options": {"data": "y/a/data-bin"}},
            ["(trained on x/a/data-bin)", "(trained on y/a/data-bin)"],
        ),
        ({"seed": None}, {}, ["ALiBi, L=64", "(unknown seed)"]),
        ({"updates": 100}, {"updates": 200}, ["100 updates", "200 updates"]),
        ({"precision": "bf16"}, {"precision": "fp32"}, ["bf16", "fp32"]),
        (
            {"architecture": "alibi_lm"},
            {"architecture": "alibi_lm_tiny"},
            ["(alibi_lm)", "(alibi_lm_tiny)"],
        ),
        ({"plugin_sha256": "c" * 64}, {"plugin_sha256": "d" * 64}, ["plugin cc", "plugin dd"]),
        (
            {"options": {"lr": "0.1", "dropout": "0", "clip_norm": "1"}},
            {"options": {"lr": "0.2", "dropout": "0.2", "clip_norm": "2"}},
            ["(A)", "(B)"],
        ),
    ],
)
def test_different_training_has_separate_rows(first, second, names):
    measured = results_of(*seeds(first, second), seed=None)
    _, _, table = perplexity_by_length.length_table(measured).partition("Perplexity on ")
    rows = cells_of(table)[1:]
    assert len(rows) == 2
    assert {row[1] for row in rows} == {"10.00", "12.00"}
    for name in names:
        assert any(name in row[0] for row in rows)


def test_letters_lead_to_the_table_of_conditions():
    many = {"lr": "0.1", "dropout": "0", "clip_norm": "1"}
    records = [
        evaluation_record(10.0, options=many),
        evaluation_record(12.0, options={**many, "lr": "0.2", "dropout": "0.2"}),
        evaluation_record(12.0, options={**many, "clip_norm": "2"}),
        evaluation_record(14.0, method="none", options=many),
    ]
    headers, rows = conditions_of(*records)
    assert headers == ["lr", "dropout", "clip-norm"]
    assert rows == {
        "ALiBi, L=64 (A)": ["0.1", "0", "1"],
        "ALiBi, L=64 (B)": ["0.2", "0.2", "1"],
        "ALiBi, L=64 (C)": ["0.1", "0", "2"],
        "No positions, L=64": ["0.1", "0", "1"],
    }
    assert names_of(*records) == list(rows)


def test_conditions_that_all_labels_state_have_no_table():
    records = seeds({"options": {"lr": "0.1"}}, {"options": {"lr": "0.2"}})
    assert conditions_of(*records) == ([], {})


def test_label_of_user_replaces_method_and_length():
    named = []
    for result in results_of(*seeds({"options": {"lr": "0.1"}}, {"options": {"lr": "0.2"}})):
        series = replace(result.series, label=f"Run {result.seed}")
        named.append(replace(result, series=series))
    assert [model.label for model in models_of(named)] == ["Run 1", "Run 2"]


def test_unknown_training_text_does_not_hide_the_learning_rate():
    """Seed 1 was evaluated on a copy of the data that lacks its manifest."""
    text = TextSummary(tokenizer=None, vocabulary=None, train_tokens=5000)
    assert rows_of(
        evaluation_record(10.0, seed=1, options={"lr": "0.001"}),
        evaluation_record(11.0, seed=2, options={"lr": "0.001"}, text=text),
        evaluation_record(90.0, seed=3, options={"lr": "0.002"}, text=text),
    ) == [
        ["ALiBi, L=64 (lr 0.001)", "10.50 ± 0.71"],
        ["ALiBi, L=64 (lr 0.002)", "90.00"],
    ]


def test_models_that_share_a_name_are_not_averaged():
    """No name states the task ``language_modeling``, which older results do not record."""
    task = {"options": {"task": "language_modeling"}}
    shown = length_table(*seeds({"options": {}}, task))
    assert "a single seed" in shown


def test_seeds_with_equal_options_are_averaged():
    rows = rows_of(*seeds({"options": {"lr": "0.1"}}, {"options": {"lr": "0.1"}}))
    assert rows == [["ALiBi, L=64", "11.00 ± 1.41"]]


def checkpoints_of_seeds(name: str, *updates: int) -> list[Record]:
    return [
        evaluation_record(
            10.0 + seed, seed=seed, updates=count, checkpoint=f"runs/{seed}/{name}.pt"
        )
        for seed, count in enumerate(updates)
    ]


def test_best_checkpoints_of_seeds_are_averaged():
    best = checkpoints_of_seeds("checkpoint_best", 900, 1000)
    assert rows_of(*best) == [["ALiBi, L=64", "10.50 ± 0.71"]]
    (model,) = models_of(results_of(*best))
    assert model.key.reading.at == "best"
    last = checkpoints_of_seeds("checkpoint_last", 1000, 1000)
    assert rows_of(*best, *last) == [
        ["ALiBi, L=64 (1,000 updates)", "10.50 ± 0.71"],
        ["ALiBi, L=64 (best checkpoint)", "10.50 ± 0.71"],
    ]


def test_best_checkpoints_of_two_models_have_separate_rows():
    records = checkpoints_of_seeds("checkpoint_best", 900, 1000, 800, 700)
    records[2:] = [changed(record, options={"lr": "0.5"}) for record in records[2:]]
    rows = rows_of(*records)
    assert sorted(row[1] for row in rows) == ["10.50 ± 0.71", "12.50 ± 0.71"]


def test_checkpoints_with_different_updates_are_not_averaged():
    shown = length_table(*checkpoints_of_seeds("checkpoint_last", 900, 1000))
    assert "a single seed" in shown


def test_seeds_on_unknown_data_are_not_averaged():
    measured = results_of(*seeds({}, {}), data_sha256=None)
    rows = cells_of(perplexity_by_length.length_table(measured))[1:]
    assert rows == [["ALiBi, L=64 (seed 1)", "10.00"], ["ALiBi, L=64 (seed 2)", "12.00"]]


def test_score_ranges_are_different_texts():
    first = {"score_to": 500}
    last = {"score_from": 500}
    shown = length_table(*seeds(first, last))
    assert "a single seed" in shown
    assert "valid, non-overlapping, tokens 0 to 500:" in shown
    assert "valid, non-overlapping, tokens 500 to the end:" in shown
    (model,) = models_of(results_of(*seeds(first, last)))
    perplexities = [point.perplexity for point in model.points]
    assert sorted(perplexities) == pytest.approx([10.0, 12.0])


def test_documents_that_begin_elsewhere_are_different_texts():
    scored = {"score_from": 8, "documents": "titles"}
    first = scored | {"documents_sha256": "c" * 64}
    second = scored | {"documents_sha256": "d" * 64}
    shown = length_table(*seeds(first, second))
    assert "tokens 8 to the end of each document, documents cccccccc:" in shown
    assert "a single seed" in shown
    # Without a range, all tokens are scored.
    all_scored = length_table(*seeds({"documents_sha256": "c" * 64}, {}))
    assert "2 seeds" in all_scored


def test_unknown_methods_keep_order_and_name():
    methods = ("none", "mine", "alibi", "another", "learned")
    records = []
    for method in methods:
        display_name = "Another" if method == "another" else ""
        layer = LayerMethod(method, display_name=display_name)
        records.append(evaluation_record(method=MethodSpec((layer,))))
    rows = rows_of(*records)
    labels = [row[0].partition(",")[0] for row in rows]
    assert labels == ["ALiBi", "Another", "Learned", "No positions", "mine"]


def test_chance_level_is_marked():
    records = [
        evaluation_record(20.0, length=64, vocabulary=600),
        evaluation_record(450.0, length=128, vocabulary=600),
    ]
    assert rows_of(*records) == [["ALiBi, L=64", "20.00", "450.00 (chance)"]]
    assert length_table(*records).endswith(f"\n{notes.CHANCE_NOTE}\n")
    assert "chance" not in length_table(records[0])


#: Options of a training with ``compare`` of 40 updates of 4,096 tokens.
LONG = {
    "data": "runs/a/texts/data-bin",
    "distributed_world_size": "1",
    "lr": "0.001",
    "max_tokens": "4096",
    "max_update": "40",
    "task": "language_modeling",
    "warmup_updates": "4",
}
SHORT = {**LONG, "max_tokens": "2048", "max_update": "8", "warmup_updates": "1"}


def test_budgets_are_in_the_table_of_conditions():
    records = [
        evaluation_record(370.0, updates=40, options=LONG),
        evaluation_record(1088.0, updates=8, options=SHORT),
        evaluation_record(378.0, method="sinusoidal", updates=40, options=LONG),
        evaluation_record(1102.0, method="root", updates=8, options=SHORT),
    ]
    assert names_of(*records) == [
        "ALiBi, L=64 (40 updates, 4,096 tokens per update)",
        "ALiBi, L=64 (8 updates, 2,048 tokens per update)",
        "Sinusoidal, L=64",
        "root, L=64",
    ]
    headers, rows = conditions_of(*records)
    assert headers == ["updates", "tokens per update"]
    assert rows["Sinusoidal, L=64"] == ["40", "4,096"]
    assert rows["root, L=64"] == ["8", "2,048"]
    conditions = "All models: demo; fp32; trained on texts/data-bin; learning rate 0.001;"
    assert length_table(*records).startswith(conditions)


def resumed_after(*updates: int) -> Result:
    """Return a result of a model that was resumed with other settings after some updates."""
    (result,) = results_of(evaluation_record(options=LONG))
    series = result.series
    for number, update in enumerate(updates, start=1):
        settings = {**series.settings, "model.dropout": number / 5}
        series = series.resumed(update, settings)
    return replace(result, series=replace(series, settings=result.series.settings))


def test_conditions_have_each_resume_with_other_settings():
    results = [resumed_after(10, 30), resumed_after(20, 30), resumed_after()]
    conditions = differing_conditions(row_keys(models_of(results)))
    expected = ["after 10 and 30 updates", "after 20 and 30 updates", "none"]
    assert conditions == {"resumed with other settings": expected}


def test_default_learning_rate_is_that_of_fairseq():
    """Another model's rate is not the one of all."""
    tuned = evaluation_record(method="rotary", options={"lr": "0.5"})
    assert length_table(tuned).startswith("All models: demo; fp32; learning rate 0.5;")
    records = [evaluation_record(), tuned]
    assert length_table(*records).startswith("All models: demo; fp32; a single seed.")
    columns = ["128", "learning rate"]
    (table,) = perplexity_by_length.length_tables(results_of(*records), columns)
    rows = cells_of(markdown.to_markdown([replace(table, different=None)]))
    assert [row[-1] for row in rows] == ["learning rate", "0.25", "0.5"]


def test_schedules_are_shown_that_do_not_follow_from_the_updates():
    """ALiBi and Rotary have another warm-up for the same number of updates."""
    other = {**LONG, "warmup_updates": "9"}
    headers, rows = conditions_of(
        evaluation_record(370.0, updates=40, options=LONG),
        evaluation_record(1088.0, method="none", updates=8, options=SHORT),
        evaluation_record(378.0, method="rotary", updates=40, options=other),
    )
    assert headers == ["updates", "tokens per update", "warmup-updates"]
    assert [row[2] for row in rows.values()] == ["4", "9", "1"]


@pytest.mark.parametrize("mode", ["eos", "complete", "complete_doc"])
def test_tokens_per_update_are_unknown_if_samples_end_with_lines(mode):
    """An update has fewer tokens than --max-tokens, so the option is shown."""
    broken = {**LONG, "sample_break_mode": mode}
    records = [
        evaluation_record(370.0, options=broken),
        evaluation_record(390.0, method="rotary", options={**broken, "max_tokens": "2048"}),
    ]
    assert "tokens per update" not in length_table(*records)
    headers, rows = conditions_of(*records)
    assert headers == ["max-tokens"]
    assert rows == {"Rotary, L=64": ["2048"], "ALiBi, L=64": ["4096"]}


@pytest.mark.parametrize(
    ("first", "second", "header", "cells"),
    [
        (
            {"layers": 3, "width": 128},
            {"layers": 6, "width": 128},
            "size",
            ["3 layers of width 128", "6 layers of width 128"],
        ),
        ({"updates": 40}, {"options": None}, "updates", ["40", "unknown"]),
        (
            {"options": LONG, "updates": 40},
            {"options": LONG, "updates": 20},
            "updates",
            ["40", "20 of 40"],
        ),
        (
            {"options": LONG},
            {"options": {**LONG, "max_tokens": "2048"}},
            "tokens per update",
            ["4,096", "2,048"],
        ),
        ({"precision": "bf16"}, {"precision": "fp32"}, "precision", ["bf16", "fp32"]),
        ({"vocabulary": 1000}, {"vocabulary": 2000}, "dictionary", ["1,000", "2,000"]),
        (
            {"architecture": "alibi_lm_tiny"},
            {"architecture": "alibi_lm_modern_tiny"},
            "architecture",
            ["alibi_lm_tiny", "alibi_lm_modern_tiny"],
        ),
        (
            {"options": LONG},
            {"options": {**LONG, "data": "books/data-bin"}},
            "training data",
            ["texts/data-bin", "books/data-bin"],
        ),
        ({"options": {"ffn": "swiglu"}}, {"options": {}}, "ffn", ["swiglu", "mlp"]),
        ({"options": {"lr": "0.001"}}, {"options": {"lr": "0.002"}}, "lr", ["0.001", "0.002"]),
    ],
)
def test_conditions_of_different_methods_are_in_their_table(first, second, header, cells):
    records = [evaluation_record(**first), evaluation_record(method="sinusoidal", **second)]
    assert names_of(*records) == ["ALiBi, L=64", "Sinusoidal, L=64"]
    headers, rows = conditions_of(*records)
    assert headers == [header]
    assert rows == {"ALiBi, L=64": [cells[0]], "Sinusoidal, L=64": [cells[1]]}


def test_overrides_are_named_in_any_case():
    record = evaluation_record(method="sinusoidal", overrides={"attention_window": 64})
    assert names_of(record) == ["Sinusoidal, L=64 (attention_window=64)"]


def test_best_checkpoints_are_not_named_by_their_updates():
    records = []
    for method, updates in (("alibi", 900), ("none", 700)):
        best = {"updates": updates, "checkpoint": f"{method}/checkpoint_best.pt"}
        records.append(evaluation_record(method=method, **best))
    assert [row[0] for row in rows_of(*records)] == ["ALiBi, L=64", "No positions, L=64"]


@pytest.mark.parametrize(
    ("notation", "options"),
    [
        ("rotary/p_rope=0.75", {"p_rope": "0.75"}),
        ("rotary/rotary_base=1000000", {"rotary_base": "1000000"}),
        ("alibi/alibi_slopes=trainable", {"alibi_slopes": "trainable"}),
        ("alibi/score_scaling=logn", {"score_scaling": "logn"}),
        ("rotary+none/attention_window=64+0", {"attention_window": "64,0"}),
    ],
)
def test_rows_do_not_repeat_options_in_the_name_of_the_method(notation, options):
    spec = MethodSpec.parse(notation)
    names = names_of(
        evaluation_record(options={}),
        evaluation_record(options=options, method=spec),
    )
    assert names == ["ALiBi, L=64", f"{spec.label}, L=64"]
