"""``--criterion chunked_cross_entropy``: fairseq's ``cross_entropy`` without the matrix of scores."""

from __future__ import annotations

from typing import Any

from fairseq.criterions import register_criterion
from fairseq.criterions.cross_entropy import CrossEntropyCriterion, CrossEntropyCriterionConfig
from torch import Tensor, nn

from ..errors import BadInput
from .linear_cross_entropy import linear_cross_entropy


@register_criterion("chunked_cross_entropy", dataclass=CrossEntropyCriterionConfig)
class ChunkedCrossEntropy(CrossEntropyCriterion):
    """Loss, gradient and logs of fairseq's ``cross_entropy``, for decoders whose output layer is one
    matrix. The model's forward pass stops at the features.

    Raises:
        BadInput: the output layer is something else.
    """

    def forward(self, model: Any, sample: dict, reduce: bool = True):
        """Loss (a sum in nats, or one per token without ``reduce``), sample size and logs."""
        features, _ = model(**sample["net_input"], features_only=True)  # (B, T, C)
        targets = sample["target"]
        loss = linear_cross_entropy(
            targets.flatten(),
            (features.flatten(0, 1), output_weight(model.decoder)),
            ignore_index=self.padding_idx,
            reduce=reduce,
        )
        sentences = targets.size(0)
        sample_size = sentences if self.sentence_avg else sample["ntokens"]
        logs = {
            "loss": loss.data,
            "ntokens": sample["ntokens"],
            "nsentences": sentences,
            "sample_size": sample_size,
        }
        return loss, sample_size, logs


def output_weight(decoder: nn.Module) -> Tensor:
    """(V, C) weight of the output layer; raises BadInput if that is not a matrix."""
    if getattr(decoder, "adaptive_softmax", None) is not None:
        raise BadInput(
            "This model has an adaptive softmax, which --criterion chunked_cross_entropy does not "
            "train; use --criterion chunked_adaptive_loss."
        )
    layer = getattr(decoder, "output_projection", None)
    if not isinstance(layer, nn.Linear) or layer.bias is not None:
        raise BadInput(
            "--criterion chunked_cross_entropy needs an output layer that is a linear layer without "
            "bias; use --criterion cross_entropy for this model."
        )
    return layer.weight
