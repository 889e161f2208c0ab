# %% [markdown]
# # The early-token curse
#
# Tokens at the start of a window are predicted from little context. Non-overlapping windows (S = L)
# have fewer of them the longer they are, so perplexity falls with the length even if the model uses
# no more context than before. Sliding windows give every token at least L − S of context.

# %%
import json
import os
from pathlib import Path

import matplotlib.pyplot as plt

from alibi_fairseq.cli import main

RUN = Path(os.environ.get("ALIBI_RUN", "runs/demo/python-documentation"))
CHECKPOINT, DATA = RUN / "alibi-64-seed1" / "checkpoint_last.pt", RUN / "data-bin"
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
for label, wanted in (("S = L", lambda c: c["stride"] == c["length"]),
                      ("S = 16", lambda c: c["stride"] == 16)):  # fmt: skip
    points = sorted((c["length"], c["perplexity"]) for c in cells if wanted(c))
    axes.plot(*zip(*points), marker="o", label=label)
    print(label, *(f"{perplexity:.2f} at {length}" for length, perplexity in points), sep="  ")
axes.set(xscale="log", xlabel="window length L", ylabel="perplexity")
axes.set_xticks(LENGTHS, LENGTHS)
axes.legend()
figure.savefig(folder / "early_tokens.png", dpi=120)
