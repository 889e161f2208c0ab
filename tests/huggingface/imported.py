"""Random transformers models and the fairseq models that ``import-hf`` creates from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.models import FairseqLanguageModel
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    GPTNeoXConfig,
    LlamaConfig,
    OPTConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3Config,
    XGLMConfig,
)

from alibi_fairseq.cli import main

VOCABULARY_SIZE = 70
#: Longest sequence of the models.
LENGTH = 48
#: IDs of the special tokens, in the middle of the vocabulary.
SPECIAL_IDS = (5, 6, 7)

_SPECIAL = dict(vocab_size=VOCABULARY_SIZE, bos_token_id=5, eos_token_id=6, pad_token_id=7)
_SPECIAL_OF_FAIRSEQ = dict(
    vocab_size=VOCABULARY_SIZE, bos_token_id=0, eos_token_id=2, pad_token_id=1
)
_ONE_SPECIAL = dict(vocab_size=VOCABULARY_SIZE, bos_token_id=0, eos_token_id=0, pad_token_id=None)
_SHAPE = dict(num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=LENGTH)
_OPT = dict(hidden_size=32, ffn_dim=48, **_SHAPE, **_SPECIAL)
_GPT_NEOX = dict(hidden_size=32, intermediate_size=48, use_parallel_residual=False, **_SHAPE)
_LLAMA = dict(hidden_size=32, intermediate_size=48, **_SHAPE)
CONFIGS: dict[str, PreTrainedConfig] = {
    "bloom": BloomConfig(hidden_size=36, n_layer=2, n_head=6, seq_length=LENGTH, **_SPECIAL),
    "opt": OPTConfig(**_OPT),
    "opt-350m": OPTConfig(word_embed_proj_dim=16, do_layer_norm_before=False, **_OPT),
    "xglm": XGLMConfig(d_model=32, ffn_dim=48, **_SHAPE, **_SPECIAL_OF_FAIRSEQ),
    "gpt-neox": GPTNeoXConfig(rotary_pct=1.0, **_GPT_NEOX, **_SPECIAL),
    "partial-rotary": GPTNeoXConfig(
        rotary_pct=0.5, rotary_emb_base=500_000, **_GPT_NEOX, **_SPECIAL
    ),
    "no-positions": GPTNeoXConfig(rotary_pct=0.0, **_GPT_NEOX, **_ONE_SPECIAL),
    "llama": LlamaConfig(
        num_key_value_heads=2,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 500_000.0},
        **_LLAMA,
        **_SPECIAL,
    ),
    "qwen3": Qwen3Config(head_dim=8, num_key_value_heads=4, **_LLAMA, **_ONE_SPECIAL),
}
#: Models whose scores :func:`import_with_negative_scores` makes negative, by their last norm.
_LAST_NORMS = {"bloom": "transformer.ln_f", "xglm": "model.layer_norm"}


@dataclass
class ImportedModel:
    """A fairseq model imported from a model of transformers.

    Attributes:
        original: the model of transformers.
        model: the fairseq model.
        dictionary: dictionary of the fairseq model, whose words are the original token IDs.
    """

    original: PreTrainedModel
    model: FairseqLanguageModel
    dictionary: Dictionary

    @property
    def word_ids(self) -> list[int]:
        """Original token IDs of the dictionary's words, without special symbols."""
        return [int(word) for word in self.dictionary.symbols[4:]]

    def original_ids(self, tokens: torch.Tensor) -> torch.Tensor:
        """Convert the dictionary's token IDs to the original ones, special symbols to EOS."""
        eos = self.original.config.eos_token_id
        ids = torch.tensor([eos] * 4 + self.word_ids)
        return ids[tokens]

    def random_words(self) -> torch.Tensor:
        """Return random token IDs of the dictionary, (2, 40), without special symbols."""
        return torch.randint(4, len(self.dictionary), (2, 40))


def save_random_model(name: str, folder: Path) -> Path:
    """Save a random model with norms and biases different from their initial values."""
    model = AutoModelForCausalLM.from_config(CONFIGS[name])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return folder


def load_checkpoint(
    checkpoint: Path, data: Path | None = None
) -> tuple[FairseqLanguageModel, Dictionary]:
    """Load a model and its dictionary as fairseq does.

    Args:
        checkpoint: checkpoint file.
        data: folder of the dictionary (default: that of the checkpoint).
    """
    overrides = {"data": str(data or checkpoint.parent)}
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(checkpoint)], arg_overrides=overrides
    )
    return model.eval(), task.source_dictionary


def import_model(folder: Path, out: Path) -> ImportedModel:
    """Import a saved model and load the checkpoint."""
    assert main(["import-hf", str(folder), "--out", str(out)]) == 0
    original = AutoModelForCausalLM.from_pretrained(folder).eval()
    model, dictionary = load_checkpoint(out / "checkpoint_best.pt")
    return ImportedModel(original, model, dictionary)


def import_with_negative_scores(name: str, path: Path) -> ImportedModel:
    """Save a random model, with negative scores if it is BLOOM or XGLM, and import it."""
    folder = save_random_model(name, path / "model")
    if name in _LAST_NORMS:
        # A constant feature that every output weight turns into a negative score.
        original = AutoModelForCausalLM.from_pretrained(folder)
        norm = original.get_submodule(_LAST_NORMS[name])
        norm.weight.data[0] = 0
        norm.bias.data[0] = 1
        original.get_output_embeddings().weight.data[:, 0] = -20
        original.save_pretrained(folder)
    return import_model(folder, path / "out")


def assert_same_scores(imported: ImportedModel) -> None:
    """Compare the scores of all words and EOS in a text that contains EOS."""
    tokens = imported.random_words()
    tokens[:, 11] = imported.dictionary.eos()
    with torch.no_grad():
        expected = imported.original(imported.original_ids(tokens)).logits
        scores, _ = imported.model(tokens)
    expected_words = expected[..., imported.word_ids]
    expected_eos = expected[..., imported.original.config.eos_token_id]
    torch.testing.assert_close(scores[..., 4:], expected_words, rtol=0, atol=1e-5)
    torch.testing.assert_close(
        scores[..., imported.dictionary.eos()], expected_eos, rtol=0, atol=1e-5
    )
