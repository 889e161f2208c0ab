"""The model card: how a model was trained and measured, and how to load it."""

from __future__ import annotations

import argparse

from omegaconf import DictConfig, OmegaConf
from transformers import PreTrainedTokenizerBase

from ..reporting.markdown import literal, table
from .conversion import NAME, Converted
from .tokenization_alibi_lm import AlibiLmTokenizer

#: What the card tells about training: option groups of fairseq and their options.
TOLD = {
    "task": ("tokens_per_sample", "sample_break_mode"),
    "dataset": ("max_tokens", "batch_size"),
    "optimization": ("update_freq", "lr", "clip_norm", "max_update", "max_epoch"),
    "optimizer": ("_name", "adam_betas", "weight_decay", "momentum"),
    "lr_scheduler": ("_name", "warmup_updates"),
    "model": ("_name", "dropout", "attention_dropout", "activation_dropout"),
    "criterion": ("_name",),
    "common": ("seed", "fp16", "bf16", "memory_efficient_fp16"),
    "distributed_training": ("distributed_world_size",),
}


def model_card(
    run: str,
    name: str,
    facts: dict,
    state: dict,
    converted: Converted,
    tokenizer: PreTrainedTokenizerBase,
    cells: list[dict],
) -> str:
    """Markdown with the metadata block of model hubs.

    Args:
        run: name of the checkpoint's folder.
        name: name of the exported folder.
        facts: of the checkpoint, as results have them.
        state: what the checkpoint file holds.
    """
    code = ", trust_remote_code=True"
    for_model = code if converted.architecture == NAME else ""
    for_tokenizer = code if isinstance(tokenizer, AlibiLmTokenizer) else ""
    parameters = sum(p.numel() for p in converted.model.parameters())
    return f"""---
library_name: transformers
pipeline_tag: text-generation
---

# {literal(run)}

A causal language model with position method `{facts["position_method"]}`, trained with
[fairseq](https://github.com/facebookresearch/fairseq) and alibi_fairseq on texts of
{facts["train_length"]:,} tokens: {parameters:,} parameters, {facts["updates"]:,} updates.

Format: {converted.architecture}. {converted.reason}
Its log-probabilities differ from the checkpoint's by at most {converted.difference:.1e} (fp32).

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("{name}"{for_model})
tokenizer = AutoTokenizer.from_pretrained("{name}"{for_tokenizer})
prompt = tokenizer("\\nThe", return_tensors="pt")
print(tokenizer.decode(model.generate(**prompt, max_new_tokens=50)[0]))
```

A line end in the text is the symbol `</s>`, which fairseq writes at the end of every line and reads
in front of the first; a prompt therefore best begins with a line end.

## Training

{table(["option", "value"], training_options(state), left=2)}
## Evaluation

{evaluation(cells, state)}
"""


def training_options(state: dict) -> list[tuple[str, str]]:
    """The options that the card tells, and their values."""
    cfg = state.get("cfg")
    if isinstance(cfg, DictConfig):
        cfg = OmegaConf.to_container(cfg)
    rows = []
    for group, options in TOLD.items():
        values = (cfg or {}).get(group) or {}
        values = vars(values) if isinstance(values, argparse.Namespace) else values
        for option in options:
            if values.get(option) not in (None, False, 0, ""):
                rows.append((group if option == "_name" else option, str(values[option])))
    return rows


def evaluation(cells: list[dict], state: dict) -> str:
    """The measured perplexities, or else the best validation of the training."""
    if not cells:
        best = (state.get("extra_state") or {}).get("best")
        if not isinstance(best, float):
            return "Not measured; `alibi-fairseq eval` measures perplexity at any length."
        return f"Best value of the validation metric during training: {best:.3f}."
    columns = ("corpus", "subset", "length", "stride", "tokens")
    rows = [
        [*(str(cell[column]) for column in columns), f"{cell['perplexity']:.2f}"]
        for cell in sorted(
            cells, key=lambda cell: [cell[c] for c in ("corpus", "length", "stride")]
        )
    ]
    return (
        "Perplexity by `alibi-fairseq eval`: windows of L tokens of which the last S are scored.\n\n"
        + table(["text", "split", "L", "S", "tokens", "perplexity"], rows, left=2)
    )
