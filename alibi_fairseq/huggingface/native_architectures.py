"""The architecture of transformers that is closest to a model."""

from __future__ import annotations

from .architectures import Architecture, Bloom, GptNeoX, Opt, Xglm
from .configuration_alibi_lm import AlibiLmConfig
from .llama import Llama, Qwen3

#: All architectures to which models are exported, and from which they are imported.
ARCHITECTURES: tuple[Architecture, ...] = (Bloom(), Opt(), Xglm(), GptNeoX(), Llama(), Qwen3())


def closest_architecture(description: AlibiLmConfig) -> tuple[Architecture | None, list[str]]:
    """Return the closest architecture with a model's position method, and the differences.

    Returns:
        The architecture, or None if none has the method; and the values that it requires and the
        model does not have, such as ``final_norm = True``. The list is empty if both are equal.
    """
    closest: Architecture | None = None
    differences: list[str] = []
    for architecture in ARCHITECTURES:
        if description.position_method not in architecture.methods:
            continue
        unequal = []
        for field, value in architecture.required_fields(description).items():
            if getattr(description, field) != value:
                unequal.append(f"{field} = {value}")
        if closest is None or len(unequal) < len(differences):
            closest = architecture
            differences = unequal
    return closest, differences
