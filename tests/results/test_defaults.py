"""The frozen table of defaults, ``defaults.json``, agrees with the options of this release.

Results leave out settings with the default of the table, so a default in it must never change: the
weights of published results depend on it. A new option needs an entry with the default that gives
the same model as before. This command shows the entries of this release:

    PYTHONPATH=.:tests python tests/results/test_defaults.py
"""

from __future__ import annotations

import dataclasses
import doctest
import json
import os
import subprocess
import sys
from typing import Any, get_type_hints

import pytest
from commands import ROOT
from fairseq.dataclass.configs import FairseqConfig
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY

from alibi_fairseq.positions import METHODS, is_plugin_method, method_options
from alibi_fairseq.results import settings
from alibi_fairseq.results.irrelevant import IRRELEVANT, NOT_WRITTEN
from alibi_fairseq.results.settings import (
    BASE,
    COMPONENTS,
    DEFAULTS,
    GROUPS,
    component_defaults,
    plain,
)

TASKS = ("language_modeling", "segment_language_modeling")
CRITERIONS = (
    "adaptive_loss",
    "chunked_adaptive_loss",
    "chunked_cross_entropy",
    "cross_entropy",
    "label_smoothed_cross_entropy",
)
OPTIMIZERS = ("adam", "cpu_adam", "fused_adam", "nag")


def defaults_of(group: str, dataclass: type) -> dict[str, Any]:
    """Return the defaults of a dataclass, without fields that are recorded elsewhere."""
    defaults = {}
    for field in dataclasses.fields(dataclass):
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        is_unwritten = f"{group}.{field.name}" in NOT_WRITTEN
        if not field.name.startswith("_") and not is_unwritten and default != "???":
            defaults[field.name] = plain(default)
    return defaults


def current_defaults() -> dict[str, Any]:
    """Return the defaults of this release and of the installed fairseq."""
    classes = get_type_hints(FairseqConfig)
    table: dict[str, Any] = {group: defaults_of(group, classes[group]) for group in GROUPS}
    own_methods = [name for name in METHODS if not is_plugin_method(name)]
    table["method"] = {}
    method_fields = set()
    for name in own_methods:
        options = method_options(name)
        method_fields.update(options)
        table["method"][name] = {field.name: plain(field.default) for field in options.values()}
    table["model"] = {}
    for name, model in sorted(ARCH_MODEL_NAME_REGISTRY.items()):
        if model == "transformer_lm" or name.startswith("alibi_lm"):
            values = defaults_of("model", MODEL_DATACLASS_REGISTRY[model])
            for option in method_fields:
                values.pop(option, None)
            table["model"][name] = values
    registered = {"task": TASK_DATACLASS_REGISTRY}
    for group in ("criterion", "optimizer", "lr_scheduler"):
        registered[group] = REGISTRIES[group]["dataclass_registry"]
    names = {"task": TASKS, "criterion": CRITERIONS, "optimizer": OPTIMIZERS}
    names["lr_scheduler"] = tuple(registered["lr_scheduler"])
    for group, components in names.items():
        table[group] = {}
        for name in components:
            table[group][name] = defaults_of(group, registered[group][name])
    return table


def sparse(table: dict[str, Any]) -> dict[str, Any]:
    """Return a table whose architectures have only the defaults that differ from their base."""
    models = {}
    for name, values in table["model"].items():
        base = "transformer_lm"
        if name.startswith("alibi_lm_"):
            base = "alibi_lm"
        if name == base:
            models[name] = values
            continue
        models[name] = {BASE: base}
        for option, default in values.items():
            if table["model"][base].get(option, ...) != default:
                models[name][option] = default
    return {**table, "model": models}


@pytest.fixture(scope="module")
def current() -> dict[str, Any]:
    """Return the defaults of this release by name, as the table has them.

    A process of its own computes them, because tests of plugins add options in this one.
    """
    code = "import json, test_defaults as t; print(json.dumps(t.current_defaults()))"
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "tests" / "results")))
    environment = {**os.environ, "PYTHONPATH": path}
    process = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return flat(json.loads(process.stdout.splitlines()[-1]))


def flat(table: dict[str, Any]) -> dict[str, Any]:
    """Return defaults by ``group.field``, or ``group.component.field``."""
    values = {}
    for group, fields in table.items():
        for field, value in fields.items():
            if group in GROUPS:
                values[f"{group}.{field}"] = value
                continue
            for option, default in value.items():
                values[f"{group}.{field}.{option}"] = default
    return values


def full_table() -> dict[str, Any]:
    """Return the frozen table, where architectures have all defaults."""
    table = dict(DEFAULTS)
    for group in COMPONENTS:
        table[group] = {name: component_defaults(group, name) for name in DEFAULTS[group]}
    return flat(table)


@pytest.mark.ci
def test_table_has_the_defaults_of_this_release(current):
    table = full_table()
    changed = {name: value for name, value in current.items() if table.get(name, ...) != value}
    assert changed == {}, "add a new option; a default in the table must never change"


def test_every_setting_that_does_not_count_exists():
    known = set()
    for name in full_table():
        parts = name.split(".")
        known.add(f"{parts[0]}.{parts[-1]}")
    derived = {"data.valid"}
    assert {*IRRELEVANT} - derived <= known


def test_no_default_refers_to_an_unknown_setting():
    table = full_table()
    for name, default in table.items():
        if isinstance(default, str) and default.startswith("${"):
            referent = default.removeprefix("${").removesuffix("}")
            of_language_models = referent.replace("task.", "task.language_modeling.")
            assert of_language_models in table, name


def test_examples_in_docstrings():
    outcome = doctest.testmod(settings)
    assert outcome.attempted
    assert not outcome.failed


if __name__ == "__main__":
    print(json.dumps(sparse(current_defaults()), indent=1, sort_keys=True))
