"""Additions to a fairseq training: its record, stop signals, durable saving, and fused Adam.

Nothing here changes fairseq. :mod:`alibi_fairseq.fairseq_patches` calls these functions from
fairseq's training loop.
"""

import fairseq  # noqa: F401  (registers this package)
