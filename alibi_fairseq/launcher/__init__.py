"""Starting a recipe on one GPU or many nodes, and ending it so that nothing is lost."""

from .plan import Machine, plan
from .process import STOPPED_EARLY, run

__all__ = ["STOPPED_EARLY", "Machine", "plan", "run"]
