# %% [markdown]
# # Context extension by interpolation
#
# Dividing ALiBi's slopes by tokens / training length limits the bias to values seen in training
# (Al-Khateeb et al. 2023). This requires no training.

# %%
import json
import os
from pathlib import Path

import matplotlib.pyplot as plt

from alibi_fairseq.cli import main
from alibi_fairseq.files import sha256_file
from alibi_fairseq.results.file import load

RUN = Path(os.environ.get("ALIBI_RUN", "runs/demo/python-documentation"))
CHECKPOINT = RUN / "alibi-64-seed1" / "checkpoint_last.pt"
DATA = RUN / "data-bin"
if not CHECKPOINT.is_file():
    raise SystemExit(f"{CHECKPOINT} is missing. Run ./scripts/demo.sh, or set ALIBI_RUN.")
LENGTHS = (64, 128, 256, 512, 1024)
folder = Path("runs/examples")
folder.mkdir(parents=True, exist_ok=True)

# %%
checkpoint_sha256 = sha256_file(CHECKPOINT)
figure, axes = plt.subplots(figsize=(5, 3.2), layout="constrained")
for scale in ("none", "4", "dynamic"):
    results_path = folder / f"interpolation-{scale}.json"
    arguments = [str(DATA), "--path", str(CHECKPOINT), "--out", str(results_path)]
    overrides = json.dumps({"alibi_scale": scale})
    lengths = ",".join(map(str, LENGTHS))
    exit_code = main(["eval", *arguments, "--lengths", lengths, "--model-overrides", overrides])
    if exit_code != 0:
        raise SystemExit(exit_code)
    points = []
    for result in load(results_path).results:
        # The file also has the results of the models that earlier runs of this script evaluated.
        if result.checkpoint_sha256 == checkpoint_sha256:
            points.append((result.case.length, result.values.perplexity))
    points.sort()
    axes.plot(*zip(*points), marker="o", label=f"slopes ÷ {scale}")

# %%
axes.set(xscale="log", xlabel="window length L", ylabel="perplexity")
axes.set_xticks(LENGTHS, LENGTHS)
axes.legend()
figure.savefig(folder / "interpolation.png", dpi=120)
