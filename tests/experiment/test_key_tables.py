"""The tables of YAML keys in docs/comparison-keys.md against the fields."""

from __future__ import annotations

import dataclasses
import importlib.util
import re

import pytest
import yaml
from commands import ROOT

from alibi_fairseq.experiment.config_files import from_mapping
from alibi_fairseq.experiment.schema import Corpus, Evaluation, ExperimentConfig, ModelGroup

PAGE = ROOT / "docs" / "comparison-keys.md"


@pytest.fixture
def generator():
    """Return the module scripts/comparison_keys.py."""
    path = ROOT / "scripts" / "comparison_keys.py"
    spec = importlib.util.spec_from_file_location("comparison_keys", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_key_tables_are_current(generator):
    for path in generator.PAGES:
        page = path.read_text(encoding="utf-8")
        assert generator.update(page) == page


@pytest.mark.parametrize("kind", [Corpus, ModelGroup, Evaluation, ExperimentConfig])
def test_key_tables_name_every_key(kind):
    page = PAGE.read_text(encoding="utf-8")
    for field in dataclasses.fields(kind):
        assert f"| {field.name} " in page


def test_examples_are_configurations():
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    smallest, models, training, evaluation, several, corpora, groups = map(yaml.safe_load, blocks)
    for values in (
        *(smallest, models | training | evaluation, models | training | several),
        *(corpora, groups),
    ):
        config = from_mapping(values)
        config.check_method_keys()
