"""fairseq models around the pure-torch core."""

from .language_model import AlibiLanguageModel

__all__ = ["AlibiLanguageModel"]
