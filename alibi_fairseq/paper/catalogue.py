"""All recipes by name."""

from __future__ import annotations

from ..errors import BadInput, did_you_mean
from . import bookcorpus, cc100_roberta, extend, wikitext103
from .recipe import Corpus, Recipe

MODULES = (wikitext103, bookcorpus, cc100_roberta)
CORPORA: dict[str, Corpus] = {module.CORPUS.name: module.CORPUS for module in MODULES}
#: Folders of ``configs/`` and their titles: one per corpus of the paper, and what goes beyond it.
FOLDERS = {corpus.name: corpus.title for corpus in CORPORA.values()} | {extend.FOLDER: extend.TITLE}
RECIPES: dict[str, Recipe] = {
    recipe.path: recipe for module in (*MODULES, extend) for recipe in module.recipes()
}


def recipes_of(folder: str) -> list[Recipe]:
    """The recipes of one folder, in order."""
    return [recipe for recipe in RECIPES.values() if recipe.folder == folder]


def find_recipe(path: str) -> Recipe:
    """The recipe called ``folder/name``; the path of its file in ``configs/`` is understood too."""
    name = path.removeprefix("configs/").removesuffix(".yaml").removesuffix(".sh")
    if name not in RECIPES:
        hint = did_you_mean(name, RECIPES)
        raise BadInput(f"There is no recipe '{path}'.{hint} configs/README.md lists them all.")
    return RECIPES[name]
