"""Tables and scripts of configs/: options of fairseq, Hydra, cards with 80 GB, and cost."""

from __future__ import annotations

import csv
import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest
import torch
from commands import PACKAGE
from fairseq.optim import MemoryEfficientFP16Optimizer
from fairseq_runs import training_config
from paper.configurations import ONE_OF_EACH, from_flags, from_yaml
from torch import nn

from alibi_fairseq.cli import main
from alibi_fairseq.files import read_yaml
from alibi_fairseq.paper import published
from alibi_fairseq.paper.items import items
from alibi_fairseq.paper.recipe import CONFIGS, RECIPES, flags, for_80gb

FOLDERS = sorted(path.parent.name for path in CONFIGS.glob("*/recipes.csv"))
#: Arguments of ``fairseq-train`` of each recipe when it was a YAML file of its own.
GOLDEN = json.loads(Path(__file__).with_name("golden_recipes.json").read_text(encoding="utf-8"))


def rows_of(folder: str) -> dict[str, dict[str, str]]:
    """Return the rows of a table of recipes as text, by ``folder/name``."""
    with (CONFIGS / folder / "recipes.csv").open(encoding="utf-8", newline="") as stream:
        return {f"{folder}/{row['recipe']}": row for row in csv.DictReader(stream)}


@pytest.mark.parametrize("path", GOLDEN)
def test_arguments_of_fairseq_stay_the_same(path):
    assert flags(RECIPES[path].settings()) == shlex.split(GOLDEN[path])


def hydra_overrides(path: str) -> list[str]:
    """Return what turns the base configuration into a recipe, as typed after hydra-train."""
    recipe = RECIPES[path]
    overrides = []
    if recipe.starts_from:
        overrides.append("checkpoint.finetune_from_model=CHECKPOINT")
        for group, values in read_yaml(CONFIGS / recipe.folder / "base.yaml").items():
            overrides += [f"{group}.{name}={value}" for name, value in values.items()]
    base = read_yaml(CONFIGS / recipe.corpus / "base.yaml")
    for column, text in rows_of(recipe.folder)[path].items():
        group, dot, name = column.partition(".")
        if dot and text:
            plus = "" if name in base[group] else "+"
            overrides.append(f"{plus}{column}={text}")
    return overrides


@pytest.mark.ci
@pytest.mark.parametrize("path", ONE_OF_EACH)
def test_hydra_with_overrides_has_configuration_of_recipe(path):
    recipe = RECIPES[path]
    words = ["DATA", *flags(recipe.settings())]
    if recipe.starts_from:
        words += ["--finetune-from-model", "CHECKPOINT"]
    config = from_yaml(recipe.corpus, "base", *hydra_overrides(path))
    assert config == from_flags(words)
    for group, values in recipe.settings().items():
        for option, value in values.items():
            assert config[f"{group}.{option}"] == value, f"{group}.{option}"


@pytest.mark.parametrize("gpus", [None, 1])
def test_loss_scale_is_rarely_too_large(gpus):
    """It doubles after a window of updates, and the overflow that often follows costs an update."""
    for path, recipe in RECIPES.items():
        optimizer = MemoryEfficientFP16Optimizer.build_optimizer(
            training_config(*flags(recipe.settings(gpus)), "--memory-efficient-fp16"),
            [nn.Parameter(torch.zeros(1))],
            allow_unsupported=True,
        )
        assert optimizer.scaler.scale_window >= 600, path


def test_cards_with_80_gb_keep_tokens_per_update():
    for path, recipe in RECIPES.items():
        adapted = for_80gb(recipe)
        assert adapted.batch.tokens_per_update == recipe.batch.tokens_per_update, path
        assert adapted.batch.gpus == 1
        assert recipe.batch.sequences < adapted.batch.sequences
        assert adapted.batch.max_tokens <= recipe.max_tokens_80gb
        words = flags(adapted.settings())
        assert "--bf16" in words
        assert not [word for word in words if "fp16" in word]
        assert "--bf16" not in flags(adapted.settings(1, cpu=True))
        adapted_groups = {"common", "criterion", "dataset", "optimization"}
        for group in recipe.settings().keys() - adapted_groups - {"distributed_training"}:
            assert adapted.settings()[group] == recipe.settings()[group]


