"""Output layer of a causal language model, computed for some positions at a time.

A whole (tokens × vocabulary) matrix would take gigabytes. Some models scale or cap their logits
after the output layer, so applying this layer alone gives different scores. For these models, their
own ``forward`` computes the logits. It receives a single token, and a hook replaces the input of
the output layer with the hidden states of the positions.

Shapes: B windows, T inputs of a window, S tokens it scores, C model width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from ..errors import UserInputError

#: Memory of the logits computed at a time, in bytes.
LOGITS_BYTES = {"cpu": 128 * 10**6, "cuda": 2 * 10**9}
#: Largest number of random tokens on which the output layer is checked.
NUM_CHECKED = 16
#: Largest difference between logits that is attributed to rounding, in standard deviations.
MAX_RELATIVE_DIFFERENCE = 0.05


class OutputLayer:
    """Output layer of a model.

    Args:
        model: the model.
        max_length: most inputs that its positions allow.

    Raises:
        UserInputError: the model is not causal, or it does not compute its scores with an output
            layer.
    """

    def __init__(self, model: PreTrainedModel, max_length: int):
        self._model = model
        self._layer = _find_output_layer(model)
        self._is_applied_alone = True
        self._check(min(NUM_CHECKED, max_length))

    def hidden_states(self, tokens: Tensor, scored: int) -> Tensor:
        """Return the inputs of the output layer at the last positions, (B, S, C).

        Args:
            tokens: (B, T) inputs.
            scored: number S of positions.
        """
        captured: list[Tensor] = []

        def capture_and_shorten(hidden_states: Tensor) -> Tensor:
            captured.append(hidden_states[:, -scored:])
            return hidden_states[:, -1:]

        with self._input_replaced(capture_and_shorten):
            self._model(tokens)
        return captured[0]

    def logits(self, hidden_states: Tensor) -> Tensor:
        """Return the logits, (N, V), of some positions, (N, C), in fp32 or wider."""
        if self._is_applied_alone:
            logits = self._layer(hidden_states)
        else:
            one_token = torch.zeros(1, 1, dtype=torch.long, device=hidden_states.device)
            with self._input_replaced(lambda _: hidden_states.unsqueeze(0)):
                logits = self._model(one_token).logits[0]
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def losses(self, hidden_states: Tensor, targets: Tensor) -> Tensor:
        """Return −ln p of each target, (B, S), with logits of some positions at a time.

        Args:
            hidden_states: (B, S, C).
            targets: (B, S) token IDs.
        """
        bytes_per_position = 4 * self._model.config.get_text_config().vocab_size
        positions = max(1, LOGITS_BYTES[targets.device.type] // bytes_per_position)
        all_states = hidden_states.flatten(0, 1).split(positions)
        all_targets = targets.flatten().split(positions)
        losses = []
        for some_states, some_targets in zip(all_states, all_targets):
            losses.append(cross_entropy(self.logits(some_states), some_targets, reduction="none"))
        return torch.cat(losses).view(targets.shape)

    @contextmanager
    def _input_replaced(self, replace: Callable[[Tensor], Tensor]) -> Iterator[None]:
        """Replace the input of the output layer inside the block."""

        def hook(module: nn.Module, arguments: tuple[Tensor]) -> tuple[Tensor]:
            return (replace(arguments[0]),)

        handle = self._layer.register_forward_pre_hook(hook)
        try:
            yield
        finally:
            handle.remove()

    @torch.no_grad()
    def _check(self, num_tokens: int) -> None:
        """Compare with the logits of the whole model on random tokens.

        From then on, the layer is applied alone if this gives bitwise identical logits.
        """
        config = self._model.config.get_text_config()
        rng = torch.Generator().manual_seed(1)
        tokens = torch.randint(config.vocab_size, (1, num_tokens), generator=rng)
        tokens = tokens.to(self._model.device)
        expected = self._model(tokens).logits[0]
        changed = tokens.clone()
        changed[0, -1] = tokens[0, 0]
        if not _close(self._model(changed).logits[0, :-1], expected[:-1]):
            raise UserInputError(
                f"{type(self._model).__name__} is not a causal model: its score of a token depends "
                "on later tokens. Only causal language models can be evaluated."
            )
        hidden_states = self.hidden_states(tokens, num_tokens)[0]
        self._is_applied_alone = torch.equal(self._layer(hidden_states), expected)
        if not _close(self.logits(hidden_states), expected):
            raise _no_output_layer(self._model)


def _find_output_layer(model: PreTrainedModel) -> nn.Module:
    """Return the module that maps hidden states to logits."""
    for layer in (model.get_output_embeddings(), getattr(model, "lm_head", None)):
        if layer is not None:
            return layer
    raise _no_output_layer(model)


def _no_output_layer(model: PreTrainedModel) -> UserInputError:
    return UserInputError(
        f"{type(model).__name__} cannot be evaluated, because it does not compute its scores with "
        "one output layer."
    )


def _close(logits: Tensor, expected: Tensor) -> bool:
    """Return True if two sets of logits differ by no more than rounding explains."""
    if logits.shape != expected.shape:
        return False
    finite = expected.isfinite()
    if not torch.equal(logits.isfinite(), finite):
        return False
    if not finite.any():
        return True  # the evaluation rejects scores that are not finite
    expected = expected[finite].double()
    difference = (logits[finite].double() - expected).abs().max()
    return bool(difference <= MAX_RELATIVE_DIFFERENCE * expected.std())
