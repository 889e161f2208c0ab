"""Folders of tiny random transformers models with trained tokenizers."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from trained import text_of
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    FalconConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    GPTNeoConfig,
    GPTNeoXConfig,
    LlamaConfig,
    MptConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

from alibi_fairseq.huggingface.configuration_alibi_lm import AlibiLmConfig
from alibi_fairseq.huggingface.modeling_alibi_lm import AlibiLmForCausalLM

#: Length that the configurations name.
LENGTH = 32
#: Text of three documents, with a letter of two bytes.
TEXT = "\n\n".join(f"{line}\n" for line in text_of("valid")[4:7]).replace("the", "thé")

_SIZE = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
_GROUPED = dict(
    intermediate_size=48, num_key_value_heads=2, max_position_embeddings=LENGTH, **_SIZE
)
_DYNAMIC = {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 4.0}
#: Configurations without the vocabulary size.
CONFIGS: dict[str, tuple[type[PreTrainedConfig], dict]] = {
    "llama": (LlamaConfig, _GROUPED),
    "llama-dynamic": (LlamaConfig, {**_GROUPED, "rope_parameters": _DYNAMIC}),
    "gpt-neox": (
        GPTNeoXConfig,
        dict(intermediate_size=48, max_position_embeddings=LENGTH, **_SIZE),
    ),
    "bloom": (BloomConfig, dict(hidden_size=32, n_layer=2, n_head=4, seq_length=LENGTH)),
    "mpt": (MptConfig, dict(d_model=32, n_heads=4, n_layers=2, max_seq_len=4 * LENGTH)),
    "falcon": (
        FalconConfig,
        dict(alibi=True, max_position_embeddings=LENGTH, **_SIZE),
    ),
    "qwen2": (Qwen2Config, _GROUPED),
    "qwen3": (Qwen3Config, dict(head_dim=8, **_GROUPED)),
    "gemma2": (Gemma2Config, dict(head_dim=8, final_logit_softcapping=0.5, **_GROUPED)),
    "gemma3": (Gemma3TextConfig, dict(head_dim=8, **_GROUPED)),
    "gpt-neo": (
        GPTNeoConfig,
        dict(
            hidden_size=32,
            num_layers=2,
            num_heads=4,
            attention_types=[[["global", "local"], 1]],
            max_position_embeddings=LENGTH,
        ),
    ),
    "gpt2": (GPT2Config, dict(n_embd=32, n_layer=2, n_head=4, n_positions=LENGTH)),
}


def byte_level_tokenizer(vocabulary: int = 300) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE, whose tokens can be parts of a letter, without a BOS token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text_of("train"), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")


def unigram_tokenizer(vocabulary: int = 200) -> PreTrainedTokenizerFast:
    """Train a unigram model with BOS and unknown token, as sentencepiece does."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split("\n", "isolated"), pre_tokenizers.Metaspace()]
    )
    trainer = trainers.UnigramTrainer(
        vocab_size=vocabulary,
        special_tokens=["<s>", "</s>", "<unk>"],
        unk_token="<unk>",
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT, *text_of("train")], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def make_folder(
    path: Path, name: str = "llama", tokenizer: PreTrainedTokenizerFast | None = None, **changes
) -> Path:
    """Write a random model of :data:`CONFIGS`, whose scores are far from uniform."""
    tokenizer = tokenizer or byte_level_tokenizer()
    config_class, options = CONFIGS[name]
    vocabulary = {
        "vocab_size": len(tokenizer),
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": None,
    }
    values = options | vocabulary | changes
    config = config_class(**values)
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def make_own_format(path: Path, **options) -> Path:
    """Write a random model of the format that ``export`` writes, with ALiBi by default."""
    tokenizer = byte_level_tokenizer()
    config = AlibiLmConfig(vocab_size=len(tokenizer), **_SIZE, **options)
    AlibiLmForCausalLM(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def add_own_code(folder: Path, module: str, code: str, config_class: str, model_class: str) -> None:
    """Write code to a folder, and name its classes in ``config.json``."""
    (folder / f"{module}.py").write_text(code)
    config = json.loads((folder / "config.json").read_text())
    config["model_type"] = "mine"
    config["auto_map"] = {
        "AutoConfig": f"{module}.{config_class}",
        "AutoModelForCausalLM": f"{module}.{model_class}",
    }
    (folder / "config.json").write_text(json.dumps(config))
