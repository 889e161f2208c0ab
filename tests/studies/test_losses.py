"""Losses by document, read from results files of fake models."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from results_documents import PROVENANCE

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.results.case import Case
from alibi_fairseq.results.file import Results, load, save
from alibi_fairseq.results.file_names import TRAINING_FILE
from alibi_fairseq.results.provenance import Provenance
from alibi_fairseq.results.result import Result
from alibi_fairseq.results.series import Reading, Series
from alibi_fairseq.results.values import Cost, TextValues
from studies.analysis.evaluation_key import EvaluationKey
from studies.analysis.study_results import StudyResults
from studies.analysis.validation_gaps import validation_gaps
from studies.sections.wording import method_label

ROOT = Path(__file__).parents[2]
VALUES = TextValues(
    4.0,
    tokens=1000,
    documents="empty-lines",
    document_tokens=(500, 500),
    document_bits=(1900.0, 2100.0),
)
CASE = Case("text", "a" * 64, "test", 128, 128, separator="empty-lines", corpus="wiki")
VALID = Case("validation", "b" * 64, "valid", 16, 16)


def save_model(
    folder: Path,
    name: str,
    case: Case = CASE,
    values: TextValues = VALUES,
    file: str = "evaluation.json",
    updates: int = 10,
    **settings: object,
) -> Path:
    """Write the results of a model such as ``wiki-alibi-16-seed1``; return its folder."""
    _, method, length, seed = name.split("-")
    method_settings = {"method": {"layers": [{"name": method}]}, "data.train": "c" * 64}
    series = Series({**method_settings, "task.tokens_per_sample": int(length), **settings})
    number = int(seed.removeprefix("seed"))
    result = Result(series, Reading(updates), number, case, values, updates=updates)
    validation = replace(result, case=VALID, values=TextValues(4.0))
    path = folder / "cells" / name
    provenance = Provenance(**PROVENANCE)
    save(Results([result], provenance), path / file)
    save(Results([validation], provenance), path / TRAINING_FILE)
    return path


def load_losses(folder: Path):
    """Return the losses of the finished models."""
    return StudyResults.load(folder).losses


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"text": "d" * 64}, "different test documents"),
        ({"score_from": 500}, "different scored ranges"),
        ({"score_to": 900}, "different scored ranges"),
        ({"separator": "titles"}, "different kinds of documents"),
    ],
)
@pytest.mark.parametrize("model", ["wiki-alibi-16-seed2", "wiki-t5-16-seed1"])
def test_different_tests_are_rejected(change, difference, model, tmp_path):
    first = save_model(tmp_path, "wiki-alibi-16-seed1")
    other = save_model(tmp_path, model, replace(CASE, **change))
    with pytest.raises(UserInputError, match=difference) as error:
        load_losses(tmp_path)
    for path in (first, other):
        assert str(path) in str(error.value)


def test_documents_that_begin_elsewhere_are_rejected(tmp_path):
    for seed, beginnings in ((1, "a" * 64), (2, "a" * 64), (3, "b" * 64)):
        values = replace(VALUES, documents=beginnings)
        save_model(tmp_path, f"wiki-alibi-16-seed{seed}", values=values)
    with pytest.raises(UserInputError, match="different beginnings of documents"):
        load_losses(tmp_path)
    shutil.rmtree(tmp_path / "cells/wiki-alibi-16-seed3")
    assert load_losses(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [{"updates": 20}, {"optimization.lr": 0.1}, {"plugin": "c" * 64}, {"data.train": "d" * 64}],
)
def test_differently_trained_seeds_are_rejected(changes, tmp_path):
    first = save_model(tmp_path, "wiki-alibi-16-seed1")
    other = save_model(tmp_path, "wiki-alibi-16-seed2", **changes)
    with pytest.raises(UserInputError, match="trained with different options or data") as error:
        load_losses(tmp_path)
    assert str(first) in str(error.value)
    assert str(other) in str(error.value)


@pytest.mark.parametrize("tokens", [[1000], [400, 600]])
def test_too_few_or_unequal_documents_are_rejected(tokens, tmp_path):
    bits = (4000.0 / len(tokens),) * len(tokens)
    values = replace(VALUES, document_tokens=tuple(tokens), document_bits=bits)
    save_model(tmp_path, "wiki-alibi-16-seed1", values=values)
    with pytest.raises(UserInputError, match="needs at least two, with the same number"):
        load_losses(tmp_path)


def test_other_texts_have_other_documents(tmp_path):
    tales = replace(CASE, text="d" * 64, corpus="tales")
    save_model(tmp_path, "wiki-alibi-16-seed1")
    save_model(tmp_path, "wiki-alibi-16-seed2")
    save_model(tmp_path, "tales-alibi-16-seed1", tales)
    save_model(tmp_path, "wiki-alibi-16-seed1", tales, file="evaluation-on-tales.json")
    losses = load_losses(tmp_path)
    seeds = {(key.corpus, key.tested_on): value.seeds for key, value in losses.items()}
    assert seeds == {("wiki", "wiki"): (1, 2), ("tales", "tales"): (1,), ("wiki", "tales"): (1,)}
    for value in losses.values():
        bits = value.nats / np.log(2)
        assert bits == pytest.approx(np.array([[3.8, 4.2]] * len(value.seeds)))


@pytest.mark.parametrize("part", ["primary", "secondary"])
def test_committed_results_have_the_same_documents(part):
    assert load_losses(ROOT / "results" / "small_models" / part)


def test_gaps_are_means_of_the_split_valid_only(tmp_path):
    losses = {"alibi": (4.0, 5.0), "t5": (5.0, 7.0)}
    for method, by_seed in losses.items():
        for seed, bits in enumerate(by_seed, 1):
            folder = save_model(tmp_path, f"wiki-{method}-16-seed{seed}")
            (valid,) = load(folder / TRAINING_FILE).results
            valid = replace(valid, values=TextValues(bits), cost=Cost(trained_tokens=640))
            test = replace(valid, case=replace(VALID, split="test"), values=TextValues(1.0))
            save(Results([valid, test], Provenance(**PROVENANCE)), folder / TRAINING_FILE)
    tokens, gaps = validation_gaps(StudyResults.load(tmp_path), "wiki", 16)
    assert tokens == {10: 640}
    assert gaps == {"alibi": {10: 0.0}, "t5": {10: pytest.approx(1.5 * np.log(2))}}


def test_options_in_the_name_of_a_method_tell_models_apart(tmp_path):
    save_model(tmp_path, "wiki-alibi-16-seed1")
    layer = {"name": "alibi", "options": {"alibi_slopes": "even"}}
    even = save_model(tmp_path, "wiki-alibi-16-seed2", method={"layers": [layer]})
    even.rename(even.with_name("wiki-alibi-alibi_slopes=even-16-seed2"))
    layer = {"name": "t5", "options": {"t5_max_distance": 12}}
    save_model(tmp_path, "wiki-t5-16-seed1", method={"layers": [layer]})
    keys = [EvaluationKey.parse(f"{method}-16@128", "wiki") for method in ("alibi", "t5")]
    keys.append(EvaluationKey.parse("wiki/alibi/alibi_slopes=even-16@128", "books"))
    assert set(load_losses(tmp_path)) == set(keys)
    assert method_label(keys[-1].method) == "ALiBi, even slopes"
    assert method_label("alibi/alibi_distance=log") == "ALiBi, log distance"


def test_models_that_are_renamed_or_unfinished_are_left_out(tmp_path):
    model = save_model(tmp_path, "wiki-alibi-16-seed1")
    shutil.copytree(model, model.with_name("wiki-alibi-16-seed1.old"))
    shutil.copytree(model, model.with_name("wiki-alibi-16-seed2-aside"))
    (save_model(tmp_path, "wiki-alibi-16-seed3") / TRAINING_FILE).unlink()
    study = StudyResults.load(tmp_path)
    assert [found.folder for found in study.models] == [model]
    (losses,) = study.losses.values()
    assert losses.seeds == (1,)
