"""Losses by article, read from results files of fake models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from results_documents import document, evaluation_record, save_results_file, validation_record

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.results.files import TRAINING_FILE
from studies.losses import ValidationPoint, finished_models, load_curves, load_losses

ROOT = Path(__file__).parents[2]
TOKENS = [500, 500]
BITS = [1900.0, 2100.0]


def save_evaluation(
    folder: Path,
    model: str,
    tested_on: str = "wiki",
    name: str = "evaluation.json",
    changes: dict | None = None,
    **provenance,
) -> Path:
    """Write the evaluation of a model such as ``wiki-alibi-16-seed1``; return its path."""
    _, method, _, seed = model.split("-")
    losses = {"document_tokens": TOKENS, "document_bits": BITS}
    record = evaluation_record(
        method=method,
        seed=int(seed.removeprefix("seed")),
        corpus=tested_on,
        **(losses | (changes or {})),
    )
    path = folder / "cells" / model / name
    save_results_file(document(record, **provenance), path)
    finish(path.parent)
    return path


def finish(model_folder: Path, train_hash: str = "a") -> None:
    """Write the file that marks the results of a model as complete."""
    settings = {"options": [], "data": {"train.bin": train_hash}}
    description = {"name": model_folder.name, "settings": settings}
    (model_folder / "cell.json").write_text(json.dumps(description))


@pytest.mark.parametrize("key", ["data_sha256", "dictionary_sha256"])
@pytest.mark.parametrize("value", ["c" * 64, None])
@pytest.mark.parametrize("model", ["wiki-alibi-16-seed2", "wiki-t5-16-seed1"])
def test_different_test_articles_are_rejected(key, value, model, tmp_path):
    first = save_evaluation(tmp_path, "wiki-alibi-16-seed1")
    other = save_evaluation(tmp_path, model, **{key: value})
    with pytest.raises(UserInputError, match=key) as error:
        load_losses(tmp_path)
    for path in (first, other):
        assert str(path) in str(error.value)


@pytest.mark.parametrize(
    "scored", [{"score_from": 500}, {"score_to": 900}, {"documents": "titles"}]
)
def test_different_scored_ranges_are_rejected(scored, tmp_path):
    save_evaluation(tmp_path, "wiki-alibi-16-seed1")
    save_evaluation(tmp_path, "wiki-t5-16-seed1", changes=scored)
    with pytest.raises(UserInputError, match=f"different .* \\({next(iter(scored))}\\)"):
        load_losses(tmp_path)


def test_documents_that_begin_elsewhere_are_rejected(tmp_path):
    for seed, beginnings in ((1, None), (2, "a" * 64), (3, "b" * 64)):
        scored = {"documents_sha256": beginnings}  # not recorded in older results
        save_evaluation(tmp_path, f"wiki-alibi-16-seed{seed}", changes=scored)
    with pytest.raises(UserInputError, match="different beginnings of documents"):
        load_losses(tmp_path)
    shutil.rmtree(tmp_path / "cells/wiki-alibi-16-seed3")
    assert load_losses(tmp_path)


@pytest.mark.parametrize(
    "changes", [{"updates": 20}, {"options": {"lr": "0.1"}}, {"plugin_sha256": "c" * 64}, None]
)
def test_differently_trained_seeds_are_rejected(changes, tmp_path):
    first = save_evaluation(tmp_path, "wiki-alibi-16-seed1").parent
    other = save_evaluation(tmp_path, "wiki-alibi-16-seed2", changes=changes).parent
    if changes is None:
        finish(other, train_hash="b")
    with pytest.raises(UserInputError, match="trained with different options or data") as error:
        load_losses(tmp_path)
    assert str(first) in str(error.value)
    assert str(other) in str(error.value)


@pytest.mark.parametrize("tokens", [[1000], [400, 600]])
def test_too_few_or_unequal_documents_are_rejected(tokens, tmp_path):
    scored = {"document_tokens": tokens, "document_bits": [4000.0 / len(tokens)] * len(tokens)}
    save_evaluation(tmp_path, "wiki-alibi-16-seed1", changes=scored)
    with pytest.raises(UserInputError, match="needs at least two, with the same number"):
        load_losses(tmp_path)


def test_other_texts_have_other_articles(tmp_path):
    save_evaluation(tmp_path, "wiki-alibi-16-seed1")
    save_evaluation(tmp_path, "wiki-alibi-16-seed2")
    save_evaluation(tmp_path, "tales-alibi-16-seed1", "tales", data_sha256="c" * 64)
    on_tales = {"tested_on": "tales", "name": "evaluation-on-tales.json"}
    save_evaluation(tmp_path, "wiki-alibi-16-seed1", **on_tales, data_sha256="c" * 64)
    losses = load_losses(tmp_path)
    seeds = {(key.corpus, key.tested_on): value.seeds for key, value in losses.items()}
    assert seeds == {("wiki", "wiki"): (1, 2), ("tales", "tales"): (1,), ("wiki", "tales"): (1,)}
    for value in losses.values():
        bits = value.nats / np.log(2)
        assert bits == pytest.approx(np.array([[3.8, 4.2]] * len(value.seeds)))


@pytest.mark.parametrize("part", ["primary", "secondary"])
def test_committed_results_have_the_same_articles(part):
    assert load_losses(ROOT / "results" / "small_models" / part)


def test_curves_have_the_split_valid_only(tmp_path):
    for seed, perplexity in ((1, 16.0), (2, 32.0)):
        records = []
        for subset, factor in (("valid", 1), ("test", 2)):
            validated = {"subset": subset, "updates": 10, "trained_tokens": 640}
            records.append(validation_record(factor * perplexity, **validated))
        path = tmp_path / "cells" / f"wiki-alibi-16-seed{seed}" / TRAINING_FILE
        save_results_file(document(*records, kind="training"), path)
        finish(path.parent)
    (curve,) = load_curves(tmp_path).values()
    assert curve == {10: ValidationPoint(640, [4.0, 5.0])}


def test_models_that_are_renamed_or_unfinished_are_left_out(tmp_path):
    model = save_evaluation(tmp_path, "wiki-alibi-16-seed1").parent
    shutil.copytree(model, model.with_name("wiki-alibi-16-seed1.old"))
    shutil.copytree(model, model.with_name("wiki-alibi-16-seed2-aside"))
    save_evaluation(tmp_path, "wiki-alibi-16-seed3").with_name("cell.json").unlink()
    assert [found.folder for found in finished_models(tmp_path)] == [model]
    (losses,) = load_losses(tmp_path).values()
    assert losses.seeds == (1,)
