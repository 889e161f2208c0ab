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

from ..errors import BadInput
from ..evaluation.checkpoint import load_checkpoint
from ..evaluation.data import load_dictionary
from ..evaluation.windows import check_window
from .tokenizer import TokenizerFiles, build_tokenizer, find_files


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
        sentencepiece_model, gpt2_encoder_json, gpt2_vocab_bpe, wordpiece_vocab: the tokeniser,
            where it is not beside the data.
        **options: options of the harness's model ``hf``.
    """

    def __init__(
        self,
        path: str,
        data: str,
        length: int | None = None,
        device: str | None = None,
        precision: str = "fp32",
        sentencepiece_model: str | None = None,
        gpt2_encoder_json: str | None = None,
        gpt2_vocab_bpe: str | None = None,
        wordpiece_vocab: str | None = None,
        **options: Any,
    ):
        folder = Path(data)
        named = (sentencepiece_model, gpt2_encoder_json, gpt2_vocab_bpe, wordpiece_vocab)
        files = TokenizerFiles(*[Path(name) if name else None for name in named])  # type: ignore[arg-type]
        dictionary = load_dictionary(folder)
        where = _device(device)
        loaded = load_checkpoint(Path(path), folder, dictionary, where, precision)
        length = int(loaded.facts["train_length"] if length is None else length)
        check_window(length, length)
        if not loaded.shares_start:  # then the padding of a batch would count
            options["batch_size"] = 1
        super().__init__(
            pretrained=Decoder(loaded.decoder),
            tokenizer=build_tokenizer(folder, find_files(folder, dictionary, files)),
            backend="causal",
            max_length=length,
            **options,
        )


def _device(name: str | None) -> torch.device:
    """The device of that name; the CPU for cuda, the harness's own default, where there is none."""
    if name is None or (name.startswith("cuda") and not torch.cuda.is_available()):
        return torch.device("cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise BadInput(f"device={name}: there is no such device; use cpu or cuda.") from error


def main() -> None:
    """The harness's command; importing this module has made the model known to it."""
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()


if __name__ == "__main__":
    main()
