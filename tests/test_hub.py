"""fairseq's hub interface for checkpoints of this package."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path

import pytest
import torch
from commands import ROOT, SHORT, in_process
from data.preparations import WORDS

from alibi_fairseq import AlibiLanguageModel, cli


@pytest.fixture(scope="module")
def model(checkpoint, data_bin):
    folder, name = str(checkpoint.parent), checkpoint.name
    return AlibiLanguageModel.from_pretrained(folder, name, data_name_or_path=str(data_bin)).eval()


def test_score_is_the_models_own(model):
    sentence = "w1 w2 w3"
    scored = model.score(sentence)
    tokens = model.encode(sentence)  # w1 w2 w3 </s>
    with torch.no_grad():
        start = tokens.new_tensor([[2, *tokens[:-1]]])
        scores = model.models[0](start)[0].log_softmax(dim=-1)[0]
    expected = [scores[i, token].item() for i, token in enumerate(tokens[:-1])]
    assert scored["positional_scores"][: len(expected)].tolist() == pytest.approx(
        expected, abs=1e-5
    )


def test_score_of_several_lengths_at_once(model):
    sentences = ["w1 w2 w3 w4 w5 w6", "w7", "w8 w9 w1"]
    together = [hypothesis["positional_scores"] for hypothesis in model.score(sentences)]
    for sentence, scores in zip(sentences, together):
        alone = model.score(sentence)["positional_scores"]
        torch.testing.assert_close(scores, alone, rtol=0, atol=1e-5)


def test_sample_goes_on_from_the_text_past_the_training_length(model):
    text = model.sample("w1 w2 w3", beam=2, max_len_b=40, min_len=40)
    words = text.split()
    assert words[:3] == ["w1", "w2", "w3"]
    assert len(words) > 2 * 16  # trained at 16
    assert math.isfinite(model.score(text)["score"])


def test_the_example_of_the_readme(tmp_path, monkeypatch, capsys):
    """README's own preparation, a short training, and its Python example as it stands."""
    example = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[1]
    folder, name, data = re.search(
        r'from_pretrained\(\s*"([^"]+)", "([^"]+)", "([^"]+)"', example
    ).groups()
    monkeypatch.chdir(tmp_path)
    text = "\n".join(" ".join(line) for line in zip(*[iter(random.choices(WORDS, k=20_000))] * 8))
    (tmp_path / "text.txt").write_text(text)
    out = Path(data).parent
    assert cli.main(["prepare", "text", "text.txt", "--vocab-size", "300", "--out", str(out)]) == 0
    in_process("train", data, *SHORT, "--save-dir", folder)
    variables: dict = {}
    exec(example, variables)  # the README's own lines
    model = variables["model"]
    tokens = model.encode("that was for his")
    assert model.src_dict.unk() not in tokens and model.decode(tokens) == "that was for his"
    assert model.sample("that was", beam=2).startswith("that was")
    assert name in {path.name for path in Path(folder).iterdir()}
