"""``configs/README.md``: all recipes in one table."""

from __future__ import annotations

from ..reporting import paper
from .catalogue import CORPORA, recipes_of
from .cost import gpu_hours
from .recipe import Recipe
from .targets import expected, items_of

HEAD = """\
# The paper's training runs

Written by `python -m alibi_fairseq.recipes` from the descriptions in `alibi_fairseq/recipes/`, as is
every file in this folder; a test compares the two forms of each recipe field by field.

| file | for |
|---|---|
| `CORPUS/NAME.yaml` | `alibi-fairseq hydra-train --config-dir configs/CORPUS --config-name NAME task.data=DATA_BIN checkpoint.save_dir=FOLDER` |
| `CORPUS/NAME.sh` | `configs/CORPUS/NAME.sh DATA_BIN --save-dir FOLDER`: the same with `fairseq-train` |
| `CORPUS/run_config/*.yaml` | `+run_config=1_gpu` behind `--config-name`: other machines, tokens per update kept; the head of each recipe says which one |

Another number of GPUs keeps the tokens per update when `--update-freq` changes in proportion. Where
the paper is silent a value is marked "our choice" with the reason, in the recipe itself.

"Expected" is the paper's validation perplexity at the training length. GPU hours are for one V100,
at the speeds the paper measured. `scripts/reproduce.sh` runs all that a table needs
([docs/paper-runs.md](../docs/paper-runs.md)).
"""

COLUMNS = (
    "recipe",
    "expected",
    "table",
    "tokens per update",
    "updates",
    "epochs",
    "parameters",
    "V100 hours",
)


def index() -> str:
    """The whole file."""
    parts = [HEAD]
    for name, corpus in CORPORA.items():
        rows = [row(recipe) for recipe in recipes_of(name)]
        table = [COLUMNS, ["---"] + ["--:"] * (len(COLUMNS) - 1), *rows]
        lines = ["| " + " | ".join(cells) + " |" for cells in table]
        parts.append(f"\n## {corpus.title}\n\n" + "\n".join(lines) + "\n")
    return "".join(parts)


def row(recipe: Recipe) -> list[str]:
    items = items_of(recipe)
    hours = gpu_hours(recipe)
    return [
        f"[{recipe.name}]({recipe.path}.yaml)",
        at_train_length(recipe),
        paper.about(items[0])["name"].removeprefix("Table ") if items else "–",
        f"{recipe.batch.tokens_per_update:,}",
        f"{recipe.updates:,}",
        f"{recipe.epochs:.1f}",
        f"{recipe.parameters:,}",
        f"{hours:,.0f}" if hours else "–",
    ]


def at_train_length(recipe: Recipe) -> str:
    for item in items_of(recipe):
        for point in expected(item, recipe):
            if point.length == point.stride == recipe.train_length and point.subset == "valid":
                return f"{point.perplexity:.2f}"
    return "–"
