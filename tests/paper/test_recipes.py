"""The numbers in the recipes: batches, epochs, costs, schedules and parameter counts."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq import models, optim
from fairseq.data import Dictionary, data_utils
from fairseq.optim.lr_scheduler import build_lr_scheduler
from hypothesis import given, settings
from hypothesis import strategies as st
from paper.configurations import ONE_OF_EACH, parsed

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.files import read_yaml
from alibi_fairseq.paper.recipe import CONFIGS, RECIPES, Batch, Recipe, flags
from alibi_fairseq.paper.scale import SCALES

#: Literal values of the authors' command and architecture ``transformer_lm_wiki103``
#: (https://github.com/ofirpress/attention_with_linear_biases). The other tests compare recipes and
#: models that are read from the same files.
PUBLISHED = {
    "model": {
        "_name": "alibi_lm_wiki103",
        "decoder_layers": 16,
        "decoder_embed_dim": 1024,
        "decoder_ffn_embed_dim": 4096,
        "decoder_attention_heads": 8,
        "dropout": 0.3,
        "attention_dropout": 0.1,
        "activation_dropout": 0.1,
        "adaptive_softmax_dropout": 0.2,
        "adaptive_softmax_cutoff": "20000,60000",
        "adaptive_input_cutoff": "20000,60000",
    },
    "optimization": {"clip_norm": 0.1, "lr": [1.0], "max_update": 286000, "stop_min_lr": 1e-9},
    "common": {"seed": 1, "fp16": True},
    "task": {"sample_break_mode": "none"},
    "criterion": {"_name": "adaptive_loss"},
}


def test_published_values():
    base = read_yaml(CONFIGS / "wikitext-103" / "base.yaml")
    for group, values in PUBLISHED.items():
        assert values.items() <= base[group].items()


#: Entries of the dictionaries, including fairseq's four special symbols.
DICTIONARY_ENTRIES = {"wikitext-103": 267_744, "bookcorpus": 29_000, "cc100-roberta": 50_264}


class DictionaryOf(Dictionary):
    """Dictionary with a number of entries, none of which is stored."""

    def __init__(self, entries: int):
        super().__init__()
        self.entries = entries

    def __len__(self):
        return self.entries


def configuration(recipe: Recipe):
    return parsed(["DATA", *flags(recipe.settings())])


@pytest.mark.ci
@pytest.mark.parametrize("path", ONE_OF_EACH)
def test_parameter_count_matches_table(path):
    recipe = RECIPES[path]
    dictionary = DictionaryOf(DICTIONARY_ENTRIES[recipe.corpus])
    sequential = recipe.options["task"]["_name"] == "segment_language_modeling"
    task = SimpleNamespace(
        source_dictionary=dictionary, target_dictionary=dictionary, is_sequential=sequential
    )
    with torch.device("meta"):
        model = models.build_model(configuration(recipe).model, task)
    assert sum(parameter.numel() for parameter in model.parameters()) == recipe.parameters


def test_wikitext_epochs_match_paper_except_2048():
    """205 epochs (paper, section 2.1): fairseq stops in its 205th."""
    for recipe in RECIPES.values():
        if recipe.folder == "wikitext-103":
            expected = 181.6 if recipe.name.endswith("-2048") else 204.3
            tokens = recipe.updates * recipe.batch.tokens_per_update
            assert round(tokens / 103_227_021, 1) == expected, recipe.name


def test_fairseq_batches_match_recipe():
    for path, recipe in RECIPES.items():
        if recipe.corpus == "cc100-roberta":
            continue
        batch = recipe.batch
        sizes = np.full(3 * batch.sequences, batch.length)
        batches = data_utils.batch_by_size(
            np.arange(len(sizes)),
            num_tokens_fn=lambda index, sizes=sizes: sizes[index],
            num_tokens_vec=sizes,
            max_tokens=batch.max_tokens,
            required_batch_size_multiple=1,
        )
        assert [len(b) for b in batches] == [batch.sequences] * 3, path


def learning_rates(recipe: Recipe, updates: list[int]) -> list[float]:
    cfg = configuration(recipe)
    optimizer = optim.build_optimizer(cfg.optimizer, [torch.nn.Parameter(torch.zeros(1))])
    schedule = build_lr_scheduler(cfg.lr_scheduler, optimizer)
    return [schedule.step_update(update) for update in updates]


@pytest.mark.ci
def test_schedules_end_with_run():
    updates = [0, 8_000, 16_000, 151_000, 285_999]
    wikitext = learning_rates(RECIPES["wikitext-103/alibi-512"], updates)
    assert wikitext == pytest.approx([1e-7, 0.5, 1, 0.50005, 1e-4], rel=1e-3)
    for path in ("bookcorpus/alibi-512", "cc100-roberta/alibi-512"):
        recipe = RECIPES[path]
        peak = recipe.options["optimization"]["lr"][0]
        warm = recipe.options["lr_scheduler"]["warmup_updates"]
        top, last = learning_rates(recipe, [warm, recipe.updates - 1])
        assert top == pytest.approx(peak, rel=1e-3)
        assert last < 1e-3 * peak


@pytest.mark.parametrize(
    ("path", "warmup_updates"),
    [("wikitext-103/alibi-512", 28), ("cc100-roberta/alibi-512", 5)],
)
def test_schedule_of_small_scale_ends_with_run(path, warmup_updates):
    recipe = SCALES["mini"].scale_recipe(RECIPES[path])
    peak = recipe.options["optimization"]["lr"][0]
    top, last = learning_rates(recipe, [warmup_updates, recipe.updates - 1])
    assert top == pytest.approx(peak, rel=1e-3)
    assert last < 0.01 * peak


@given(
    length=st.sampled_from([64, 512, 3072]),
    sequences=st.integers(1, 150),
    passes=st.integers(1, 8),
    gpus=st.integers(1, 128),
    new_gpus=st.integers(1, 256),
)
@settings(max_examples=300, deadline=None)
def test_gpu_counts_keep_tokens_or_are_rejected(length, sequences, passes, gpus, new_gpus):
    batch = Batch(length, length * sequences, passes, gpus)
    try:
        moved = batch.on(new_gpus)
    except UserInputError:
        assert batch.sequences_per_update % new_gpus != 0
        return
    assert moved.gpus == new_gpus
    assert moved.tokens_per_update == batch.tokens_per_update
    assert moved.sequences <= batch.sequences
    assert moved.max_tokens // length == moved.sequences