@pytest.mark.parametrize(
    ("path", "criterion"),
    [
        ("wikitext-103/alibi-512", "chunked_adaptive_loss"),
        ("bookcorpus/alibi-512", "cross_entropy"),
    ],
)
def test_losses_on_80_gb_are_summed_in_fp32(path, criterion):
    recipe = RECIPES[path]
    before = recipe.settings()["criterion"]
    after = for_80gb(recipe).settings()["criterion"]
    assert after == before | {"_name": criterion}
    assert recipe.settings()["criterion"] == before


def test_passes_on_80_gb_hold_whole_sequences():
    """36,864 tokens are 18 sequences of 2,048. An update of 32 sequences has two passes of 16."""
    batch = for_80gb(RECIPES["wikitext-103/alibi-2048"]).batch
    assert (batch.max_tokens, batch.update_freq) == (32768, 2)


@pytest.mark.usefixtures("arguments_of_pytest_stay")
@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("wikitext-103/alibi-512", ()),
        ("cc100-roberta/sinusoidal-1024", ("--seed", "3")),
        ("extend/alibi-512-at-2048", ("--finetune-from-model", "CHECKPOINT")),
    ],
)
def test_dry_run_prints_plain_command(path, options, capsys):
    words = ["DATA", "--save-dir", "checkpoints", *options]
    assert main(["train", "--recipe", path, "--dry-run", *words]) == 0
    command = shlex.split(capsys.readouterr().out)
    expected = ["fairseq-train", "--user-dir", str(PACKAGE), *flags(RECIPES[path].settings())]
    assert command == [*expected, *words]


@pytest.mark.parametrize("folder", FOLDERS)
def test_script_trains_recipe_of_its_folder(folder, tmp_path):
    python = tmp_path / "python"
    # The first call asks for installed modules.
    python.write_text('#!/usr/bin/env bash\n[ "$1" = -c ] || printf "%s\\n" "$@"\n')
    python.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    name = next(iter(rows_of(folder))).partition("/")[2]
    words = ["DATA", "--save-dir", "a folder"]
    command = [CONFIGS / folder / "train.sh"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 2
    assert "The name of a recipe is missing" in run.stderr
    command += [name, *words]
    output = subprocess.check_output(command, env=environment, text=True)
    expected = ["-m", "alibi_fairseq", "train", "--recipe", f"{folder}/{name}", *words]
    assert output.splitlines() == expected


def test_expected_perplexities_are_those_of_paper():
    """Each is that of the validation split at the training length."""
    checked = 0
    for folder in FOLDERS:
        for path, row in rows_of(folder).items():
            if not row.get("paper_table"):
                continue
            recipe = RECIPES[path]
            (printed,) = {
                f"{measurement.perplexity:.2f}"
                for measurement in items()[f"table{int(row['paper_table']):02d}"].measurements
                if measurement.method.names == (recipe.position_method,)
                and measurement.train_length == measurement.case.length == recipe.train_length
            }
            assert row["expected_perplexity"] == printed, path
            checked += 1
    assert checked == 34


def speeds_of(item: str) -> dict[tuple[str, int], float]:
    """Return the tokens per second of one V100 by method and training length."""
    speeds = {}
    for row in published.rows(item):
        speeds[row["position_method"], row["train_length"]] = row["train_words_per_second"]
    return speeds


def test_v100_hours_follow_from_speeds_of_paper():
    """Figure 7 has the speeds of ALiBi and sinusoidal embeddings, Table 1 those of the others."""
    speeds = {**speeds_of("table01"), **speeds_of("figure07")}
    for path, recipe in RECIPES.items():
        if recipe.corpus == "cc100-roberta":
            continue
        method = recipe.position_method
        if method in ("learned", "none"):
            method = "sinusoidal"
        if method == "transformer_xl":
            assert recipe.v100_hours is None
            continue
        seconds = (
            recipe.updates * recipe.batch.tokens_per_update / speeds[method, recipe.train_length]
        )
        assert recipe.v100_hours == round(seconds / 3600), path


def test_v100_hours_are_those_of_table_12():
    for row in published.rows("table12"):
        recipe = RECIPES[f"cc100-roberta/{row['position_method']}-{row['train_length']}"]
        assert recipe.v100_hours == row["gpu_hours"]
