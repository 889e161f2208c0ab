"""How the tests read configurations: as fairseq-hydra-train and as fairseq-train would."""

from __future__ import annotations

from fairseq import options
from fairseq.dataclass.initialize import add_defaults, hydra_init
from fairseq.dataclass.utils import convert_namespace_to_omegaconf, omegaconf_no_object_check
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from alibi_fairseq.paper.recipe import CONFIGS

try:
    from hydra import compose, initialize_config_dir
except ImportError:  # hydra 1.0
    from hydra.experimental import compose, initialize_config_dir


def from_yaml(corpus: str, name: str, *overrides: str) -> dict:
    """The configuration that fairseq-hydra-train would run with."""
    GlobalHydra.instance().clear()
    hydra_init(name)
    with initialize_config_dir(config_dir=str(CONFIGS / corpus)):
        cfg = compose(config_name=name, overrides=["task.data=DATA", *overrides])
    add_defaults(cfg)
    with omegaconf_no_object_check():
        return plain(OmegaConf.to_container(cfg, resolve=True, enum_to_str=True))


def from_flags(words: list[str]) -> dict:
    """The configuration that fairseq-train would run with."""
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    return plain(OmegaConf.to_container(convert_namespace_to_omegaconf(args), resolve=True))


def plain(cfg: dict) -> dict:
    """{group.option: value}, without what scores translations (training never looks at it)."""
    values = {}
    for group, options_of_group in cfg.items():
        if group == "scoring":
            continue
        if isinstance(options_of_group, dict):
            values.update({f"{group}.{k}": value for k, value in options_of_group.items()})
        else:
            values[group] = options_of_group
    return values
