"""Training configurations as fairseq-hydra-train and fairseq-train read them."""

from __future__ import annotations

from fairseq import options
from fairseq.dataclass.initialize import add_defaults, hydra_init
from fairseq.dataclass.utils import convert_namespace_to_omegaconf, omegaconf_no_object_check
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

import alibi_fairseq.models  # noqa: F401  (registers the models)
from alibi_fairseq.paper.recipe import CONFIGS, RECIPES

try:
    from hydra import compose, initialize_config_dir
except ImportError:  # hydra 1.0
    from hydra.experimental import compose, initialize_config_dir

_BY_METHOD = {(recipe.folder, recipe.position_method): path for path, recipe in RECIPES.items()}
#: One recipe per folder and method. Recipes of other training lengths differ only in numbers.
ONE_OF_EACH = list(_BY_METHOD.values())


def from_yaml(corpus: str, name: str, *overrides: str) -> dict:
    """Return the configuration of fairseq-hydra-train."""
    GlobalHydra.instance().clear()
    hydra_init(name)
    with initialize_config_dir(config_dir=str(CONFIGS / corpus)):
        cfg = compose(config_name=name, overrides=["task.data=DATA", *overrides])
    add_defaults(cfg)
    with omegaconf_no_object_check():
        return flat(OmegaConf.to_container(cfg, resolve=True, enum_to_str=True))


def from_flags(words: list[str]) -> dict:
    """Return the configuration of fairseq-train."""
    return flat(OmegaConf.to_container(parsed(words), resolve=True))


def parsed(words: list[str]):
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    return convert_namespace_to_omegaconf(args)


def flat(cfg: dict) -> dict:
    """Return values by ``group.option``, without translation scoring, which training ignores."""
    values = {}
    for group, group_options in cfg.items():
        if isinstance(group_options, dict) and group != "scoring":
            for option, value in group_options.items():
                values[f"{group}.{option}"] = value
    return values
