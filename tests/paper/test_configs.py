"""YAML and shell forms of configs/, and tokens per update on different machines."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from paper.configurations import ONE_OF_EACH, from_flags, from_yaml

from alibi_fairseq.cli import main
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.paper.recipe import CONFIGS, RECIPES, flags, with_run_config

#: Overlays for other machines, and the GPUs of all nodes together.
OVERLAY_GPUS = {"1_gpu": 1, "8_gpus": 8, "4x8_slurm": 32}


def shell_words(path: Path, *arguments: str) -> list[str]:
    """Return the arguments that bash passes to ``fairseq-train``."""
    script = path.read_text().replace("exec fairseq-train", "printf '%s\\0'")
    script = script.replace("${BASH_SOURCE[0]}", str(path))
    command = ["bash", "-c", script, "bash", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


def test_shell_flags_match_yaml():
    for path, recipe in RECIPES.items():
        script = CONFIGS / f"{path}.sh"
        start = ["CHECKPOINT"] if recipe.starts_from_another else []
        user_dir, plugin, *words = shell_words(script, "DATA", *start)
        assert user_dir == "--user-dir"
        assert Path(plugin).samefile(CONFIGS.parent / "alibi_fairseq")
        expected = flags(recipe.settings())
        if recipe.starts_from_another:
            expected += ["--finetune-from-model", "CHECKPOINT"]
        assert words == [*expected, "DATA"], path
        assert script.stat().st_mode & 0o111, path


@pytest.mark.ci
@pytest.mark.parametrize("path", ONE_OF_EACH)
def test_yaml_and_flags_give_equal_configurations(path):
    recipe = RECIPES[path]
    words = ["DATA", *flags(recipe.settings())]
    overrides = []
    if recipe.starts_from_another:
        words += ["--finetune-from-model", "CHECKPOINT"]
        overrides.append("checkpoint.finetune_from_model=CHECKPOINT")
    config = from_yaml(recipe.folder, recipe.name, *overrides)
    assert config == from_flags(words)
    for group, values in recipe.settings().items():
        for option, value in values.items():
            assert config[f"{group}.{option}"] == value, f"{group}.{option}"


def overlay_name(recipe, world: str) -> str:
    """Return the overlay for a machine from the header of the recipe; empty if there is none."""
    text = (CONFIGS / f"{recipe.path}.yaml").read_text()
    one_line_per_key = text.replace("#          ", "")
    (gpus_text,) = re.findall(r"^# GPUs(.*?)^# \w", one_line_per_key, re.S | re.M)
    gpus_text = " ".join(gpus_text.split())
    match = re.search(rf"\b{OVERLAY_GPUS[world]}: \+run_config=(\w[\w-]*)", gpus_text)
    return match[1] if match else ""


def values_with_overlay(recipe, overlay: str) -> dict:
    """Return the values of a recipe's file, changed by an overlay."""
    folder = CONFIGS / recipe.folder
    values = yaml.safe_load((folder / f"{recipe.name}.yaml").read_text())
    text = (folder / "run_config" / f"{overlay}.yaml").read_text()
    assert text.startswith("# @package _global_\n")
    for group, options in yaml.safe_load(text).items():
        values[group].update(options)
    return values


@pytest.mark.parametrize("world", OVERLAY_GPUS)
def test_overlays_keep_tokens_per_update(world):
    """Multiply GPUs, passes, sequences per pass, and length of the YAML files."""
    gpus = OVERLAY_GPUS[world]
    for path, recipe in RECIPES.items():
        batch = recipe.batch
        if batch.sequences_per_update % gpus:
            assert not overlay_name(recipe, world)
            continue
        if gpus == batch.gpus:
            continue
        values = values_with_overlay(recipe, overlay_name(recipe, world))
        length = values["task"]["tokens_per_sample"]
        sequences = values["dataset"]["max_tokens"] // length
        (passes,) = values["optimization"]["update_freq"]
        assert values["distributed_training"]["distributed_world_size"] == gpus
        assert sequences <= batch.sequences
        assert gpus * passes * sequences * length == batch.tokens_per_update, path


def test_overlays_for_80_gb_keep_tokens_per_update():
    for path, recipe in RECIPES.items():
        adapted = with_run_config(recipe, "80gb")
        assert adapted.batch.tokens_per_update == recipe.batch.tokens_per_update, path
        assert adapted.batch.sequences > recipe.batch.sequences, path
        words = flags(adapted.settings())
        assert "--bf16" in words
        assert not [word for word in words if "fp16" in word]
        assert "--bf16" not in flags(adapted.settings(1, cpu=True))
        other_settings = {"common", "dataset", "optimization", "distributed_training"}
        for group in recipe.settings().keys() - other_settings:
            assert adapted.settings()[group] == recipe.settings()[group]
    with pytest.raises(UserInputError, match="Choose from 1_gpu, "):
        with_run_config(RECIPES["bookcorpus/alibi-512"], "96gb")


def test_overlay_of_launch_is_that_of_hydra(capsys):
    name = "wikitext-103/alibi-2048"
    words = ["--run-config", "80gb", "--gpus", "1", name, "DATA", "--save-dir", "checkpoints"]
    assert main(["launch", "--dry-run", *words]) == 0
    command = shlex.split(capsys.readouterr().out)
    by_hydra = from_yaml("wikitext-103", "alibi-2048", "+run_config=80gb_2048")
    assert from_flags(command[command.index("train") + 1 : -2]) == by_hydra


def test_hydra_applies_overlays():
    recipe = RECIPES["wikitext-103/alibi-3072"]
    cfg = from_yaml(recipe.corpus, recipe.name, f"+run_config={overlay_name(recipe, '1_gpu')}")
    assert cfg["distributed_training.distributed_world_size"] == 1
    assert cfg["optimization.update_freq"] == [recipe.batch.on(1).update_freq]
