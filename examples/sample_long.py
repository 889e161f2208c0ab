# %% [markdown]
# # Text sampled at 16 times the training length
#
# The exported model generates past its training length with cached keys and values. The loss on its
# own text by position shows whether it still works at these lengths.

# %%
import os
import runpy
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = Path("runs/examples/exported")
if not folder.exists():
    runpy.run_path(os.environ.get("ALIBI_TEN_LINES", "examples/ten_lines.py"))
model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)

# %%
length = 16 * model.config.train_length
prompt = tokenizer("\nThe following", return_tensors="pt")
torch.manual_seed(1)
new = length - prompt["input_ids"].shape[1]
tokens = model.generate(**prompt, max_new_tokens=new, do_sample=True, top_k=20, eos_token_id=[])
print(tokenizer.decode(tokens[0]))

# %%
with torch.no_grad():
    log_p = model(tokens).logits[0, :-1].log_softmax(-1)
losses = -log_p.gather(1, tokens[0, 1:, None])[:, 0]
window = model.config.train_length
means = [part.mean().item() for part in losses.split(window)]
figure, axes = plt.subplots(figsize=(5, 3.2), layout="constrained")
axes.step([(i + 0.5) * window for i in range(len(means))], means, where="mid")
axes.axvline(window, linestyle=":", color="black")
axes.set(xlabel="position; dotted: training length", ylabel="nats per sampled token")
axes.set_ylim(bottom=0)
figure.savefig("runs/examples/sample_long.png", dpi=120)
