"""Checks of a position method on a small random model, for ``alibi-fairseq check``."""
