"""Everything that touches fairseq's training.

- :mod:`.patches`: workarounds, one function per upstream issue, and hooks into its commands
- :mod:`.hooks`: what is added to the training loop: the record of a training run, and stop signals
- losses, the task for Transformer-XL, and fused Adam, which are registered with fairseq
- reading checkpoints without running their code, and the authors' checkpoints
"""

import fairseq  # noqa: F401  (registers this package)
