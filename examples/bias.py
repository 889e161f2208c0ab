# %% [markdown]
# # Score biases of position methods
#
# ALiBi, T5 bias, KERPLE, and Sandwich add a bias to each attention score. It depends only on the
# distance from the query to the key. This example plots the initial bias of every head.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import torch

from alibi_fairseq.positions import PositionConfig, build_position_method

HEADS = 8
DISTANCES = 512
torch.manual_seed(1)
config = PositionConfig(embed_dim=512, num_heads=HEADS, num_layers=1, train_length=DISTANCES)

# %%
figure, panels = plt.subplots(1, 4, figsize=(12, 3), layout="constrained")
distance = torch.arange(DISTANCES)
for axes, name in zip(panels, ("alibi", "t5", "kerple", "sandwich")):
    bias = build_position_method(name, config).bias(layer=0, num_keys=DISTANCES)
    for head, values in enumerate(bias.at(distance).detach()):  # (H, distances)
        axes.plot(distance, values, color=plt.cm.viridis(head / HEADS))
    axes.set(title=name, xlabel="distance in tokens")
panels[0].set_ylabel("added to the score")
figure.suptitle("Score biases before training")

# %%
folder = Path("runs/examples")
folder.mkdir(parents=True, exist_ok=True)
figure.savefig(folder / "bias.png", dpi=120)
print(f"{folder / 'bias.png'}: one line per head, dark for the first")
