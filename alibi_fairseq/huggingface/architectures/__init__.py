"""Architectures of transformers that hold some of our models exactly, one per file.

Each maps the other way round as well: what it exports it can import.
"""

from __future__ import annotations

from . import bloom, gpt_neox, opt, xglm
from .base import Architecture

#: The architecture that each position method can be exported to without code of ours.
NATIVE: dict[str, Architecture] = {
    "alibi": bloom.Bloom(),
    "learned": opt.Opt(),
    "sinusoidal": xglm.Xglm(),
    "rotary": gpt_neox.GptNeoX(),
    "none": gpt_neox.GptNeoX(),
}

__all__ = ["NATIVE", "Architecture"]
