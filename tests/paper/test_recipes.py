"""The numbers in the recipes: batches, epochs, costs, schedules and parameter counts."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq import models, optim
from fairseq.data import Dictionary, data_utils
from fairseq.optim.lr_scheduler import build_lr_scheduler
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from paper.configurations import from_flags

import alibi_fairseq.models  # noqa: F401  (registers the models)
from alibi_fairseq.errors import BadInput
from alibi_fairseq.experiments.paper_tables import v100_hours
from alibi_fairseq.paper.recipe import CONFIGS, RECIPES, Batch, find_recipe, flags
from alibi_fairseq.paper.scales import PARAMETERS


class DictionaryOf(Dictionary):
    """A dictionary of that many entries that stores none of them."""

    def __init__(self, entries: int):
        super().__init__()
        self.entries = entries

    def __len__(self):
        return self.entries


def configuration(path: str):
    return OmegaConf.create(from_nested(from_flags(["DATA", *flags(RECIPES[path].settings())])))


def from_nested(values: dict) -> dict:
    nested: dict = {}
    for name, value in values.items():
        group, _, option = name.partition(".")
        if option:
            nested.setdefault(group, {})[option] = value
    return nested


# What a model weighs depends on corpus and method, and of the lengths only where there is one.
ONE_OF_EACH = {(r.corpus, r.position_method): path for path, r in RECIPES.items()}


@pytest.mark.parametrize("path", ONE_OF_EACH.values())
def test_the_model_has_the_parameters_its_file_states(path):
    recipe = RECIPES[path]
    header = (CONFIGS / f"{path}.yaml").read_text()
    parameters, entries = (
        int(number.replace(",", ""))
        for number in re.search(
            r"# Size +(\S+) parameters with a dictionary of (\S+)", header
        ).groups()
    )
    dictionary = DictionaryOf(entries)
    sequential = recipe.options["task"]["_name"] == "segment_language_modeling"
    task = SimpleNamespace(
        source_dictionary=dictionary, target_dictionary=dictionary, is_sequential=sequential
    )
    with torch.device("meta"):
        model = models.build_model(configuration(path).model, task)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    assert parameters == pytest.approx(PARAMETERS[recipe.corpus], rel=0.07)


def test_wikitext_epochs_are_the_papers_but_at_2048():
    """205 epochs (paper, section 2.1): fairseq stops in its 205th."""
    for recipe in RECIPES.values():
        if recipe.folder != "wikitext-103":
            continue
        expected = 181.6 if recipe.name.endswith("-2048") else 204.3
        assert round(recipe.total_tokens / 103_227_021, 1) == expected, recipe.name


def test_gpu_hours():
    """Sums by hand: tokens / (tokens per second) / 3600."""
    by_hand = 286_000 * 73_728 / 28_304 / 3600

    def hours(path):
        return v100_hours(RECIPES[path], RECIPES[path].updates)

    assert hours("wikitext-103/alibi-512") == pytest.approx(by_hand)
    assert hours("wikitext-103/t5-3072") == pytest.approx(1362, abs=1)
    for method in ("alibi", "sinusoidal"):
        large = [hours(f"cc100-roberta/{method}-{length}") for length in (512, 1024, 2048)]
        assert large == [5500, 5900, 6700]


@pytest.mark.parametrize("path", [path for path in RECIPES if "cc100" not in path])
def test_fairseq_packs_the_sequences_the_recipe_counts(path):
    batch = RECIPES[path].batch
    sizes = np.full(3 * batch.sequences, batch.length)
    batches = data_utils.batch_by_size(
        np.arange(len(sizes)),
        num_tokens_fn=lambda index: sizes[index],
        num_tokens_vec=sizes,
        max_tokens=batch.max_tokens,
        required_batch_size_multiple=1,
    )
    assert [len(b) for b in batches] == [batch.sequences] * 3


def learning_rates(path: str, updates: list[int]) -> list[float]:
    cfg = configuration(path)
    optimizer = optim.build_optimizer(cfg.optimizer, [torch.nn.Parameter(torch.zeros(1))])
    schedule = build_lr_scheduler(cfg.lr_scheduler, optimizer)
    return [schedule.step_update(update) for update in updates]


def test_wikitext_schedule_warms_up_to_1_and_ends_at_its_minimum():
    first, half_way, peak, middle, last = learning_rates(
        "wikitext-103/alibi-512", [0, 8_000, 16_000, 151_000, 285_999]
    )
    assert first == pytest.approx(1e-7)
    assert half_way == pytest.approx(0.5, rel=1e-3)
    assert peak == pytest.approx(1.0)
    assert middle == pytest.approx(0.50005, rel=1e-3)
    assert last == pytest.approx(1e-4, rel=1e-3)


@pytest.mark.parametrize("path", ["bookcorpus/alibi-512", "cc100-roberta/alibi-512"])
def test_other_schedules_end_with_the_run(path):
    recipe = RECIPES[path]
    peak = recipe.options["optimization"]["lr"][0]
    warm = recipe.options["lr_scheduler"]["warmup_updates"]
    top, last = learning_rates(path, [warm, recipe.updates - 1])
    assert top == pytest.approx(peak, rel=1e-3)
    assert last < 1e-3 * peak


@given(
    length=st.sampled_from([64, 512, 3072]),
    sequences=st.integers(1, 150),
    passes=st.integers(1, 8),
    gpus=st.integers(1, 128),
    other=st.integers(1, 256),
)
@settings(max_examples=300, deadline=None)
def test_any_number_of_gpus_keeps_tokens_per_update_or_says_why_not(
    length, sequences, passes, gpus, other
):
    batch = Batch(length, sequences, passes, gpus)
    try:
        moved = batch.on(other)
    except BadInput:
        assert batch.sequences_per_update % other != 0
        return
    assert moved.gpus == other
    assert moved.tokens_per_update == batch.tokens_per_update
    assert moved.sequences <= batch.sequences
    assert moved.max_tokens // length == moved.sequences


def test_fewer_gpus_take_the_recipes_own_passes():
    batch = find_recipe("wikitext-103/alibi-512").batch
    assert [(batch.on(n).sequences, batch.on(n).update_freq) for n in (1, 2, 4, 8, 16)] == [
        (18, 8),
        (18, 4),
        (18, 2),
        (18, 1),
        (9, 1),
    ]
    with pytest.raises(BadInput, match="^7 GPUs cannot keep 73,728 tokens per update"):
        batch.on(7)
    with pytest.raises(BadInput, match="at least 1"):
        batch.on(0)
