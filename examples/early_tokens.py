# %% [markdown]
# # The early-token curse
#
# Tokens at the start of a window have little context. Longer non-overlapping windows (S = L) have
# fewer such tokens. Perplexity therefore falls with the length even if the model uses no additional
# context. Sliding windows give every token at least L − S tokens of context.

# %%
import json
import os
from pathlib import Path

import matplotlib.pyplot as plt

from alibi_fairseq.cli import main

RUN = Path(os.environ.get("ALIBI_RUN", "runs/demo/python-documentation"))
CHECKPOINT = RUN / "alibi-64-seed1" / "checkpoint_last.pt"
DATA = RUN / "data-bin"
LENGTHS = (64, 128, 256, 512)
folder = Path("runs/examples")
folder.mkdir(parents=True, exist_ok=True)

# %%
results = folder / "early_tokens.json"
arguments = [str(DATA), "--path", str(CHECKPOINT), "--out", str(results)]
main(["eval", *arguments, "--lengths", ",".join(map(str, LENGTHS)), "--strides", "full,16"])

# %%
cells = json.loads(results.read_text())["cells"]
figure, axes = plt.subplots(figsize=(5, 3.2), layout="constrained")
curves = {
    "S = L": [cell for cell in cells if cell["stride"] == cell["length"]],
    "S = 16": [cell for cell in cells if cell["stride"] == 16],
}
for label, curve in curves.items():
    points = sorted((cell["length"], cell["perplexity"]) for cell in curve)
    axes.plot(*zip(*points), marker="o", label=label)
    print(label, *(f"{perplexity:.2f} at {length}" for length, perplexity in points), sep="  ")
axes.set(xscale="log", xlabel="window length L", ylabel="perplexity")
axes.set_xticks(LENGTHS, LENGTHS)
axes.legend()
figure.savefig(folder / "early_tokens.png", dpi=120)
