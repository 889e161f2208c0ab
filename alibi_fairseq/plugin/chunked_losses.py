"""fairseq's ``adaptive_loss`` and ``cross_entropy`` without the matrices of scores.

They are ``--criterion chunked_adaptive_loss`` and ``chunked_cross_entropy``.

Shapes: n tokens, k tokens of one tail cluster, C model width, V words.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from fairseq.criterions import register_criterion
from fairseq.criterions.adaptive_loss import AdaptiveLoss, AdaptiveLossConfig
from fairseq.criterions.cross_entropy import CrossEntropyCriterion, CrossEntropyCriterionConfig
from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor, nn

from ..errors import UserInputError
from ..models.output_projection import OutputProjection
from .linear_cross_entropy import linear_cross_entropy


@register_criterion("chunked_adaptive_loss", dataclass=AdaptiveLossConfig)
class ChunkedAdaptiveLoss(AdaptiveLoss):
    """Loss, gradient, and logs of fairseq's ``adaptive_loss``, dropout included.

    Under ``--fp16`` the loss itself is summed in fp32, where fairseq's overflows at about 65,504
    nats per batch.

    Raises:
        UserInputError: the model has no adaptive softmax.
    """

    def forward(self, model: Any, sample: dict, reduce: bool = True):
        """Compute the loss, the sample size, and the logs of a batch.

        The loss is a sum in nats, or one value per token without ``reduce``.
        """
        softmax = getattr(model.decoder, "adaptive_softmax", None)
        if softmax is None:
            raise UserInputError(
                "--criterion chunked_adaptive_loss needs a model with --adaptive-softmax-cutoff. "
                "Use --criterion chunked_cross_entropy for this model."
            )
        targets = sample["target"]  # (B, T)
        # Before the model is called: a GPU has little left to do then, and the host waits for it.
        clusters = find_clusters(softmax.cutoff, targets.flatten(), self.padding_idx)
        features = model(**sample["net_input"])[0].flatten(0, 1)  # (n, C)
        loss = adaptive_cross_entropy(softmax, features, clusters, self.padding_idx, reduce)
        return make_logging_output(self, loss, targets, clusters.counted)


@register_criterion("chunked_cross_entropy", dataclass=CrossEntropyCriterionConfig)
class ChunkedCrossEntropy(CrossEntropyCriterion):
    """Loss, gradient, and logs of fairseq's ``cross_entropy``.

    The decoder's output layer is one matrix. The model's forward pass stops at the features.

    Raises:
        UserInputError: the output layer is something else.
    """

    def forward(self, model: Any, sample: dict, reduce: bool = True):
        """Compute the loss, the sample size, and the logs of a batch.

        The loss is a sum in nats, or one value per token without ``reduce``.
        """
        weight = output_weight(model.decoder)
        features, _ = model(**sample["net_input"], features_only=True)  # (B, T, C)
        targets = sample["target"]  # (B, T)
        excluded = excluded_symbols(model.decoder, targets)
        loss = linear_cross_entropy(
            targets.flatten(),
            (features.flatten(0, 1), weight),
            ignore_index=self.padding_idx,
            reduce=reduce,
            excluded=excluded,
        )
        return make_logging_output(self, loss, targets, sample["ntokens"])


def make_logging_output(criterion: Any, loss: Tensor, targets: Tensor, tokens: int):
    """Return a loss, the number that fairseq divides its gradient by, and the logs of a batch."""
    sentences = targets.size(0)
    sample_size = sentences if criterion.sentence_avg else tokens
    logs = {"loss": loss.data, "ntokens": tokens, "nsentences": sentences}
    logs["sample_size"] = sample_size
    return loss, sample_size, logs


def output_weight(decoder: Any) -> Tensor:
    """Return the weight (V, C) of the output layer.

    Raises:
        UserInputError: it is an adaptive softmax, or a layer that a plugin has changed.
    """
    if getattr(decoder, "adaptive_softmax", None) is not None:
        raise UserInputError(
            "This model has an adaptive softmax, which --criterion chunked_cross_entropy does not "
            "train. Use --criterion chunked_adaptive_loss."
        )
    if not has_plain_output(decoder):
        raise UserInputError(
            "This model has an output layer of its own, which --criterion chunked_cross_entropy "
            "does not train. Use --criterion cross_entropy."
        )
    return decoder.output_projection.weight


def has_plain_output(decoder: Any) -> bool:
    """Return True if the scores of a decoder are products with the weights of its output layer."""
    if type(decoder).output_layer is not TransformerDecoderBase.output_layer:
        return False
    layer = decoder.output_projection
    return type(layer) in (nn.Linear, OutputProjection) and layer.bias is None


def excluded_symbols(decoder: Any, targets: Tensor) -> Tensor | None:
    """Return the symbols that the output layer excludes, (k,), or None.

    Raises:
        UserInputError: a target is one of them, so that no probability can be given to the text.
    """
    excluded = getattr(decoder.output_projection, "excluded", None)
    if excluded is None:
        return None
    impossible = torch.isin(targets, excluded) & targets.ne(decoder.padding_idx)
    if impossible.any():
        symbol = decoder.dictionary[targets[impossible][0].item()]
        raise UserInputError(
            f"The text contains {symbol}, which this imported model cannot predict. Prepare the "
            "text with the tokenizer of the model."
        )
    return excluded


class Clusters(NamedTuple):
    """Targets of a batch by cluster of an adaptive softmax; cluster 0 is the head.

    Attributes:
        targets: (n,) tokens.
        cluster_of: (n,) cluster of each target.
        sizes: number of targets of each cluster.
        counted: number of targets that are not padding.
    """

    targets: Tensor
    cluster_of: Tensor
    sizes: list[int]
    counted: int


def find_clusters(cutoff: list[int], targets: Tensor, padding_idx: int) -> Clusters:
    """Assign targets (n,) to clusters; ``cutoff`` has one past the last token of each."""
    cluster_of = torch.stack([targets >= end for end in cutoff]).sum(dim=0)  # (n,)
    # All numbers in one transfer, for which the host waits. The loss has no other one. The tails
    # need the sizes, since each is computed for its own targets.
    numbers = [(cluster_of == cluster).sum() for cluster in range(len(cutoff))]
    numbers.append((targets != padding_idx).sum())
    *sizes, counted = torch.stack(numbers).tolist()
    return Clusters(targets, cluster_of, sizes, counted)


def adaptive_cross_entropy(
    softmax: Any,
    features: Tensor,
    clusters: Clusters,
    padding_idx: int | None = None,
    reduce: bool = True,
) -> Tensor:
    """Compute −ln p of the targets under fairseq's adaptive softmax, as in its ``adaptive_loss``.

    Args:
        softmax: a ``fairseq.modules.AdaptiveSoftmax``. Its first cutoff ends the frequent words of
            the head; behind them the head has one score per tail cluster.
        features: (n, C) inputs of the softmax.
        clusters: the targets.
        padding_idx: targets without a loss. fairseq also ignores this number inside each cluster,
            where it is the cluster's word ``padding_idx``; so do we, for equal losses.
        reduce: sum over tokens.

    Returns:
        A scalar, or (n,) without ``reduce``, in nats.
    """
    features = softmax.dropout_module(features)
    targets = clusters.targets
    cluster_of = clusters.cluster_of
    in_head = torch.where(cluster_of == 0, targets, softmax.cutoff[0] + cluster_of - 1)
    loss_of = partial(linear_cross_entropy, ignore_index=padding_idx, reduce=reduce)
    loss = loss_of(in_head, *head_parts(softmax.head, features))
    members = cluster_of.argsort(stable=True).split(clusters.sizes)
    for index, (project, dropout, output) in enumerate(softmax.tail):
        chosen = members[index + 1]  # (k,)
        if len(chosen) == 0:  # as in fairseq, the cluster's weights then have no gradient
            continue
        hidden = dropout(project(features.index_select(0, chosen)))
        of_tail = loss_of(targets[chosen] - softmax.cutoff[index], (hidden, output.weight))
        loss = loss + of_tail if reduce else loss.index_add(0, chosen, of_tail)
    return loss


def head_parts(head: Any, features: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return inputs and weights of the head: one matrix, or word and cluster weights."""
    if isinstance(head, nn.Linear):
        return [(features, head.weight)]
    words = head.word_proj
    inputs = features
    if isinstance(words, nn.Sequential):  # embeddings narrower than the model
        project, words = words
        inputs = project(features)
    return [(inputs, words.weight), (features, head.class_proj.weight)]
