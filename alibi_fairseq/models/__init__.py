"""fairseq models around the pure-torch core."""

from . import plugin_options  # noqa: F401 (adds their options to the models)
from .language_model import AlibiLanguageModel

__all__ = ["AlibiLanguageModel"]
