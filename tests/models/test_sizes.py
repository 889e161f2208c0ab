"""Named sizes: parameter counts, and one definition for --arch and YAML."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from conftest import build_model, small_dictionary
from fairseq import models
from fairseq.dataclass.configs import CommonConfig
from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.tasks.language_modeling import LanguageModelingConfig
from omegaconf import OmegaConf

from alibi_fairseq.cli.models import layer_parameters as listed_layer_parameters

SIZES = ["alibi_lm", "alibi_lm_tiny", "alibi_lm_small", "alibi_lm_bookcorpus", "alibi_lm_wiki103"]
SIZES += ["alibi_lm_bloom", "alibi_lm_modern", "alibi_lm_modern_wiki103"]


def model_of(arch: str, words: int):
    """Build a model as YAML configures it, without memory for its parameters."""
    dictionary = small_dictionary(0)
    dictionary.symbols += [str(number) for number in range(words - len(dictionary.symbols))]
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    sections = {"task": LanguageModelingConfig(tokens_per_sample=512), "common": CommonConfig()}
    config = OmegaConf.create({"model": {"_name": arch}, **sections})
    with torch.device("meta"):
        return models.build_model(config.model, task)


def layer_parameters(width: int, inner: int) -> int:
    """Count the parameters of a layer: 4·C² + 2·C·FFN weights, biases, and layer norms."""
    return 4 * (width**2 + width) + (2 * width * inner + inner + width) + 4 * width


@pytest.mark.parametrize(
    ("arch", "words", "parameters"),
    [
        # 247M in Table 6 of the paper; the exact count follows from tied weights of 267,744 words.
        ("alibi_lm_wiki103", 267_744, 246_933_504),
        ("alibi_lm_bookcorpus", 28_996, 16 * layer_parameters(1024, 4096) + 28_996 * 1024),
        ("alibi_lm_1b3", 50_000, 25 * layer_parameters(2048, 8192) + 50_000 * 2048 + 2 * 2048),
        # BLOOM-560m, with its 250,880 words.
        ("alibi_lm_bloom", 250_880, 559_214_592),
        # Heads of size 64, three for keys and values; three feed-forward matrices; RMSNorms.
        (
            "alibi_lm_modern_small",
            50_000,
            12 * (2 * 768**2 + 2 * 768 * 192 + 3 * 768 * 2048 + 2 * 768) + 768 + 50_000 * 768,
        ),
    ],
)
def test_named_sizes_have_expected_parameters(arch, words, parameters):
    assert sum(p.numel() for p in model_of(arch, words).parameters()) == parameters


@pytest.mark.parametrize("arch", [*SIZES, "alibi_lm_modern_tiny", "alibi_lm_modern_1b3"])
def test_listed_parameters_are_those_of_layers(arch):
    layers = model_of(arch, 61_000).decoder.layers
    config = MODEL_DATACLASS_REGISTRY[arch]()
    assert sum(p.numel() for p in layers.parameters()) == listed_layer_parameters(config)


@pytest.mark.parametrize("arch", SIZES)
def test_command_line_and_yaml_build_same_model(arch):
    words = 61_000  # more than the cutoffs of the adaptive softmax
    with torch.device("meta"):
        from_flags = build_model("--arch", arch, tokens_per_sample=512, words=words - 4)
    from_yaml = model_of(arch, words)
    assert repr(from_flags) == repr(from_yaml)
    assert vars(from_flags.decoder.args) == vars(from_yaml.decoder.args)


@pytest.mark.parametrize(
    ("flags", "shared"),
    [
        ([], True),
        (["--share-decoder-input-output-embed"], True),
        (["--no-share-decoder-input-output-embed"], False),
    ],
)
def test_default_true_flags_can_be_disabled(flags, shared):
    decoder = build_model("--arch", "alibi_lm_tiny", *flags).decoder
    assert (decoder.output_projection.weight is decoder.embed_tokens.weight) == shared
