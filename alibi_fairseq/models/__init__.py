"""fairseq models around the pure-torch core."""

import fairseq  # noqa: F401  (registers this package)

from . import plugin_options  # noqa: F401 (adds their options to the models)
from .language_model import AlibiLanguageModel

__all__ = ["AlibiLanguageModel"]
