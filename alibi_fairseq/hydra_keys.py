"""Options in messages as keys of a YAML file: ``--max-tokens`` is ``dataset.max_tokens`` there."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass

#: Flags whose keys have other names.
_NAMES = {
    "--task": "task._name",
    "--arch": "model._name",
    "--criterion": "criterion._name",
    "--optimizer": "optimizer._name",
    "--lr-scheduler": "lr_scheduler._name",
}
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def as_keys(sentence: str) -> str:
    """A sentence with fairseq's flags as keys; flags of other commands stay."""
    if not _FLAG.search(sentence):
        return sentence
    keys = keys_of_flags()
    return _FLAG.sub(lambda found: keys.get(found[0], found[0]), sentence)


def keys_of_flags() -> dict[str, str]:
    """``{"--max-tokens": "dataset.max_tokens", …}`` for all of fairseq's options and ours."""
    from fairseq.dataclass.configs import FairseqConfig
    from fairseq.models import MODEL_DATACLASS_REGISTRY
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_DATACLASS_REGISTRY

    groups = [(field.name, field.type) for field in fields(FairseqConfig)]
    groups += [("task", kind) for kind in TASK_DATACLASS_REGISTRY.values()]
    groups += [("model", kind) for kind in MODEL_DATACLASS_REGISTRY.values()]
    for group, registry in REGISTRIES.items():
        groups += [(group, kind) for kind in registry["dataclass_registry"].values()]
    keys = dict(_NAMES)
    for group, kind in groups:
        for field in fields(kind) if is_dataclass(kind) else ():
            keys.setdefault("--" + field.name.replace("_", "-"), f"{group}.{field.name}")
    return keys
