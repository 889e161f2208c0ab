"""CC100+RoBERTa, 1.3B parameters (paper, section 4.2): the size is published, the recipe is not."""

from __future__ import annotations

from .recipe import Batch, Corpus, Recipe, Settings, recipe_name

GPUS = 128
UPDATES = 50_000
TOKENS_PER_PASS = 2048
PASSES = 8
DICTIONARY = 50_264

CORPUS = Corpus(
    name="cc100-roberta",
    title="CC100+RoBERTa",
    tokens=UPDATES * GPUS * TOKENS_PER_PASS * PASSES,
    dictionary=DICTIONARY,
    tokens_note="'one epoch' (4.2): 461 GB at about 4.4 bytes per token",
)

OPTIONS: Settings = {
    "common": {"seed": 1, "fp16": True, "memory_efficient_fp16": True},
    "task": {"_name": "language_modeling", "sample_break_mode": "none"},
    # The preset's values, written out so that Hydra can override them.
    "model": {
        "_name": "alibi_lm_1b3",
        "decoder_layers": 25,
        "decoder_embed_dim": 2048,
        "decoder_ffn_embed_dim": 8192,
        "decoder_attention_heads": 16,
        "activation_fn": "relu",
        "decoder_normalize_before": True,
        "no_decoder_final_norm": False,
        "share_decoder_input_output_embed": True,
        "dropout": 0.0,
        "attention_dropout": 0.0,
    },
    "criterion": {"_name": "cross_entropy"},
    "dataset": {
        "skip_invalid_size_inputs_valid_test": True,
        "required_batch_size_multiple": 1,
        "num_workers": 0,
    },
    "optimization": {"lr": [2e-4], "clip_norm": 1.0},
    "optimizer": {
        "_name": "adam",
        "adam_betas": "(0.9, 0.98)",
        "adam_eps": 1e-8,
        "weight_decay": 0.1,
    },
    "lr_scheduler": {
        "_name": "polynomial_decay",
        "warmup_updates": 500,
        "total_num_update": float(UPDATES),
    },
    "checkpoint": {
        "no_epoch_checkpoints": True,
        "save_interval_updates": 500,
        "keep_interval_updates": 1,
    },
    "distributed_training": {"ddp_backend": "legacy_ddp"},
}
_GPT3 = "GPT-3 XL's (arXiv 2005.14165, Table 2.1), the usual one for 1.3B"
CHOICES = {
    ("common", "seed"): "as on WikiText-103",
    ("common", "fp16"): "V100s have no bf16",
    ("common", "memory_efficient_fp16"): "with full fp16 the optimiser would not fit 32 GB",
    ("task", "sample_break_mode"): "as on WikiText-103: no token is padding",
    ("model", "activation_fn"): "as on WikiText-103",
    ("model", "decoder_normalize_before"): "pre-norm, as on WikiText-103",
    ("model", "no_decoder_final_norm"): "a final norm, as in GPT-2 and GPT-3",
    ("model", "share_decoder_input_output_embed"): "tied, as for books (A.3)",
    ("model", "dropout"): "one epoch: no text is seen twice",
    ("model", "attention_dropout"): "one epoch: no text is seen twice",
    ("criterion", "_name"): "tied softmax; adaptive softmax pays only for very large vocabularies",
    (
        "dataset",
        "num_workers",
    ): "a signal to the whole job would end loader processes first; changes no number",
    ("dataset", "max_tokens"): "one sequence of 2048 fits 32 GB by the paper's own 29.3 GB",
    ("optimization", "update_freq"): "2,097,152 tokens: 50k updates are then one epoch of 461 GB",
    ("optimization", "lr"): _GPT3,
    ("optimization", "clip_norm"): "GPT-3's",
    ("optimizer", "_name"): "GPT-3's",
    ("optimizer", "adam_betas"): "fairseq's usual pair for language models",
    ("optimizer", "adam_eps"): "GPT-3's",
    ("optimizer", "weight_decay"): "GPT-3's (arXiv 2005.14165, appendix B)",
    ("lr_scheduler", "_name"): "to zero at the last update, as one epoch has no second half",
    ("lr_scheduler", "warmup_updates"): "1% of the run",
    ("checkpoint", "no_epoch_checkpoints"): "keeps the best and the last; changes no number",
    ("checkpoint", "save_interval_updates"): "26 minutes at the paper's speed",
    ("checkpoint", "keep_interval_updates"): "one is enough to resume from",
}
NOTES = (
    "The paper says 1.3B parameters. The 25 layers have 1.26B; with a tied embedding of 50,264 entries, "
    "as of a byte-level BPE like GPT-2's, they are 1.36B. The tokeniser is not published.",
    "Data: give the shards joined by ':' (data-bin/shard00:data-bin/shard01:…). fairseq then takes "
    "each shard as an epoch; validation and checkpoints follow save_interval_updates as well.",
)
PARAMETERS = 1_361_901_568


def recipe(method: str, length: int) -> Recipe:
    return Recipe(
        corpus=CORPUS,
        name=recipe_name(method, length),
        position_method=method,
        batch=Batch(length, TOKENS_PER_PASS // length, update_freq=PASSES, gpus=GPUS),
        updates=UPDATES,
        parameters=PARAMETERS,
        options=OPTIONS,
        choices=CHOICES,
        notes=NOTES,
    )


def recipes() -> list[Recipe]:
    return [recipe(m, length) for m in ("alibi", "sinusoidal") for length in (512, 1024, 2048)]
