"""Effective context, and attention by distance against a naive computation in float64."""

import math
from collections import Counter

import pytest
import torch
from conftest import random_tokens, small_model

from alibi_fairseq.cli import main
from alibi_fairseq.evaluation.checkpoint import LoadedModel
from alibi_fairseq.evaluation.context import attention_mass, distances, effective_context
from alibi_fairseq.evaluation.measure import Stream
from alibi_fairseq.evaluation.windows import plan_windows
from alibi_fairseq.results.schema import load_document

HEADS, SIZE = 8, 8


@pytest.mark.parametrize("method", ["alibi", "none"])
@pytest.mark.parametrize("stride", [24, 5])
def test_attention_by_distance_is_that_of_a_naive_softmax(method, stride):
    model = small_model(method, heads=HEADS)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    tokens = random_tokens(1, 72)[0]
    stream = Stream(tokens.roll(1), tokens, "test")
    windows = plan_windows(72, 24, stride)
    loaded = LoadedModel(model.decoder, {}, 10**9, 0, False, 1)
    mass = attention_mass(loaded, stream, windows)
    assert distances(len(mass)) == ["0", "1", "2–3", "4–7", "8–15", "16–31"]

    whole = [window for window in windows if window.length == 24]
    naive: Counter = Counter()
    for window in whole:
        inputs = stream.inputs[window.start : window.stop]
        for x, attention in zip(*layers_of(model.decoder, inputs)):
            q, k = (
                torch.nn.functional.linear(x, each.weight.double(), each.bias.double())
                for each in (attention.q_proj, attention.k_proj)
            )
            for head in range(HEADS):
                slope = 2.0 ** -(head + 1) if method == "alibi" else 0.0
                part = slice(head * SIZE, (head + 1) * SIZE)
                for i in range(24 - window.scores, 24):
                    scores = [
                        float(q[i, part] @ k[j, part]) / math.sqrt(SIZE) - slope * (i - j)
                        for j in range(i + 1)
                    ]
                    total = sum(map(math.exp, scores))
                    for j, score in enumerate(scores):
                        naive[(i - j).bit_length()] += math.exp(score) / total
    expected = [naive[bucket] / sum(naive.values()) for bucket in range(6)]
    assert mass == pytest.approx(expected, rel=1e-4)
    assert sum(mass) == pytest.approx(1)


def layers_of(decoder, inputs):
    """The input (T, C) of each layer's attention in float64, and the attention."""
    attentions, seen = [layer.self_attn for layer in decoder.layers], []
    hooks = [
        each.register_forward_pre_hook(
            lambda module, arguments, options: seen.append(options["query"][:, 0].double()),
            with_kwargs=True,
        )
        for each in attentions
    ]
    with torch.no_grad():
        decoder(inputs[None])
    for hook in hooks:
        hook.remove()
    return seen, attentions


@pytest.mark.parametrize("percent, expected", [(0, 512), (1, 128), (5, 64), (100, 16)])
def test_effective_context_is_the_shortest_window_within_the_band(percent, expected):
    losses = {16: 7.0, 64: 4.15, 128: 4.03, 256: 4.01, 512: 4.0}
    cells = [{"length": length, "loss_bits": loss} for length, loss in losses.items()]
    assert effective_context(cells, percent) == expected


def test_eval_adds_both(checkpoint, data_bin, tmp_path, capsys):
    out = tmp_path / "results.json"
    words = ["eval", data_bin, "--path", checkpoint, "--lengths", "8,16", "--stride", 4]
    words += ["--out", out, "--score-from", 16, "--effective-context"]
    assert main([str(word) for word in words]) == 0
    printed = capsys.readouterr().out
    assert "effective" in printed and "8–15" in printed
    short, long = load_document(out)["cells"]
    assert short["tokens"] == long["tokens"]
    assert [len(cell["attention_mass"]) for cell in (short, long)] == [4, 5]
    assert sum(long["attention_mass"]) == pytest.approx(1)
