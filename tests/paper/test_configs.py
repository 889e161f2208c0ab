"""The files of configs/ say the same in both forms, and keep their tokens on other machines."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from paper.configurations import from_flags, from_yaml

from alibi_fairseq.paper.recipe import CONFIGS, RECIPES

#: Overlays for other machines, and the GPUs of all nodes together.
OVERLAY_GPUS = {"1_gpu": 1, "8_gpus": 8, "4x8_slurm": 32}


def shell_words(path: Path, *arguments: str) -> list[str]:
    """The words behind ``fairseq-train`` as bash itself passes them on."""
    script = path.read_text().replace("exec fairseq-train", "printf '%s\\0'")
    script = script.replace("${BASH_SOURCE[0]}", str(path))
    words = subprocess.run(
        ["bash", "-c", script, "bash", *arguments], capture_output=True, text=True, check=True
    )
    return words.stdout.split("\0")[:-1]


@pytest.mark.parametrize("path", RECIPES)
def test_yaml_and_shell_lines_are_the_same_configuration(path):
    recipe = RECIPES[path]
    start = ["CHECKPOINT"] if recipe.starts_from_another else []
    words = shell_words(CONFIGS / f"{path}.sh", "DATA", *start)
    assert words[0] == "--user-dir" and Path(words[1]).samefile(CONFIGS.parent / "alibi_fairseq")
    shell = from_flags(words[2:])
    overrides = [f"checkpoint.finetune_from_model={name}" for name in start]
    assert from_yaml(recipe.folder, recipe.name, *overrides) == shell
    for group, values in recipe.settings().items():
        for option, value in values.items():
            assert shell[f"{group}.{option}"] == value, f"{group}.{option}"


def test_every_script_can_be_run():
    scripts = list(CONFIGS.rglob("*.sh"))
    assert len(scripts) == len(RECIPES)
    assert all(path.stat().st_mode & 0o111 for path in scripts)


def overlay_name(recipe, world: str) -> str:
    """The overlay that the header of the recipe's file names for a machine."""
    text = (CONFIGS / f"{recipe.path}.yaml").read_text()
    (gpus,) = re.findall(r"^# GPUs(.*?)^# \w", text.replace("#          ", ""), re.S | re.M)
    found = re.search(rf"\b{OVERLAY_GPUS[world]}: \+run_config=(\w[\w-]*)", " ".join(gpus.split()))
    return found[1] if found else ""


@pytest.mark.parametrize("world", OVERLAY_GPUS)
@pytest.mark.parametrize("path", RECIPES)
def test_overlays_keep_tokens_per_update(path, world):
    """Read from the YAML files: world × passes × sequences that fit × length."""
    recipe = RECIPES[path]
    gpus = OVERLAY_GPUS[world]
    if recipe.batch.sequences_per_update % gpus:
        assert not overlay_name(recipe, world)
        return
    if gpus == recipe.batch.gpus:
        return
    folder = CONFIGS / recipe.folder
    values = yaml.safe_load((folder / f"{recipe.name}.yaml").read_text())
    overlay = (folder / "run_config" / f"{overlay_name(recipe, world)}.yaml").read_text()
    assert overlay.startswith("# @package _global_\n")
    for group, options in yaml.safe_load(overlay).items():
        values[group].update(options)
    length = values["task"]["tokens_per_sample"]
    sequences = values["dataset"]["max_tokens"] // length
    (passes,) = values["optimization"]["update_freq"]
    world_size = values["distributed_training"]["distributed_world_size"]
    assert world_size == gpus
    assert sequences <= recipe.batch.sequences
    assert gpus * passes * sequences * length == recipe.batch.tokens_per_update


@pytest.mark.parametrize(
    "path", ["wikitext-103/alibi-3072", "bookcorpus/alibi-512", "cc100-roberta/alibi-1024"]
)
def test_hydra_lays_overlays_over_the_recipe(path):
    recipe = RECIPES[path]
    overlay = overlay_name(recipe, "1_gpu")
    cfg = from_yaml(recipe.corpus, recipe.name, f"+run_config={overlay}")
    batch = recipe.batch.on(1)
    assert cfg["distributed_training.distributed_world_size"] == 1
    assert cfg["optimization.update_freq"] == [batch.update_freq]
    smoke = from_yaml(recipe.corpus, recipe.name, "+run_config=cpu_smoke")
    assert smoke["common.cpu"] is True and smoke["common.fp16"] is False
    assert smoke["model.decoder_layers"] == 2
    assert smoke["model.position_method"] == recipe.position_method


def test_hydra_overrides_the_cutoffs():
    override = "model.adaptive_input_cutoff='100,500'"
    cfg = from_yaml("wikitext-103", "alibi-512", override)
    assert cfg["model.adaptive_input_cutoff"] == "100,500"
    smoke = from_yaml("wikitext-103", "alibi-512", "+run_config=cpu_smoke")
    assert smoke["model.adaptive_softmax_cutoff"] == "100,500"
