"""A checkpoint as a folder that ``from_pretrained`` loads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from transformers import PreTrainedModel

from ..evaluation.checkpoint import load_checkpoint
from ..evaluation.data import load_dictionary, load_split
from ..files import atomic_folder
from .configuration_alibi_lm import AlibiLmConfig
from .conversion import NAME, Converted, convert
from .modeling_alibi_lm import AlibiLmForCausalLM
from .tokenization_alibi_lm import AlibiLmTokenizer
from .tokenizer import build_tokenizer, check_tokenizer, find_files

#: The model card, with the metadata block of model hubs.
CARD = """---
library_name: transformers
pipeline_tag: text-generation
---

# {run}

A causal language model with position method `{position_method}`, trained with
[fairseq](https://github.com/facebookresearch/fairseq) and alibi_fairseq on texts of
{train_length:,} tokens: {parameters:,} parameters, {updates:,} updates.

Format: {architecture}. {reason}
Its log-probabilities differ from the checkpoint's by at most {difference:.1e} (fp32).

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("{name}"{for_model})
tokenizer = AutoTokenizer.from_pretrained("{name}"{for_tokenizer})
prompt = tokenizer("\\nThe", return_tensors="pt")
print(tokenizer.decode(model.generate(**prompt, max_new_tokens=50)[0]))
```

A line end in the text is the symbol `</s>`, which fairseq writes at the end of every line and reads
in front of the first; a prompt therefore best begins with a line end.
"""


def export(checkpoint: Path, data: Path, out: Path, tokenizer_files: Sequence[Path]) -> Converted:
    """Write the folder.

    Args:
        out: folder to write; it must not be there, or be empty.
        tokenizer_files: the tokeniser's, where they are not beside the data.

    Raises:
        BadInput: something is missing or does not fit; nothing is written then.
    """
    with atomic_folder(out) as folder:
        dictionary = load_dictionary(data)
        tokenizer = build_tokenizer(data, find_files(data, dictionary, tokenizer_files))
        loaded = load_checkpoint(checkpoint, data)
        for split in ("valid", "test", "train"):
            if (data / f"{split}.idx").is_file():
                check_tokenizer(tokenizer, load_split(data, split, dictionary))
                break
        method, length = loaded.facts["position_method"], loaded.facts["train_length"]
        converted = convert(loaded.decoder, method, length)
        save(converted.model, folder)
        ours = isinstance(tokenizer, AlibiLmTokenizer)
        if ours:
            tokenizer.register_for_auto_class("AutoTokenizer")
        tokenizer.save_pretrained(folder)
        # Not needed by every tokeniser, but by whoever takes the model back to fairseq.
        (folder / "dict.txt").write_bytes((data / "dict.txt").read_bytes())
        code = ", trust_remote_code=True"
        card = CARD.format(
            **{**loaded.facts, **vars(converted)},
            run=checkpoint.resolve().parent.name,
            name=out.name,
            for_model=code if converted.architecture == NAME else "",
            for_tokenizer=code if ours else "",
        )
        (folder / "README.md").write_text(card, encoding="utf-8")
    return converted


def save(model: PreTrainedModel, folder: Path) -> None:
    """Configuration and weights, with the modelling files where the model needs them."""
    if isinstance(model, AlibiLmForCausalLM):
        AlibiLmConfig.register_for_auto_class()
        AlibiLmForCausalLM.register_for_auto_class("AutoModelForCausalLM")
    model.save_pretrained(folder)
