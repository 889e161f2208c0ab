"""fairseq's configuration of a training in half of the time.

fairseq passes its 300 options to hydra as text. For each training, hydra parses all of them, and
copies the schemas of all components. Here it parses equal options once, and shares the schemas.
"""

from __future__ import annotations

import copy
import functools

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser


def cache_hydra(patch: pytest.MonkeyPatch) -> None:
    try:
        from hydra._internal.config_repository import CachingConfigRepository
    except ImportError:
        return  # hydra 1.0
    parse = functools.cache(OverridesParser.create().parse_rule)

    def parse_once(self, text: str, rule: str):
        return copy.copy(parse(text, rule))

    def share(self, repository) -> None:
        self.delegate = repository
        self.cache = {}

    patch.setattr(OverridesParser, "parse_rule", parse_once)
    patch.setattr(CachingConfigRepository, "__init__", share)
