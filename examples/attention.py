# %% [markdown]
# # Where the heads of a trained model look
#
# Average attention weight by head and distance over a stretch of the validation text, four times as
# long as the texts in training. Dashed: what the bias alone would give, were all scores equal.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import torch

from alibi_fairseq.evaluation.checkpoint import load_checkpoint
from alibi_fairseq.evaluation.data import load_dictionary, load_split
from alibi_fairseq.huggingface.conversion import convert
from alibi_fairseq.positions import alibi_slopes
from alibi_fairseq.results.data_folder import DataFolder

RUN = Path(os.environ.get("ALIBI_RUN", "runs/demo/python-documentation"))
CHECKPOINT, DATA = RUN / "alibi-64-seed1" / "checkpoint_last.pt", RUN / "data-bin"

# %%
loaded = load_checkpoint(CHECKPOINT, DATA)
length = loaded.facts["train_length"]
model = convert(loaded.decoder, "alibi", length).model
model.set_attn_implementation("eager")  # the one that returns weights
split = load_split(DataFolder.open(DATA), "valid", load_dictionary(DATA))
tokens = torch.from_numpy(split.tokens[: 4 * length])
with torch.no_grad():
    attentions = model(tokens[None], output_attentions=True).attentions  # (1, H, T, S) each

# %%
slopes = alibi_slopes(model.config.num_attention_heads)
distance = torch.arange(4 * length)
expected = (-slopes[:, None] * distance).softmax(-1)
figure, panels = plt.subplots(1, len(attentions), figsize=(12, 3.2), layout="constrained")
for layer, (axes, weights) in enumerate(zip(panels, attentions)):
    for head, of_head in enumerate(weights[0]):
        by_distance = [of_head.diagonal(-int(d)).mean() for d in distance]
        color = plt.cm.viridis(head / len(slopes))
        axes.plot(distance + 1, by_distance, color=color)
        axes.plot(distance + 1, expected[head], color=color, linestyle=":", linewidth=0.8)
    axes.set(xscale="log", yscale="log", ylim=(1e-5, 1), title=f"layer {layer + 1}")
    axes.set_xlabel("distance + 1")
panels[0].set_ylabel("average weight")

# %%
folder = Path("runs/examples")
folder.mkdir(parents=True, exist_ok=True)
figure.savefig(folder / "attention.png", dpi=120)
print(f"{folder / 'attention.png'}: one line per head, dark for the steepest slope")
