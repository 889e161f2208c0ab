"""fairseq's hub interface for text of several lines, and validation of its options."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from fairseq.hub_utils import GeneratorHubInterface
from omegaconf import DictConfig

from ..errors import UserInputError, did_you_mean

#: Options of fairseq's ``from_pretrained`` that are not in a checkpoint.
HUB_OPTIONS = {"generation_args"}
#: Options of encoders that fetch their vocabulary unless they are given its files.
FILES = {"bert": ("bpe_vocab_file",), "gpt2": ("gpt2_encoder_json", "gpt2_vocab_bpe")}


class HubInterface(GeneratorHubInterface):
    """fairseq's hub interface with the line ends of ``fairseq-preprocess``."""

    def encode(self, sentence: str) -> torch.Tensor:
        """Return the token IDs of a text, with ``</s>`` at each newline and at the end.

        fairseq passes the whole text to the tokenizer, where a newline vanishes or becomes a piece
        that the model has never seen.
        """
        text = sentence.replace("\r\n", "\n").replace("\r", "\n")
        encoded = [super(HubInterface, self).encode(line) for line in text.split("\n")]
        return torch.cat(encoded)

    def decode(self, tokens: torch.Tensor) -> str:
        """Return the text of token IDs, with a newline for each ``</s>`` before the last one.

        fairseq drops every ``</s>``, and so joins the lines.
        """
        is_end = tokens == self.tgt_dict.eos()
        line_ends = is_end.nonzero().flatten() + 1
        *lines, rest = tokens.tensor_split(line_ends.tolist())
        if len(rest):
            lines.append(rest)
        return "\n".join(super(HubInterface, self).decode(line) for line in lines)


def check_hub_options(options: Iterable[str], cfg) -> None:
    """Raise UserInputError for an option of ``from_pretrained`` that fairseq ignores.

    Args:
        options: names of the options.
        cfg: configuration of the loaded checkpoint with these options and the options of its
            tokenizer.
    """
    known = set(HUB_OPTIONS)
    for group in cfg:
        known.add(group)
        if isinstance(cfg[group], (dict, DictConfig)):
            known.update(cfg[group])
    for option in options:
        if option in known:
            continue
        raise UserInputError(
            f"from_pretrained was passed '{option}', which is an option of neither the checkpoint "
            "nor its text encoder (bpe='sentencepiece' selects one). Correct or remove the option."
            f"{did_you_mean(option, known)}"
        )


def check_encoder_files(cfg, path) -> None:
    """Check that the text encoders of a configuration read local files only.

    Only ``from_pretrained`` builds the encoders that a checkpoint names. fairseq would fetch every
    address in their options.

    Args:
        cfg: configuration of the loaded checkpoint.
        path: path of the checkpoint, for messages.

    Raises:
        UserInputError: fairseq would fetch a file.
    """
    for group in ("bpe", "tokenizer"):
        encoder = cfg.get(group)
        options = {"_name": encoder} if encoder is None or isinstance(encoder, str) else encoder
        name = options.get("_name")
        if name is None:
            continue
        fetched = [option for option in FILES.get(name, ()) if not options.get(option)]
        for option, value in options.items():
            if isinstance(value, str) and "://" in value:
                fetched.append(option)
        if fetched:
            raise UserInputError(
                f"The file {fetched[0]} of the text encoder {name} of {path} would be fetched. "
                f"Download the file and pass {fetched[0]}=FILE."
            )
