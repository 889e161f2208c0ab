"""The paper's training runs, described once.

From these descriptions come ``configs/`` (YAML for ``fairseq-hydra-train``, shell lines for
``fairseq-train``; ``python -m alibi_fairseq.recipes`` writes them), the launcher's flags for any
number of GPUs, and the costs that ``reproduce --dry-run`` prints.
"""

from .batching import Batch
from .catalogue import CORPORA, RECIPES, find_recipe, recipes_of
from .overlays import smoke
from .recipe import Corpus, Recipe, Settings, flags, merge

__all__ = [
    "CORPORA",
    "RECIPES",
    "Batch",
    "Corpus",
    "Recipe",
    "Settings",
    "find_recipe",
    "flags",
    "merge",
    "recipes_of",
    "smoke",
]
