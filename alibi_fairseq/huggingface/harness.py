"""EleutherAI's lm-evaluation-harness on a fairseq checkpoint that has no exported form.

``python -m alibi_fairseq.huggingface.harness …`` is the harness's own command with one more model::

    python -m alibi_fairseq.huggingface.harness run --model alibi_fairseq --tasks hellaswag \\
        --model_args path=checkpoint_best.pt,data=data-bin,length=1024

It is the harness's model ``hf``, which an exported folder is evaluated with, on fairseq's decoder.

Shapes: B batch, T inputs, V vocabulary.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lm_eval.api.registry import register_model
from lm_eval.models.huggingface import HFLM
from torch import Tensor
from transformers import GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from ..evaluation.checkpoint import load_checkpoint
from ..evaluation.data import load_dictionary
from ..evaluation.windows import check_window
from .tokenizer import FILES, build_tokenizer, find_files


class Decoder(PreTrainedModel, GenerationMixin):
    """A decoder of fairseq as a model of transformers, without a cache."""

    config_class = PreTrainedConfig

    def __init__(self, decoder: Any):
        super().__init__(PreTrainedConfig(num_hidden_layers=len(decoder.layers)))
        self.decoder = decoder

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **kwargs: object
    ) -> CausalLMOutput:
        """Log-probabilities (B, T, V) in at least fp32. The decoder finds padding by itself."""
        output = self.decoder(input_ids)
        return CausalLMOutput(logits=self.decoder.get_normalized_probs(output, log_probs=True))

    def prepare_inputs_for_generation(self, input_ids: Tensor, **kwargs: object) -> dict:
        return {"input_ids": input_ids}


@register_model("alibi_fairseq")
class FairseqLM(HFLM):
    """A checkpoint as the harness asks for one.

    Args:
        path: fairseq checkpoint.
        data: folder with its ``dict.txt``.
        length: most tokens L that a prediction sees; the training length if not given.
        device: ``cpu`` or ``cuda``.
        precision: ``fp32``, ``bf16`` or ``fp16``.
        **options: options of the harness's model ``hf``, and those of :data:`FILES` where the
            tokeniser is not beside the data.
    """

    def __init__(
        self,
        path: str,
        data: str,
        length: int | None = None,
        device: str | None = None,
        precision: str = "fp32",
        **options: Any,
    ):
        folder = Path(data)
        dictionary = load_dictionary(folder)
        files = find_files(folder, dictionary, {name: options.pop(name, None) for name in FILES})
        if device is None or (device.startswith("cuda") and not torch.cuda.is_available()):
            device = "cpu"  # the harness asks for cuda by default
        loaded = load_checkpoint(Path(path), folder, torch.device(device), precision)
        length = int(loaded.facts["train_length"] if length is None else length)
        check_window(length, length)
        if not loaded.shares_start:  # then the padding of a batch would count
            options["batch_size"] = 1
        super().__init__(
            pretrained=Decoder(loaded.decoder),
            tokenizer=build_tokenizer(folder, files),
            backend="causal",
            max_length=length,
            **options,
        )


def main() -> None:
    """The harness's command; importing this module has made the model known to it."""
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()


if __name__ == "__main__":
    main()
