"""Documented examples of attention and blocks, which run without fairseq."""

from __future__ import annotations

import re

import pytest
from commands import ROOT, as_process

#: Requirements of the package other than torch, which the core must not import.
HIDDEN = (
    "fairseq",
    "fairseq_cli",
    "hydra",
    "matplotlib",
    "numpy",
    "omegaconf",
    "psutil",
    "pydantic",
    "sacremoses",
    "sentencepiece",
    "tensorboard",
    "tensorboardX",
    "tqdm",
)
HIDE = f"import sys; sys.modules.update(dict.fromkeys({HIDDEN}))\n"
PAGE = (ROOT / "docs" / "alibi-in-pytorch.md").read_text()
EXAMPLES = [
    (ROOT / "examples" / "torch_layer.py").read_text(),
    *re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL),
]

CHECKS = [
    # Against torch's own layer with a dense mask: ALiBi is −slope · distance, slopes 1/2 … 1/256.
    """
distance = torch.arange(128)[:, None] - torch.arange(128)
slopes = 2.0 ** -torch.arange(1, 9)
dense = (-slopes[:, None, None] * distance).masked_fill(distance < 0, -torch.inf)
y = start
for layer in layers:
    y = nn.TransformerEncoderLayer.forward(layer, y, src_mask=dense.repeat(4, 1, 1))
torch.testing.assert_close(x, y, rtol=0, atol=1e-5)
x.sum().backward()
assert layers[0].self_attn.in_proj_weight.grad is not None
""",
    # Against softmax with the same dense bias.
    """
scores = q @ k.transpose(-1, -2) / 8**0.5 - slopes[:, None, None] * distance
scores = scores.masked_fill(distance < 0, -torch.inf)
torch.testing.assert_close(output, scores.softmax(-1) @ v, rtol=0, atol=1e-5)
""",
    """
moved = x.clone()
moved[:, -1] += 1
torch.testing.assert_close(run(moved)[0][:, :-1], whole[:, :-1])
whole.sum().backward()
assert blocks[0].self_attn.q_proj.weight.grad is not None
""",
]


@pytest.mark.ci
def test_examples_run_without_fairseq():
    code = HIDE + "".join(example + check for example, check in zip(EXAMPLES, CHECKS, strict=True))
    code = code.replace("x = torch.randn(4, 128, 64)", "start = x = torch.randn(4, 128, 64)")
    process = as_process("-c", code + "\nprint('done')")
    assert process.stdout.endswith("done\n"), process.stderr[-1500:]
    assert "2 layers with ALiBi: output (4, 128, 64)" in process.stdout
