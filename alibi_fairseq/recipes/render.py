"""The files of ``configs/``, as text."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import yaml

from .catalogue import FOLDERS, recipes_of
from .header import GENERATED, WIDTH, comment, header, title
from .index import index
from .overlays import overlays, smoke
from .recipe import GROUPS, Recipe, Settings, flag, merge


def all_files() -> dict[str, str]:
    """Path below ``configs/`` → content."""
    made = {"README.md": index()}
    for folder in FOLDERS:
        recipes = recipes_of(folder)
        for recipe in recipes:
            made[f"{recipe.path}.yaml"] = yaml_file(recipe)
            made[f"{recipe.path}.sh"] = shell_file(recipe)
        for name, content in overlay_files(recipes).items():
            made[f"{folder}/run_config/{name}.yaml"] = content
    return made


def yaml_file(recipe: Recipe) -> str:
    """YAML for ``fairseq-hydra-train``; values that the paper does not give are marked and explained."""
    usage = [
        "",
        f"alibi-fairseq hydra-train --config-dir configs/{recipe.folder} "
        f"--config-name {recipe.name} \\",
        "    task.data=DATA_BIN checkpoint.save_dir=FOLDER",
    ]
    # hydra only lets the command line set what the file names; "???" means it must.
    given: Settings = {"task": {"data": "???"}}
    if recipe.starts_from:
        usage[-1] += " checkpoint.finetune_from_model=CHECKPOINT"
        given["checkpoint"] = {"finetune_from_model": "???"}
    settings = yaml_settings(merge(given, recipe.settings()), recipe.choices)
    return f"{header(recipe)}{comment(usage)}\n{settings}"


def shell_file(recipe: Recipe) -> str:
    """A script that runs the same training with ``fairseq-train``; the YAML has the explanations."""
    usage, arguments = "DATA_BIN", ['"$@"']
    if recipe.starts_from:
        usage = "DATA_BIN CHECKPOINT"
        arguments = [
            '--finetune-from-model "${2:?the CHECKPOINT stands behind DATA_BIN}" "$1" "${@:3}"'
        ]
    head = [
        title(recipe),
        f"The training of {recipe.name}.yaml, which explains each value.",
        GENERATED,
        "",
        f"configs/{recipe.path}.sh {usage} --save-dir FOLDER [FLAGS]",
        "FLAGS are those of fairseq-train and override the ones below.",
    ]
    command = [
        'exec fairseq-train --user-dir "$plugin"',
        *flag_lines(recipe.settings()),
        *arguments,
    ]
    return (
        f"#!/usr/bin/env bash\n{comment(head)}"
        "set -euo pipefail\n"
        'plugin="$(cd "$(dirname "${BASH_SOURCE[0]}")/../../alibi_fairseq" && pwd)"\n\n'
        + " \\\n    ".join(command)
        + "\n"
    )


def flag_lines(settings: Settings) -> list[str]:
    """The flags, each group on lines of its own, wrapped at the page width."""
    lines = []
    for group, options in settings.items():
        line = ""
        for option, value in options.items():
            words = shlex.join(flag(group, option, value))
            if line and len(line) + len(words) > WIDTH - 10:
                lines.append(line)
                line = ""
            line = f"{line} {words}".strip()
        if line:
            lines.append(line)
    return lines


def overlay_files(recipes: list[Recipe]) -> dict[str, str]:
    """Overlays of one corpus: ``+run_config=NAME`` behind ``--config-name``."""
    made = {}
    for name, (settings, uses) in overlays(recipes).items():
        made[name] = overlay_file(["Keeps the tokens per update:", *uses], settings)
    # The smoke run is the same for every recipe of a corpus: it depends on neither method nor length.
    made["cpu_smoke"] = overlay_file(
        ["A few updates of a tiny model on the CPU, to check that everything works."],
        smoke(recipes[0]),
    )
    return made


def overlay_file(lines: list[str], settings: Settings) -> str:
    return "# @package _global_\n" + comment([GENERATED, *lines]) + "\n" + yaml_settings(settings)


def yaml_settings(settings: Settings, choices: Mapping[tuple[str, str], str] | None = None) -> str:
    """Settings as YAML, our choices with their reasons."""
    blocks = []
    for group in GROUPS:
        if group not in settings:
            continue
        lines = [f"{group}:"]
        for option, value in settings[group].items():
            line = f"  {option}: {yaml_value(value)}"
            reason = (choices or {}).get((group, option))
            lines.append(f"{line}  # our choice: {reason}" if reason else line)
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def yaml_value(value: object) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=1000)
    return text.removesuffix("\n").removesuffix("\n...")
