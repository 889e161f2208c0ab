"""How large: the paper's runs, small real ones, or ones that only show that everything works."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from .recipe import Batch, Recipe, Settings, merge


@dataclass(frozen=True)
class Scale:
    """How a recipe is scaled down. Position method, length, task, loss, optimiser and the kind of
    schedule stay.

    Attributes:
        name: as on the command line.
        caveat: how far its results go, for the header of a table.
        updates: of every run; None: the recipe's.
        tokens: per update, approximately.
        vocabulary: the most frequent words or pieces that are kept; None: all.
        cutoffs: of adaptive input and softmax, where the recipe has them.
        model: options of the model.
        checkpoint: options of checkpointing.
        excerpt: tokens of each split that are used; empty: all.
        prepare: further flags of a corpus's preparation.
        log_interval: updates between two lines of the training's log.
    """

    name: str
    caveat: str
    updates: int | None = None
    tokens: int = 0
    vocabulary: int | None = None
    cutoffs: str = ""
    model: dict[str, object] = field(default_factory=dict)
    checkpoint: dict[str, object] = field(default_factory=dict)
    excerpt: dict[str, int] = field(default_factory=dict)
    prepare: dict[str, list[str]] = field(default_factory=dict)
    log_interval: int = 100

    def updates_of(self, recipe: Recipe, updates: int) -> int:
        """The number of updates at this scale that is the same share of the run."""
        if self.updates is None:
            return updates
        return max(1, round(self.updates * updates / recipe.updates))

    def recipe(self, recipe: Recipe) -> Recipe:
        """The run at this scale: its schedule shortened, its model as narrow as the scale says."""
        if self.updates is None:
            return recipe
        schedule: dict[str, Any] = recipe.options["lr_scheduler"]
        warmup = max(1, round(schedule["warmup_updates"] * self.updates / recipe.updates))
        end = (
            {"lr_period_updates": self.updates - warmup}
            if schedule["_name"] == "cosine"
            else {"total_num_update": float(self.updates)}
        )
        options: Settings = {
            "model": dict(self.model),
            "lr_scheduler": {"warmup_updates": warmup, **end},
            "checkpoint": self.checkpoint,
            # The same loss in less time, most of which a small model spends on its output layer.
            "criterion": {"_name": f"chunked_{recipe.options['criterion']['_name']}"},
        }
        if "adaptive_input_cutoff" in recipe.options["model"]:
            options["model"] |= dict.fromkeys(
                ("adaptive_input_cutoff", "adaptive_softmax_cutoff"), self.cutoffs
            )
        sequences = max(1, self.tokens // recipe.train_length)
        return replace(
            recipe,
            batch=Batch(recipe.train_length, sequences, update_freq=1, gpus=1),
            updates=self.updates,
            options=merge(recipe.options, options),
        )

    def parameters(self, recipe: Recipe) -> int:
        """Parameters of a recipe's model at this scale, about; embeddings are tied."""
        if self.vocabulary is None:
            return PARAMETERS[recipe.corpus]
        model: dict[str, Any] = self.recipe(recipe).options["model"]
        width, inner = model["decoder_embed_dim"], model["decoder_ffn_embed_dim"]
        layer = 4 * width * width + 2 * width * inner + 13 * width
        # Adaptive embeddings have a quarter of the width for most words.
        embedding = width // 4 if "adaptive_input_cutoff" in model else width
        return model["decoder_layers"] * layer + (self.vocabulary + 4) * embedding

    def preparation(self, corpus: str) -> list[str]:
        """Flags of ``alibi-fairseq prepare`` at this scale."""
        if not self.vocabulary or corpus == "wikitext-103":
            return []  # the excerpt keeps the frequent words
        return ["--vocab-size", str(self.vocabulary), *self.prepare.get(corpus, [])]


#: Of the paper's models, without what a position method adds.
PARAMETERS = {
    "wikitext-103": 246_933_504,
    "bookcorpus": 231_235_584,
    "cc100-roberta": 1_361_901_568,
}


PAPER = Scale("paper", "the paper's runs")
#: Less than one epoch, so no dropout; on a CPU that of attention would cost more than attention.
_NO_DROPOUT = dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), 0.0)
MINI = Scale(
    name="mini",
    caveat="small models, trained briefly: how position methods compare, not how good they are",
    updates=500,
    tokens=6144,
    vocabulary=10_000,
    cutoffs="1000,4000",
    model={
        "decoder_layers": 4,
        "decoder_embed_dim": 128,
        "decoder_ffn_embed_dim": 512,
        "decoder_attention_heads": 8,
        **_NO_DROPOUT,
    },
    checkpoint={"save_interval_updates": 100, "keep_interval_updates": 1},
    excerpt={"train": 20_000_000, "valid": 32_768, "test": 32_768},
    prepare={"cc100-roberta": ["--valid-tokens", "33000", "--shards", "1"]},
    log_interval=10,
)
SMOKE = Scale(
    name="smoke",
    caveat="a few updates of tiny models: that every step works, and nothing else",
    updates=10,
    tokens=3072,
    vocabulary=600,
    cutoffs="100,500",
    model={
        "decoder_layers": 2,
        "decoder_embed_dim": 64,
        "decoder_ffn_embed_dim": 128,
        "decoder_attention_heads": 8,
    },
    # Windows that slide by one token cost a forward pass each: as few tokens as still show a step.
    excerpt={"train": 100_000, "valid": 1536, "test": 1536},
    prepare={"cc100-roberta": ["--valid-tokens", "5000", "--shards", "1"]},
    log_interval=1,
)
SCALES = {scale.name: scale for scale in (PAPER, MINI, SMOKE)}
