"""WikiText-103: the authors' published command, with every position method of the paper.

The command is that of the authors' README (github.com/ofirpress/attention_with_linear_biases). Its
optimiser, schedule, batch and seed are the same for all methods and lengths (paper, section 2.1).
"""

from __future__ import annotations

from .recipe import Batch, Corpus, Recipe, Settings, merge, recipe_name

CORPUS = Corpus(
    name="wikitext-103",
    title="WikiText-103",
    tokens=103_227_021,
    dictionary=267_744,
    tokens_note="training split, line ends counted",
)
GPUS = 8
UPDATES = 286_000
WARMUP_UPDATES = 16_000
TOKENS_PER_PASS = 9216
LENGTHS = (64, 128, 256, 512, 1024, 1536, 2048, 3072)

#: Layers and dropout of the 247M model.
BODY = {
    "decoder_layers": 16,
    "decoder_embed_dim": 1024,
    "decoder_ffn_embed_dim": 4096,
    "decoder_attention_heads": 8,
    "dropout": 0.3,
    "attention_dropout": 0.1,
    "activation_dropout": 0.1,
}
OPTIONS: Settings = {
    "common": {"seed": 1, "fp16": True},
    "task": {"_name": "language_modeling", "sample_break_mode": "none"},
    # The preset's values, written out so that Hydra can override them.
    "model": {
        "_name": "alibi_lm_wiki103",
        **BODY,
        "adaptive_input_cutoff": "20000,60000",
        "adaptive_softmax_cutoff": "20000,60000",
        "adaptive_softmax_dropout": 0.2,
    },
    "criterion": {"_name": "adaptive_loss"},
    "dataset": {
        "skip_invalid_size_inputs_valid_test": True,
        "required_batch_size_multiple": 1,
        "num_workers": 0,
    },
    "optimization": {"lr": [1.0], "clip_norm": 0.1, "stop_min_lr": 1e-9},
    "optimizer": {"_name": "nag"},
    "lr_scheduler": {
        "_name": "cosine",
        "warmup_updates": WARMUP_UPDATES,
        "warmup_init_lr": 1e-7,
        "min_lr": 1e-4,
        "lr_period_updates": UPDATES - WARMUP_UPDATES,
        "t_mult": 2.0,
        "lr_shrink": 0.75,
    },
    "checkpoint": {"no_epoch_checkpoints": True},
    "distributed_training": {"ddp_backend": "legacy_ddp"},
}
MECHANICS = {
    (
        "dataset",
        "num_workers",
    ): "a signal to the whole job would end loader processes first; changes no number",
    ("checkpoint", "no_epoch_checkpoints"): "keeps the best and the last; changes no number",
}
CHOICES = {
    **MECHANICS,
    (
        "distributed_training",
        "distributed_world_size",
    ): "the paper does not say how many; 8 give its 205 epochs",
}

# With 267,744 words, and what a method adds to that.
PARAMETERS = 246_933_504
ADDED_PARAMETERS = {
    "t5": 32 * 8,  # buckets × heads, shared by all layers
    "learned": (512 + 2) * 1024,  # positions count from 2 in fairseq
    "transformer_xl": 16 * 1024 * 1024 + 2 * 1024,  # one projection per layer; u and v, shared
}

NOTES = {
    "t5": (
        "The paper gives neither the number of T5's buckets nor the largest distance. 32 and 128 are "
        "T5's own and the defaults of Hugging Face Transformers, whose code the authors used.",
    )
}
BATCH_AT_2048 = (
    "--max-tokens 9216 holds 4 sequences of 2048, not 4.5: as published this run sees 65,536 tokens "
    "per update and 181.6 epochs where the other lengths see 73,728 and 204.3."
)


def batch_of(length: int) -> Batch:
    """The published batch: 9216 tokens per GPU in one pass, at 3072 one sequence in three passes."""
    if length == 3072:
        return Batch(length, sequences=1, update_freq=3, gpus=GPUS)
    sequences = TOKENS_PER_PASS // length
    return Batch(length, sequences, update_freq=1, gpus=GPUS, room=TOKENS_PER_PASS)


def recipe(method: str, length: int, **changes) -> Recipe:
    """The published run of a method at a length; ``changes`` replace fields of the recipe."""
    fields = {
        "notes": NOTES.get(method, ()),
        "corpus": CORPUS,
        "name": recipe_name(method, length),
        "position_method": method,
        "batch": batch_of(length),
        "updates": UPDATES,
        "parameters": PARAMETERS + ADDED_PARAMETERS.get(method, 0),
        "options": OPTIONS,
        "choices": CHOICES,
    }
    return Recipe(**{**fields, **changes})


def published_2048(method: str) -> Recipe:
    return recipe(
        method,
        2048,
        notes=(BATCH_AT_2048, f"The corrected setting is {CORPUS.name}/{method}-2048-corrected."),
    )


def corrected_2048(method: str) -> Recipe:
    """36 sequences, as many tokens per update as at the other lengths."""
    return recipe(
        method,
        2048,
        name=f"{method}-2048-corrected",
        batch=Batch(2048, sequences=3, update_freq=3, gpus=4),
        choices={
            **CHOICES,
            ("distributed_training", "distributed_world_size"): "8 GPUs cannot share 36 sequences",
        },
        notes=(
            BATCH_AT_2048,
            "This setting gives 2048 the same 73,728 tokens per update as every other length. They "
            "are 36 sequences, which 8 GPUs cannot share evenly: it runs on 4 (two runs fill a node).",
        ),
    )


def transformer_xl() -> Recipe:
    length, memory = 512, 512
    return recipe(
        "transformer_xl",
        length,
        options=merge(
            OPTIONS,
            {"task": {"_name": "segment_language_modeling"}, "model": {"mem_len": memory}},
        ),
        choices={
            **CHOICES,
            ("task", "_name"): "memory needs batches that continue one another",
            ("model", "mem_len"): "as long as a segment, as in Transformer-XL's own training",
        },
        notes=(
            "Table 7 quotes 18.3 (test, 257M parameters) from the Transformer-XL paper, arXiv "
            "1901.02860: another model (18 layers, 16 heads) and another recipe. This run puts its "
            "position method and memory into the 16-layer model of all other rows, so it has no "
            "cell of its own in the paper.",
        ),
    )


def recipes() -> list[Recipe]:
    made = []
    for method in ("alibi", "sinusoidal"):
        for length in LENGTHS:
            made.append(published_2048(method) if length == 2048 else recipe(method, length))
        made.append(corrected_2048(method))
    for method in ("rotary", "t5"):
        made += [recipe(method, length) for length in (512, 1024, 3072)]
    # Not in the paper, but trained by others with the same recipe.
    made += [recipe(method, 512, as_fast_as="sinusoidal") for method in ("learned", "none")]
    made.append(transformer_xl())
    return made
