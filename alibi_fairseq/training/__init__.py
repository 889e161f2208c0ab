"""Additions to a fairseq training: its record, stop signals, durable saving, and fused Adam.

:mod:`.hooks` is the only module that adds to fairseq's training loop.
:mod:`alibi_fairseq.fairseq_patches` calls these functions before and after it.
"""

import fairseq  # noqa: F401  (registers this package)
