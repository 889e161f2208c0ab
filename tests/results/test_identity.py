"""The rule of identity: change one thing at a time, and exactly another seed is averaged.

Each change that counts makes exactly the affected work missing.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pytest
from fairseq_runs import hydra_config, training_config

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.reporting.texts import identify_raw_text
from alibi_fairseq.results.case import Case
from alibi_fairseq.results.data_hashes import DataHashes
from alibi_fairseq.results.result import Identity, Result, group_seeds, is_wanted, replaces
from alibi_fairseq.results.series import Reading, Series
from alibi_fairseq.results.settings import canonical, selection
from alibi_fairseq.results.training_settings import collect_settings
from alibi_fairseq.results.values import Cost, TextValues

HASHES = DataHashes(("a" * 64,), ("b" * 64,), "c" * 64, {"valid": "d" * 64})
FLAGS = (
    *("--arch", "alibi_lm_tiny", "--position-method", "t5", "--tokens-per-sample", "128"),
    *("--sample-break-mode", "none", "--max-tokens", "4096", "--update-freq", "8"),
    *("--required-batch-size-multiple", "1", "--optimizer", "adam", "--lr", "0.002"),
    *("--lr-scheduler", "inverse_sqrt", "--warmup-updates", "31", "--max-update", "500"),
    *("--seed", "1", "--save-dir", "runs/one", "--valid-subset", "valid"),
)
CASE = Case("text", "e" * 64, "test", length=256, stride=256)
READING = Reading(at=500)


@cache
def settings_with(*flags: str, processes: int = 1) -> dict:
    """Return the settings of a run with other flags of ``fairseq-train``."""
    cfg = training_config(*FLAGS, *flags)
    return collect_settings(cfg, processes, HASHES, plugin=None)


def changed(**values) -> dict:
    """Return the settings with other values; those that are None are removed."""
    settings = dict(settings_with())
    for name, value in values.items():
        settings[name.replace("__", ".")] = value
    return {name: value for name, value in settings.items() if value is not None}


def hashed(**values) -> dict:
    """Return the settings of a run on other data, or with another plugin."""
    plugin = values.pop("plugin", None)
    cfg = training_config(*FLAGS)
    return collect_settings(cfg, 1, HASHES._replace(**values), plugin)


def result_of(series: Series, seed: int | None = 1, reading=READING, case=CASE, bits=3.0) -> Result:
    checkpoint = f"{seed}".rjust(64, "0")
    return Result(series, reading, seed, case, TextValues(bits), checkpoint_sha256=checkpoint)


def check(first: Result, second: Result, averaged: bool) -> None:
    """Check that two results are averaged or not, and that the rule for what is left agrees."""
    assert [len(group) for group in group_seeds([first, second]).values()] == (
        [2] if averaged else [1, 1]
    )
    # What the first run has is wanted of the second one.
    wanted = replace(second, seed=1).identity
    assert is_wanted(replace(first, seed=1), wanted) == averaged


COUNTS = {
    "learning rate": ("--lr", "0.004"),
    "dropout": ("--dropout", "0.2"),
    "warm-up": ("--warmup-updates", "32"),
    "schedule": ("--lr-scheduler", "fixed"),
    "option of the method": ("--t5-max-distance", "64"),
    "method": ("--position-method", "none"),
    "method of a layer": ("--position-method", "t5,none"),
    "attention window": ("--attention-window", "64"),
    "scaling of scores": ("--score-scaling", "logn"),
    "width": ("--decoder-embed-dim", "64"),
    "architecture": ("--arch", "alibi_lm_modern_tiny"),
    "tokens per update": ("--max-tokens", "2048"),
    "batches per update": ("--update-freq", "4"),
    "training length": ("--tokens-per-sample", "64"),
    "division into samples": ("--sample-break-mode", "eos"),
    "fp16": ("--fp16",),
    "criterion": ("--criterion", "label_smoothed_cross_entropy"),
    "clipping": ("--clip-norm", "1.0"),
    "weight decay": ("--weight-decay", "0.01"),
    "moments of Adam": ("--adam-betas", "(0.9, 0.98)"),
    "optimizer": ("--optimizer", "nag"),
    "fused Adam, which adds eps elsewhere": ("--optimizer", "fused_adam"),
    "average of the weights": ("--store-ema",),
    "task": ("--task", "segment_language_modeling", "--position-method", "transformer_xl"),
    "curriculum": ("--curriculum", "1"),
}
DOES_NOT_COUNT = {
    "folder": ("--save-dir", "runs/two"),
    "user folder": ("--user-dir", "alibi_fairseq"),
    "workers": ("--num-workers", "4"),
    "log": ("--log-format", "json", "--log-interval", "5", "--tensorboard-logdir", "t"),
    "saving": ("--save-interval-updates", "50", "--keep-interval-updates", "1"),
    "validation": ("--validate-interval-updates", "50", "--max-valid-steps", "3"),
    "device": ("--cpu",),
    "backend of attention": ("--attention-backend", "eager"),
    "compilation": ("--compile-layers",),
    "checkpointing of activations": ("--checkpoint-activations",),
    "offloading of activations": ("--offload-activations",),
    "backend of the processes": ("--ddp-backend", "legacy_ddp"),
    "planned updates of a schedule without end": ("--max-update", "1000"),
    "time limit": ("--stop-time-hours", "1"),
    "chunked loss": ("--criterion", "chunked_cross_entropy"),
    "default": ("--clip-norm", "0.0"),
    "seed": ("--seed", "2"),
    "sequences per batch": ("--max-tokens", "8192", "--update-freq", "4"),
}


@pytest.mark.ci
@pytest.mark.parametrize("change", COUNTS)
def test_models_of_other_options_are_not_averaged(change):
    first = Series(settings_with())
    second = Series(settings_with(*COUNTS[change]))
    check(result_of(first), result_of(second, seed=2), averaged=False)


@pytest.mark.ci
@pytest.mark.parametrize("change", DOES_NOT_COUNT)
def test_models_of_options_without_effect_are_averaged(change):
    first = Series(settings_with())
    second = Series(settings_with(*DOES_NOT_COUNT[change]))
    check(result_of(first), result_of(second, seed=2), averaged=True)


POLYNOMIAL = ("--lr-scheduler", "polynomial_decay", "--total-num-update", "500")
COSINE = ("--lr-scheduler", "cosine")
PERIOD = (*COSINE, "--lr-period-updates", "270")
PLATEAU = ("--lr-scheduler", "reduce_lr_on_plateau")
EOS = ("--sample-break-mode", "eos")
SEGMENTS = ("--task", "segment_language_modeling", "--position-method", "transformer_xl")


@pytest.mark.ci
@pytest.mark.parametrize(
    ("first", "second", "averaged"),
    [
        # The decay has an end, whether or not it is that of the training.
        (POLYNOMIAL, (*POLYNOMIAL, "--total-num-update", "3000"), False),
        (POLYNOMIAL, (*POLYNOMIAL, "--max-update", "1000"), True),
        # A cosine without a period ends with the training.
        (COSINE, (*COSINE, "--max-update", "1000"), False),
        (PERIOD, (*PERIOD, "--max-update", "1000"), True),
        (PERIOD, (*COSINE, "--lr-period-updates", "271"), False),
        # The schedule follows the validation losses.
        (PLATEAU, (*PLATEAU, "--validate-interval-updates", "50"), False),
        (PLATEAU, (*PLATEAU, "--log-interval", "5"), True),
        # Batches of sentences have other numbers of tokens.
        (EOS, (*EOS, "--max-tokens", "8192", "--update-freq", "4"), False),
        ((*SEGMENTS, "--mem-len", "128"), (*SEGMENTS, "--mem-len", "64"), False),
        (SEGMENTS, (*SEGMENTS, "--max-tokens", "8192", "--update-freq", "4"), False),
    ],
)
def test_schedules_and_batches(first, second, averaged):
    one = result_of(Series(settings_with(*first)))
    other = result_of(Series(settings_with(*second)), seed=2)
    check(one, other, averaged)


@pytest.mark.ci
@pytest.mark.parametrize("flags", [(), EOS, SEGMENTS])
def test_eight_processes_are_eight_batches_per_update(flags):
    one = Series(settings_with(*flags, "--update-freq", "8", processes=1))
    eight = Series(settings_with(*flags, "--update-freq", "1", processes=8))
    check(result_of(one), result_of(eight, seed=2), averaged=True)
    two = Series(settings_with(*flags, "--update-freq", "1", processes=2))
    check(result_of(one), result_of(two, seed=2), averaged=False)


@pytest.mark.parametrize(
    "change",
    [
        {"train": ("0" * 64,)},
        {"dictionary": "0" * 64},
        {"plugin": "0" * 64},
    ],
    ids=["training text", "dictionary", "plugin"],
)
def test_models_of_other_data_or_code_are_not_averaged(change):
    first = Series(settings_with())
    check(result_of(first), result_of(Series(hashed(**change)), seed=2), averaged=False)


def test_lines_of_the_text_count_only_where_they_end_a_sample():
    assert canonical(settings_with()) == canonical(hashed(train_lines=("0" * 64,)))
    by_sentence = changed(task__sample_break_mode="eos")
    other_lines = {**by_sentence, "data.train_lines": "0" * 64}
    assert canonical(by_sentence) != canonical(other_lines)


def test_path_is_never_the_data_of_a_hash():
    cfg = training_config(*FLAGS)
    by_path = Series(collect_settings(cfg, 1, None, None))
    check(result_of(Series(settings_with())), result_of(by_path, seed=2), averaged=False)


def test_models_of_another_start_are_not_averaged():
    first = Series(settings_with(), start="0" * 64)
    # The same path, but other weights.
    second = Series(settings_with("--finetune-from-model", "base.pt"), start="1" * 64)
    check(result_of(first), result_of(second, seed=2), averaged=False)
    check(result_of(first), result_of(Series(settings_with()), seed=2), averaged=False)


def test_corrected_method_is_not_averaged(monkeypatch):
    from alibi_fairseq.positions import METHODS

    monkeypatch.setattr(METHODS["t5"], "version", 2)
    corrected = Series(collect_settings(training_config(*FLAGS), 1, HASHES, None))
    check(result_of(Series(settings_with())), result_of(corrected, seed=2), averaged=False)


def test_resumed_training_keeps_its_earlier_options():
    last = settings_with("--dropout", "0.5")
    resumed = Series(settings_with()).resumed(38, last)
    check(result_of(Series(last)), result_of(resumed, seed=2), averaged=False)
    assert resumed.history[0].until == 38
    later = Series(settings_with()).resumed(39, last)
    check(result_of(resumed), result_of(later, seed=2), averaged=False)


def test_resuming_elsewhere_and_longer_changes_nothing():
    first = Series(settings_with())
    elsewhere = settings_with("--save-dir", "b", "--max-update", "900", "--cpu")
    resumed = first.resumed(38, elsewhere)
    assert resumed.history == ()
    check(result_of(first), result_of(resumed, seed=2), averaged=True)
    one_process = settings_with("--update-freq", "4", processes=2)
    assert first.resumed(38, one_process) == first


@pytest.mark.parametrize(
    ("values", "same"),
    [
        ({"model__dropout": "0.1"}, True),  # as text, and the default
        ({"model__dropout": "0"}, False),
        ({"optimization__lr": [0.002]}, True),
        ({"optimization__lr": "0.002"}, True),
        ({"optimization__lr": "2e-3"}, True),
        ({"optimization__lr": [0.002, 0.001]}, False),
        ({"lr_scheduler__warmup_updates": "31"}, True),
        ({"optimizer__adam_betas": "(0.9, 0.999)"}, True),
        ({"optimizer__adam_betas": "(0.9,0.98)"}, False),
        ({"optimization__clip_norm": 0}, True),
        ({"common__fp16": False}, True),
        ({"common__fp16": True}, False),
        ({"model__no_such_option": 1}, False),
        ({"optimization__max_update": None}, True),
    ],
)
def test_values_have_one_form(values, same):
    other = Series(changed(**values))
    check(result_of(Series(settings_with())), result_of(other, seed=2), averaged=same)


@pytest.mark.ci
def test_canonical_form_is_idempotent_and_survives_json():
    changes = [*COUNTS.values(), *DOES_NOT_COUNT.values(), POLYNOMIAL, COSINE, PERIOD, PLATEAU]
    for flags in changes:
        settings = settings_with(*flags)
        once = canonical(settings)
        assert canonical(once) == once
        assert canonical(json.loads(json.dumps(settings))) == once


@pytest.mark.ci
def test_yaml_and_command_line_are_the_same_series():
    overrides = [
        *("model=alibi_lm_tiny", "model.position_method=t5", "task=language_modeling"),
        *("task.data=data", "task.tokens_per_sample=128", "task.sample_break_mode=none"),
        *("dataset.max_tokens=4096", "optimization.update_freq=[8]"),
        *("dataset.required_batch_size_multiple=1", "criterion=cross_entropy"),
        *("optimizer=adam", "optimization.lr=[0.002]", "lr_scheduler=inverse_sqrt"),
        *("lr_scheduler.warmup_updates=31", "optimization.max_update=500", "common.seed=1"),
    ]
    from_yaml = Series(collect_settings(hydra_config(*overrides), 1, HASHES, None))
    assert canonical(from_yaml.settings) == canonical(settings_with())
    check(result_of(Series(settings_with())), result_of(from_yaml, seed=2), averaged=True)


BEST = Reading("best", selection(settings_with()))
READINGS = {
    "updates": (READING, Reading(400)),
    "best and numbered": (READING, BEST),
    "validation interval": (
        BEST,
        Reading("best", selection(settings_with("--validate-interval-updates", "50"))),
    ),
    "length of the training of the best": (
        BEST,
        Reading("best", selection(settings_with("--max-update", "1000"))),
    ),
    "validation text": (
        BEST,
        Reading("best", selection(hashed(valid={"valid": "0" * 64}))),
    ),
    "window": (READING, Reading(500, overrides={"attention_window": 128})),
    "size of the window": (
        Reading(500, overrides={"attention_window": 64}),
        Reading(500, overrides={"attention_window": 128}),
    ),
    "seed of the slopes": (READING, Reading(500, overrides={"train_seed": 2})),
    "precision": (READING, Reading(500, precision="bf16")),
}


@pytest.mark.parametrize("change", READINGS)
def test_other_readings_are_not_averaged(change):
    series = Series(settings_with())
    first, second = READINGS[change]
    check(result_of(series, 1, first), result_of(series, 2, second), averaged=False)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Reading(500, variant="limited"), Reading(500, variant="window")),
        (READING, Reading(500, overrides={"attention_backend": "eager"})),
        (
            Reading(500, overrides={"attention_window": "64"}),
            Reading(500, overrides={"attention_window": 64}),
        ),
        (BEST, Reading("best", selection(settings_with("--log-interval", "5")))),
    ],
)
def test_same_readings_are_averaged(first, second):
    series = Series(settings_with())
    check(result_of(series, 1, first), result_of(series, 2, second), averaged=True)


@pytest.mark.parametrize(
    "change",
    [
        {"split": "valid"},
        {"text": "0" * 64},
        {"length": 512},
        {"stride": 128},
        {"score_from": 64},
        {"score_to": 128},
        {"documents": "0" * 64},
        {"tokens": "0" * 64},
        {"kind": "validation"},
        {"kind": "probe", "depth": 0.5},
    ],
    ids=str,
)
def test_other_cases_are_not_averaged(change):
    series = Series(settings_with())
    other = replace(CASE, **change)
    check(result_of(series), result_of(series, 2, case=other), averaged=False)


def test_tokenizers_share_the_text_but_not_the_case():
    first = replace(CASE, tokens="1" * 64)
    second = replace(CASE, tokens="2" * 64)
    assert first != second
    series = Series(settings_with())
    by_document = replace(first, documents="empty-lines")
    texts = [
        identify_raw_text(result_of(series, case=case)) for case in (first, second, by_document)
    ]
    assert texts[0] == texts[1] != texts[2]
    overlapping = result_of(series, case=replace(first, length=512, stride=64))
    assert identify_raw_text(overlapping) == texts[0]


def test_number_as_text_is_the_number():
    as_text = Series(changed(model__dropout="0"))
    as_number = Series(settings_with("--dropout", "0.0"))
    check(result_of(as_text), result_of(as_number, seed=2), averaged=True)


def test_path_of_the_data_does_not_count():
    cfg = training_config(*FLAGS)
    cfg.task.data = "moved/data-bin"
    moved = Series(collect_settings(cfg, 1, HASHES, plugin=None))
    check(result_of(Series(settings_with())), result_of(moved, seed=2), averaged=True)


def test_machine_of_the_evaluation_does_not_count():
    series = Series(settings_with())
    on_gpu = Cost(device="cuda", windows_per_batch=64, peak_memory_mb=900.0)
    check(result_of(series), replace(result_of(series, 2), cost=on_gpu), averaged=True)


def test_name_of_a_text_does_not_count():
    series = Series(settings_with())
    other = replace(CASE, corpus="other")
    check(result_of(series), result_of(series, 2, case=other), averaged=True)


def test_unknown_seed_or_text_is_never_averaged():
    series = Series(settings_with())
    for first, second in [
        (result_of(series, None), result_of(series, 2)),
        (result_of(series, None), replace(result_of(series, None), checkpoint_sha256="0" * 64)),
        (
            result_of(series, case=replace(CASE, text=None)),
            result_of(series, 2, case=replace(CASE, text=None)),
        ),
    ]:
        assert len(group_seeds([first, second])) == 2


def test_same_seed_twice():
    series = Series(settings_with())
    first = result_of(series)
    assert len(group_seeds([first, first])) == 1
    assert [len(group) for group in group_seeds([first, first]).values()] == [1]
    assert len(group_seeds([first, result_of(series, bits=3.001)])) == 1  # on another machine
    with pytest.raises(UserInputError, match=r"seed 1\) at length 256 differ"):
        group_seeds([first, result_of(series, bits=3.1)])
    # Two runs of one seed: two rows, each with its own seeds.
    again = replace(first, checkpoint_sha256="f" * 64, values=TextValues(3.1))
    groups = group_seeds([first, again, result_of(series, 2)])
    assert [len(group) for group in groups.values()] == [2, 1]


def test_validations_of_several_splits_belong_to_one_run():
    series = Series(settings_with())
    results = []
    for seed in (1, 2):
        for split in ("valid", "test"):
            case = Case("validation", split * 8, split, 128, 128)
            values = TextValues(seed + len(split))
            results.append(Result(series, READING, seed, case, values))
    assert [len(group) for group in group_seeds(results).values()] == [2, 2]
    assert {row.run for row, _ in group_seeds(results)} == {0}


def test_losses_of_other_documents_are_missing():
    series = Series(settings_with())
    without = result_of(series)
    documents = "2" * 64
    assert is_wanted(without, without.identity)
    assert not is_wanted(without, without.identity, documents)
    values = TextValues(3.0, documents="1" * 64, document_tokens=(4, 5), document_bits=(12.0, 15.0))
    other = replace(without, values=values)
    assert not is_wanted(other, other.identity, documents)
    same = replace(other, values=replace(values, documents=documents))
    assert is_wanted(same, same.identity, documents)
    assert is_wanted(other, other.identity)


def test_new_result_replaces_that_of_its_identity():
    series = Series(settings_with())
    old = replace(result_of(series), checkpoint="run/checkpoint_last.pt")
    assert replaces(old, old)
    assert replaces(replace(old, checkpoint="moved/checkpoint_last.pt"), old)
    assert replaces(replace(old, checkpoint_sha256="f" * 64), old)  # trained again
    for other in (
        replace(old, checkpoint="other/checkpoint_last.pt", checkpoint_sha256="f" * 64),
        replace(old, checkpoint="run/checkpoint_500.pt"),
        replace(old, seed=2),
        replace(old, reading=Reading(400)),
        replace(old, case=replace(CASE, length=512)),
        replace(old, series=Series(settings_with("--dropout", "0.2"))),
    ):
        assert not replaces(other, old)
        # A path doesn't tell a training: relative ones are equal in every folder.
        assert not replaces(replace(other, checkpoint_sha256="f" * 64), old)
    with_documents = replace(CASE, score_from=256, documents="1" * 64)
    old = replace(old, case=with_documents)
    assert not replaces(replace(old, case=replace(with_documents, documents="2" * 64)), old)


def test_checkpoint_of_the_folder_decides():
    series = Series(settings_with())
    known = result_of(series)
    present = known.checkpoint_sha256
    assert is_wanted(known, known.identity, checkpoint_sha256=present)
    assert not is_wanted(known, known.identity, checkpoint_sha256="f" * 64)  # trained again


def test_exactly_the_affected_work_is_missing():
    series = Series(settings_with())
    other = Series(settings_with("--lr", "0.004"))
    longer = replace(CASE, length=512, stride=512)
    known = []
    for seed in (1, 2):
        known.append(result_of(series, seed))
    wanted = []
    for each in (series, other):
        for seed in (1, 2, 3):
            for case in (CASE, longer):
                wanted.append(Identity(each, READING, seed, case))
    left = [want for want in wanted if not any(is_wanted(result, want) for result in known)]
    assert len(left) == len(wanted) - 2
    for want in left:
        assert want.series == other or want.seed == 3 or want.case == longer


def test_diverged_training_has_no_other_results():
    series = Series(settings_with())
    diverged = replace(result_of(series), values=None, status="diverged")
    assert not is_wanted(diverged, diverged.identity)
    assert group_seeds([diverged]) == {}
