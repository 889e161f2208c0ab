"""Checkpoints of others: reading them safely, and turning the authors' released ones into ours."""

import fairseq  # noqa: F401  (registers this package)
