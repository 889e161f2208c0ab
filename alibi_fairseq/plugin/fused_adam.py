"""``--optimizer fused_adam``: Adam in one pass over the parameters.

fairseq's ``adam`` reads and writes every parameter and its state in ten operations, and on a GPU
launches ten kernels for each, unless NVIDIA's apex is installed. PyTorch's fused AdamW needs one,
also on a CPU.

The update is the same except for eps, which PyTorch adds to √(v / (1 − β₂^t)) and fairseq to √v.
"""

from __future__ import annotations

import torch
from fairseq.optim import FairseqOptimizer, register_optimizer
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig

from ..errors import UserInputError


@register_optimizer("fused_adam", dataclass=FairseqAdamConfig)
class FusedAdam(FairseqOptimizer):
    """Adam with decoupled weight decay, options as for ``adam`` without ``--fp16-adam-stats``."""

    def __init__(self, cfg: FairseqAdamConfig, params):
        super().__init__(cfg)
        if cfg.fp16_adam_stats:
            raise UserInputError(
                "--fp16-adam-stats has no effect on --optimizer fused_adam. Remove it, or use "
                "--optimizer adam with NVIDIA's apex."
            )
        self._optimizer = torch.optim.AdamW(params, fused=True, **self.optimizer_config)

    @property
    def optimizer_config(self) -> dict:
        """Arguments of the optimizer, as of fairseq's ``adam``."""
        return FairseqAdam.optimizer_config.fget(self)

    @property
    def supports_flat_params(self) -> bool:
        """``--fp16`` and ``--bf16`` may keep all parameters in one fp32 tensor."""
        return True
