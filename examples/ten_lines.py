# %% [markdown]
# # An exported model in ten lines of transformers
#
# The first cell exports the model. The ten lines after it do not require fairseq.

# %%
import os
from pathlib import Path

from alibi_fairseq.cli import main

RUN = Path(os.environ.get("ALIBI_RUN", "runs/demo/python-documentation"))
CHECKPOINT = RUN / "alibi-64-seed1" / "checkpoint_last.pt"
DATA = RUN / "data-bin"
folder = Path("runs/examples/exported")
if not folder.exists():
    if not CHECKPOINT.is_file():
        raise SystemExit(f"{CHECKPOINT} is missing. Run ./scripts/demo.sh, or set ALIBI_RUN.")
    arguments = ["--path", str(CHECKPOINT), "--data", str(DATA), "--out", str(folder)]
    tokenizer = os.environ.get("ALIBI_SENTENCEPIECE")  # if it is not next to the data
    if tokenizer:
        arguments += ["--tokenizer-files", tokenizer]
    exit_code = main(["export", *arguments])
    if exit_code != 0:
        raise SystemExit(exit_code)

# %%
import torch  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
prompt = tokenizer("\nThe following", return_tensors="pt")
torch.manual_seed(1)
output = model.generate(**prompt, max_new_tokens=60, do_sample=True, top_k=20, eos_token_id=[])
print(tokenizer.decode(output[0]))
loss = model(**prompt, labels=prompt["input_ids"]).loss
print(f"{loss.item():.2f} nats per token of the prompt")
