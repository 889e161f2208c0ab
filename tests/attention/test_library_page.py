"""The examples of attention in other models run without fairseq and compute what they say."""

from __future__ import annotations

import re

from commands import ROOT, as_process

HIDDEN = ("fairseq", "fairseq_cli", "hydra", "omegaconf", "numpy")  # the core needs torch alone
HIDE = f"import sys; sys.modules.update(dict.fromkeys({HIDDEN}))\n"
PAGE = (ROOT / "docs" / "attention-and-losses.md").read_text()
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
    """
torch.manual_seed(0)
for method in ("rotary", "xpos", "alibi", "t5", "kerple", "sandwich", "none", "transformer_xl"):
    attention = CausalAttention(64, 8, 1, method).eval()
    x = torch.randn(2, 40, 64)
    whole, _ = attention(x)
    first, cache = attention(x[:, :25])
    second, cache = attention(x[:, 25:39], cache)
    third, cache = attention(x[:, 39:], cache)
    steps = torch.cat([first, second, third], 1)
    torch.testing.assert_close(steps, whole, rtol=0, atol=1e-5)
    moved = x.clone()
    moved[:, -1] += 1
    torch.testing.assert_close(attention(moved)[0][:, :-1], whole[:, :-1])
""",
]


def test_examples_run_without_fairseq():
    code = HIDE + "".join(example + check for example, check in zip(EXAMPLES, CHECKS, strict=True))
    code = code.replace("x = torch.randn(4, 128, 64)", "start = x = torch.randn(4, 128, 64)")
    done = as_process("-c", code + "\nprint('done')")
    assert done.stdout == "done\n", done.stderr[-1500:]
