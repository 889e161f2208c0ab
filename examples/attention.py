# %% [markdown]
# # Attention of a trained model by head and distance
#
# This example plots the average attention weight by head and distance on validation text. The text
# has four times the training length. Dotted lines show the weights of the bias alone, with equal
# scores.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import torch

from alibi_fairseq.evaluation.checkpoint import load_checkpoint
from alibi_fairseq.evaluation.split import load_dictionary, load_split
from alibi_fairseq.huggingface.conversion import convert_decoder
from alibi_fairseq.positions import alibi_slopes
from alibi_fairseq.results.data_folder import DataFolder

RUN = Path(os.environ.get("ALIBI_RUN", "runs/demo/python-documentation"))
CHECKPOINT = RUN / "alibi-64-seed1" / "checkpoint_last.pt"
DATA = RUN / "data-bin"
if not CHECKPOINT.is_file():
    raise SystemExit(f"{CHECKPOINT} is missing. Run ./scripts/demo.sh, or set ALIBI_RUN.")

# %%
loaded = load_checkpoint(CHECKPOINT, DATA)
length = loaded.weights.series.train_length
model = convert_decoder(loaded.decoder, "alibi", length).model
model.set_attn_implementation("eager")  # the only one that returns weights
split = load_split(DataFolder.open(DATA), "valid", load_dictionary(DATA))
tokens = torch.from_numpy(split.tokens[: 4 * length])
with torch.no_grad():
    attentions = model(
        tokens[None], output_attentions=True
    ).attentions  # one (1, H, T, T) per layer

# %%
slopes = alibi_slopes(model.config.num_attention_heads)
distance = torch.arange(4 * length)
expected = (-slopes[:, None] * distance).softmax(-1)
figure, panels = plt.subplots(1, len(attentions), figsize=(12, 3.2), layout="constrained")
for layer, (axes, weights) in enumerate(zip(panels, attentions)):
    for head, head_weights in enumerate(weights[0]):  # (T, T)
        averages = [head_weights.diagonal(-int(d)).mean() for d in distance]
        color = plt.cm.viridis(head / len(slopes))
        axes.plot(distance + 1, averages, color=color)
        axes.plot(distance + 1, expected[head], color=color, linestyle=":", linewidth=0.8)
    axes.set(xscale="log", yscale="log", ylim=(1e-5, 1), title=f"layer {layer + 1}")
    axes.set_xlabel("distance + 1")
panels[0].set_ylabel("average weight")

# %%
folder = Path("runs/examples")
folder.mkdir(parents=True, exist_ok=True)
figure.savefig(folder / "attention.png", dpi=120)
print(f"{folder / 'attention.png'}: one line per head, dark for the steepest slope")
