"""The model card: how a model was trained and measured, and how to load it."""

from __future__ import annotations

import argparse

from omegaconf import DictConfig, OmegaConf
from transformers import PreTrainedTokenizerBase

from ..reporting.markdown import literal
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
        run: name of the run, that of the checkpoint's folder.
        name: name of the exported folder.
        facts: of the checkpoint, as results have them.
        state: what the checkpoint file holds.
        converted: the exported model.
        tokenizer: the exported tokeniser.
        cells: results of ``alibi-fairseq eval`` for this checkpoint.
    """
    remote = converted.architecture == NAME
    code = ", trust_remote_code=True"
    parameters = sum(p.numel() for p in converted.model.parameters())
    for_model, for_tokenizer = remote, isinstance(tokenizer, AlibiLmTokenizer)
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

model = AutoModelForCausalLM.from_pretrained("{name}"{code if for_model else ""})
tokenizer = AutoTokenizer.from_pretrained("{name}"{code if for_tokenizer else ""})
prompt = tokenizer("\\nThe", return_tensors="pt")
print(tokenizer.decode(model.generate(**prompt, max_new_tokens=50)[0]))
```

A line end in the text is the symbol `</s>`, which fairseq writes at the end of every line and reads
in front of the first; a prompt therefore best begins with a line end.

## Training

| option | value |
|---|---|
{_table(training_options(state))}

## Evaluation

{_measured(cells) if cells else _last_validation(state)}
"""


def training_options(state: dict) -> list[tuple[str, object]]:
    """The options that the card tells, and their values."""
    cfg = state.get("cfg")
    if isinstance(cfg, DictConfig):
        cfg = OmegaConf.to_container(cfg)
    if not isinstance(cfg, dict):
        return []
    rows = []
    for group, options in TOLD.items():
        values = cfg.get(group) or {}
        values = vars(values) if isinstance(values, argparse.Namespace) else values
        for option in options:
            if values.get(option) not in (None, False, 0, ""):
                label = group if option == "_name" else option
                rows.append((label, values[option]))
    return rows


def _table(rows: list[tuple[str, object]]) -> str:
    return "\n".join(f"| {label} | {literal(str(value))} |" for label, value in rows)


def _measured(cells: list[dict]) -> str:
    lines = [
        "Perplexity by `alibi-fairseq eval`: windows of L tokens of which the last S are scored.",
        "",
        "| text | split | L | S | tokens | perplexity |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for cell in sorted(cells, key=lambda cell: (cell["corpus"], cell["length"], cell["stride"])):
        lines.append(
            f"| {literal(cell['corpus'])} | {literal(cell['subset'])} | {cell['length']} | {cell['stride']} | "
            f"{cell['tokens']} | {cell['perplexity']:.2f} |"
        )
    return "\n".join(lines)


def _last_validation(state: dict) -> str:
    best = (state.get("extra_state") or {}).get("best")
    if not isinstance(best, float):
        return "Not measured; `alibi-fairseq eval` measures perplexity at any length."
    return f"Best value of the validation metric during training: {best:.3f}."
