"""Local folder with a causal language model of transformers and its tokenizer.

Nothing is downloaded. Weights are read from safetensors, and code in the folder is not run unless
the caller trusts it. Models exported by this package do not run theirs, because this package has
the same code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from ..errors import UserInputError
from ..files import read_json, sha256_file, sha256_files
from .config_overrides import override_config
from .configuration_alibi_lm import AlibiLmConfig
from .modeling_alibi_lm import AlibiLmForCausalLM
from .tokenization_alibi_lm import AlibiLmTokenizer

CONFIG_FILE = "config.json"
#: Names of tokenizer files besides those that the tokenizer's class lists.
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)


class FolderHashes(NamedTuple):
    """SHA-256 of the weights of a folder, and of all its parts with the code in it."""

    weights: str
    everything: str


@dataclass(frozen=True)
class ModelFolder:
    """Folder of a causal language model, with its configuration and tokenizer.

    Attributes:
        path: the folder, which contains ``config.json``.
        config: configuration of the model.
        original_config: configuration without overrides.
        tokenizer: tokenizer of the model.
        trust_remote_code: True if code in the folder may be run.
    """

    path: Path
    config: PreTrainedConfig
    original_config: PreTrainedConfig
    tokenizer: PreTrainedTokenizerBase
    trust_remote_code: bool

    @classmethod
    def open(
        cls, path: Path, overrides: dict[str, Any] | None = None, trust_remote_code: bool = False
    ) -> ModelFolder:
        """Read the configuration and the tokenizer of a folder, but not its weights.

        Args:
            path: the folder.
            overrides: values that replace values of ``config.json``. An object replaces only the
                values that it names.
            trust_remote_code: True to run code in the folder if the model needs it.

        Raises:
            UserInputError: the folder is incomplete or corrupted, or it needs code that may not be
                run.
        """
        content = read_json(path / CONFIG_FILE)
        if (path / "adapter_config.json").is_file():
            raise UserInputError(
                f"{path} contains an adapter. Merge it into the weights of its model, and save "
                "that."
            )
        if not any(path.glob("*.safetensors")):
            raise UserInputError(
                f"{path} contains no weights in safetensors format (*.safetensors), and files in "
                "other formats can run code when they are read. Convert the weights."
            )
        original_config = _read_config(path, content, trust_remote_code)
        config = original_config
        if overrides:
            config = override_config(original_config, content, overrides, path / CONFIG_FILE)
        tokenizer = _read_tokenizer(path, config, trust_remote_code)
        return cls(path, config, original_config, tokenizer, trust_remote_code)

    @property
    def first_input(self) -> int:
        """Token ID from which the first token of a text is predicted.

        It is the beginning-of-sequence token, or else the end-of-sequence token.
        """
        token_id = self.tokenizer.bos_token_id
        return self.tokenizer.eos_token_id if token_id is None else token_id

    def load_model(self, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
        """Read the model in evaluation mode.

        Raises:
            UserInputError: the weights do not match the configuration.
        """
        model_class: Any = AutoModelForCausalLM
        remote_code: dict[str, Any] = {"trust_remote_code": self.trust_remote_code}
        if isinstance(self.config, AlibiLmConfig):
            model_class = AlibiLmForCausalLM
            remote_code = {}
        # Otherwise config.json could name an attention kernel, which transformers would download.
        self.config._attn_implementation = None
        self.config.use_cache = False
        verbosity = transformers_logging.get_verbosity()
        # transformers would print a table of mismatched weights, for which check_weights raises.
        transformers_logging.set_verbosity_error()
        try:
            model, loading_info = model_class.from_pretrained(
                self.path,
                config=self.config,
                dtype=dtype,
                local_files_only=True,
                use_safetensors=True,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                **remote_code,
            )
        finally:
            transformers_logging.set_verbosity(verbosity)
        check_weights(self.path, loading_info)
        return model.to(device).eval()

    def hashes(self) -> FolderHashes:
        """Return the hashes of the present contents."""
        names = {*TOKENIZER_FILES, *type(self.tokenizer).vocab_files_names.values()}
        tokenizer_files = sorted(self.path / name for name in names if (self.path / name).is_file())
        code = sorted(self.path.glob("*.py"))
        weights = sha256_files(sorted(self.path.glob("*.safetensors")))
        parts = [
            sha256_file(self.path / CONFIG_FILE),
            weights,
            sha256_files(tokenizer_files),
            sha256_files(code),
        ]
        everything = hashlib.sha256(" ".join(parts).encode()).hexdigest()
        return FolderHashes(weights, everything)


def check_weights(path: Path, loading_info: dict) -> None:
    """Check that the weights of a folder have the names and shapes of the configuration.

    transformers leaves out the keys that the class of the model declares as ignorable.

    Raises:
        UserInputError: weights are missing, have another shape, or are superfluous.
    """
    problems = {
        "missing_keys": "is missing",
        "mismatched_keys": "has another shape",
        "unexpected_keys": "is not part of such a model",
    }
    for kind, problem in problems.items():
        # An entry with another shape is the key and two shapes.
        keys = [key if isinstance(key, str) else key[0] for key in loading_info[kind]]
        if kind == "unexpected_keys":
            keys = [key for key in keys if not _is_mask(path, key)]
        if keys:
            raise UserInputError(
                f"The weights in {path} do not match its {CONFIG_FILE}: {min(keys)} {problem}. "
                "Fetch both again, or correct --model-overrides."
            )


def _is_mask(path: Path, key: str) -> bool:
    """Return True if a key is a causal mask, which older versions of transformers stored."""
    if key.endswith("masked_bias"):
        return True
    if not key.endswith(("attn.bias", "attention.bias")):
        return False
    for file in path.glob("*.safetensors"):
        with safe_open(file, "pt") as weights:
            names = weights.keys()
            if key in names:
                return _is_lower_triangle(weights.get_tensor(key))
    return False


def _is_lower_triangle(mask: torch.Tensor) -> bool:
    """Return True if the last two dimensions are a Boolean lower triangle, and all others are 1."""
    size = mask.shape[-1] if mask.dim() >= 2 else 0
    if mask.dtype not in (torch.bool, torch.uint8) or mask.numel() != size * size:
        return False
    triangle = torch.ones(size, size, dtype=torch.bool).tril()
    return mask.shape[-2] == size and torch.equal(mask.view(size, size).bool(), triangle)


def _read_config(path: Path, content: dict, trust_remote_code: bool) -> PreTrainedConfig:
    """Read ``config.json``."""
    if content.get("model_type") == AlibiLmConfig.model_type:
        return AlibiLmConfig.from_pretrained(path)
    with _naming_trust_option(path):
        return AutoConfig.from_pretrained(
            path, local_files_only=True, trust_remote_code=trust_remote_code
        )


def _read_tokenizer(
    path: Path, config: PreTrainedConfig, trust_remote_code: bool
) -> PreTrainedTokenizerBase:
    """Read the tokenizer, in its fast version if there is one."""
    settings = path / "tokenizer_config.json"
    if settings.is_file():
        content = read_json(settings)
        if content.get("tokenizer_class") == AlibiLmTokenizer.__name__:
            return AlibiLmTokenizer.from_pretrained(path)
    with _naming_trust_option(path):
        return AutoTokenizer.from_pretrained(
            path, config=config, local_files_only=True, trust_remote_code=trust_remote_code
        )


@contextmanager
def _naming_trust_option(path: Path) -> Iterator[None]:
    """Name our option where transformers refuses to run the code of a folder.

    Raises:
        UserInputError: the folder needs its code.
    """
    try:
        yield
    except ValueError as error:
        if "trust_remote_code" not in str(error):
            raise
        raise UserInputError(
            f"{path} contains code that its model needs. Read the code, and pass "
            "--trust-remote-code to run it."
        ) from error
