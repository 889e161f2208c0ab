"""Starts a recipe on one GPU or many nodes, and stops it without losing updates."""

from ..errors import STOPPED_EARLY
from .plan import Machine, plan
from .process import run

__all__ = ["STOPPED_EARLY", "Machine", "plan", "run"]
