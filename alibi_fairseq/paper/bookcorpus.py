"""Toronto BookCorpus: the WikiText-103 recipe, with what the paper leaves open filled in.

The paper gives the corpus, the split's origin, the vocabulary and the tied softmax (appendix A.3).
Shortformer (arXiv 2012.15832, appendix A.5), the same author's paper before, gives 59 epochs and
"for all other hyperparameters the same values as WikiText-103".
"""

from __future__ import annotations

from . import wikitext103
from .recipe import Corpus, Recipe, Settings, merge, recipe_name

CORPUS = Corpus(
    name="bookcorpus",
    title="Toronto BookCorpus",
    tokens=700_000_000,
    dictionary=29_000,
    tokens_note="the paper's 'about 700M tokens' (A.3)",
)
UPDATES = 560_000

EDITION_WORDS = 984_846_357  # of the edition with one sentence per line

OPTIONS: Settings = merge(
    {**wikitext103.OPTIONS, "model": {"_name": "alibi_lm_bookcorpus", **wikitext103.BODY}},
    {
        "criterion": {"_name": "cross_entropy"},
        "lr_scheduler": {"lr_period_updates": UPDATES - wikitext103.WARMUP_UPDATES},
        "checkpoint": {"save_interval_updates": 2000, "keep_interval_updates": 1},
    },
)
_WIKITEXT = "WikiText-103's (Shortformer A.5)"
CHOICES = {
    **wikitext103.MECHANICS,
    ("common", "seed"): _WIKITEXT,
    ("common", "fp16"): _WIKITEXT,
    ("task", "sample_break_mode"): _WIKITEXT,
    ("model", "_name"): "width and depth are not restated for books; taken from WikiText-103",
    **{("model", option): _WIKITEXT for option in wikitext103.BODY},
    ("optimization", "max_update"): "59 epochs (Shortformer A.5) of about 700M tokens",
    **{("optimization", option): _WIKITEXT for option in ("lr", "clip_norm", "stop_min_lr")},
    ("optimizer", "_name"): _WIKITEXT,
    **{("lr_scheduler", option): _WIKITEXT for option in wikitext103.OPTIONS["lr_scheduler"]},
    ("lr_scheduler", "lr_period_updates"): "one cosine over the whole run, as on WikiText-103",
    ("dataset", "max_tokens"): "WikiText-103's batch",
    ("distributed_training", "distributed_world_size"): "as on WikiText-103",
    ("checkpoint", "save_interval_updates"): "an epoch lasts 9,500 updates; lose less than that",
    ("checkpoint", "keep_interval_updates"): "one is enough to resume from",
}
NOTES = (
    f"Of the edition with {EDITION_WORDS:,} words, {UPDATES:,} updates are at most "
    f"{UPDATES * wikitext103.GPUS * wikitext103.TOKENS_PER_PASS / EDITION_WORDS:.1f} epochs: it is "
    "larger than the 700M tokens that the paper states.",
    "The cost is that of WikiText-103's model, whose output layer is another; the paper gives no "
    "speed on books.",
    "The paper's tables print 247M parameters for this model. Its body has 201.5M and 29,000 tied "
    "word pieces add 29.7M; untied they would add 59.4M (260.9M). We tie, as the paper's text says.",
)
PARAMETERS = 231_235_584


def recipe(method: str, length: int) -> Recipe:
    return Recipe(
        corpus=CORPUS,
        name=recipe_name(method, length),
        position_method=method,
        batch=wikitext103.batch_of(length),
        updates=UPDATES,
        parameters=PARAMETERS,
        options=OPTIONS,
        choices=CHOICES,
        notes=NOTES,
    )


def recipes() -> list[Recipe]:
    return [recipe(m, length) for m in ("alibi", "sinusoidal") for length in (512, 1024, 3072)]
