"""lm-evaluation-harness on exported folders and on checkpoints gives our perplexity."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path

import pytest
from commands import ROOT, as_process, in_process
from trained import TRAIN_LENGTH, text_of, train

from alibi_fairseq.cli import main
from alibi_fairseq.errors import BadInput

pytest.importorskip("accelerate", reason="the harness's hf model needs it")
lm_eval = pytest.importorskip("lm_eval", reason="pip install 'alibi-fairseq[harness]'")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """Words (not pieces) as data, a checkpoint trained on them, its export, and a text whose number
    of tokens is a multiple of four times the training length."""
    folder = tmp_path_factory.mktemp("words")
    tokens, page = 0, []
    for line in text_of("valid") + text_of("test") + text_of("train"):
        page.append(line)
        tokens += len(line.split()) + 1
        if tokens >= 600:
            break
    surplus = tokens % (4 * TRAIN_LENGTH)
    while surplus:  # shorten lines until the last window is full
        line = page.pop()
        size = len(line.split()) + 1
        if size <= surplus:
            surplus -= size
        else:
            page.append(" ".join(line.split()[: size - 1 - surplus]))
            surplus = 0
    (folder / "train.txt").write_text("\n".join(text_of("train")) + "\n")
    (folder / "test.txt").write_text("\n".join(page) + "\n")
    data = folder / "data-bin"
    prefixes = ["--trainpref", folder / "train.txt", "--testpref", folder / "test.txt"]
    in_process("preprocess", "--only-source", *prefixes, "--destdir", data, "--workers", 1)
    small = "--arch alibi_lm --decoder-layers 2 --decoder-embed-dim 32 --decoder-ffn-embed-dim 64"
    checkpoint = train(data, folder / "run", small)
    out = folder / "exported"
    assert main(["export", "--path", f"{checkpoint}", "--data", f"{data}", "--out", f"{out}"]) == 0
    return folder, data, checkpoint, out


def wikitext(text: str, folder) -> str:
    """The harness's WikiText task on a text of ours."""
    (folder / "pages.jsonl").write_text(json.dumps({"page": text}) + "\n")
    original = Path(lm_eval.__file__).parent / "tasks" / "wikitext" / "wikitext.yaml"
    (folder / "ours.yaml").write_text(
        f"include: {original}\ntask: wikitext\ndataset_path: json\ndataset_name: null\n"
        "training_split: null\nvalidation_split: null\n"
        f"dataset_kwargs:\n  data_files:\n    test: {folder}/pages.jsonl\n"
    )
    return str(folder / "ours.yaml")


def models(words, length: int):
    """The exported folder with the harness's own model, and the checkpoint with ours."""
    from lm_eval.models.huggingface import HFLM

    from alibi_fairseq.huggingface.harness import FairseqLM

    _, data, checkpoint, out = words
    settings = dict(trust_remote_code=True, device="cpu", dtype="float32", max_length=length)
    yield HFLM(pretrained=str(out), **settings)
    yield FairseqLM(path=str(checkpoint), data=str(data), length=length, batch_size=3)


@pytest.mark.parametrize("factor", [1, 4])
def test_rolling_perplexity_equals_eval(words, factor, tmp_path):
    folder, data, checkpoint, _ = words
    length = factor * TRAIN_LENGTH
    results = tmp_path / "results.json"
    arguments = [str(data), "--path", str(checkpoint), "--subset", "test"]
    assert main(["eval", *arguments, "--lengths", str(length), "--out", str(results)]) == 0
    (cell,) = json.loads(results.read_text())["cells"]
    nats = math.log(cell["perplexity"]) * cell["tokens"]
    text = (folder / "test.txt").read_text()
    assert cell["tokens"] % length == 0
    for model in models(words, length):
        found = lm_eval.simple_evaluate(model, tasks=[wikitext(text, tmp_path)])
        metrics = found["results"]["wikitext"]
        # Their words are what stands between white space; their bytes are ours.
        per_word = math.exp(nats / len(re.split(r"\s+", text)))
        assert metrics["word_perplexity,none"] == pytest.approx(per_word, rel=1e-5)
        bits = nats / math.log(2) / len(text.encode())
        assert metrics["bits_per_byte,none"] == pytest.approx(bits, rel=1e-5)


def test_the_command(words, tmp_path):
    _, data, checkpoint, _ = words
    (tmp_path / "pages.jsonl").write_text(json.dumps({"text": "the of and"}) + "\n")
    (tmp_path / "tiny.yaml").write_text(
        "task: tiny\ndataset_path: json\noutput_type: loglikelihood_rolling\ntest_split: test\n"
        f"dataset_kwargs:\n  data_files:\n    test: {tmp_path}/pages.jsonl\n"
        'doc_to_text: ""\ndoc_to_target: "{{text}}"\n'
        "metric_list:\n  - metric: bits_per_byte\n"
    )
    done = as_process(
        *("-m", "alibi_fairseq.huggingface.harness", "run", "--model", "alibi_fairseq"),
        *("--model_args", f"path={checkpoint},data={data}"),
        *("--tasks", "tiny", "--include_path", tmp_path),
        HF_HOME=tmp_path,
        PYTHONPATH=os.environ.get("PYTHONPATH", str(ROOT)),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "bits_per_byte" in done.stdout


def test_windows_too_short_for_a_score_are_refused(words):
    """Scoring its end only would be a wrong number."""
    from alibi_fairseq.huggingface.harness import FairseqLM

    _, data, checkpoint, _ = words
    model = FairseqLM(path=str(checkpoint), data=str(data), length=8)
    with pytest.raises(BadInput):
        FairseqLM(path=str(checkpoint), data=str(data), length=0)
    with pytest.raises(AssertionError):
        model._loglikelihood_tokens([(("", ""), [2], [*range(4, 23)])], disable_tqdm=True)


def test_generation(words):
    """The continuation that transformers generates from the exported folder."""
    from lm_eval.api.instance import Instance

    text = " ".join(text_of("train")[0].split()[:6])
    said = []
    for model in models(words, 4 * TRAIN_LENGTH):
        requests = [
            Instance("generate_until", {}, (start, {"until": ["\n\n"], "max_gen_toks": 12}), 0)
            for start in (text, " ".join(text.split()[:3]), text)
        ]
        said.append(model.generate_until(requests, disable_tqdm=True))
    assert said[0] == said[1] and len(said[0][0].split()) > 5
