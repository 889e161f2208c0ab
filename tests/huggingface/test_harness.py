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


CHOICES = {
    "task": "ours",
    "dataset_path": "json",
    "test_split": "test",
    "output_type": "multiple_choice",
    "doc_to_text": "{{question}}",
    "doc_to_choice": "{{choices}}",
    "doc_to_target": "{{answer}}",
    "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
}


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


def test_multiple_choice_from_a_file(words, tmp_path):
    lines = text_of("train")[:20]
    documents = [
        {
            "question": " ".join(line.split()[:5]),
            "choices": [line.split()[5], lines[number - 1].split()[2], "the and of"],
            "answer": 0,
        }
        for number, line in enumerate(lines)
    ]
    (tmp_path / "choices.jsonl").write_text("".join(json.dumps(d) + "\n" for d in documents))
    task = {**CHOICES, "dataset_kwargs": {"data_files": {"test": str(tmp_path / "choices.jsonl")}}}
    by_model = []
    for model in models(words, TRAIN_LENGTH):
        found = lm_eval.simple_evaluate(model, tasks=[task], log_samples=True)
        assert 0 < found["results"]["ours"]["acc,none"] < 1
        samples = sorted(found["samples"]["ours"], key=lambda sample: sample["doc_id"])
        by_model.append([s for x in samples for s, *_ in [r[0] for r in x["resps"]]])
    assert by_model[0] == pytest.approx(by_model[1], abs=1e-4)


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


def test_a_continuation_longer_than_the_window_is_refused(words):
    """Scoring its end only would be a wrong number."""
    from alibi_fairseq.huggingface.harness import FairseqLM

    _, data, checkpoint, _ = words
    model = FairseqLM(path=str(checkpoint), data=str(data), length=8)
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


def test_a_window_of_no_tokens_is_refused(words):
    from alibi_fairseq.errors import BadInput
    from alibi_fairseq.huggingface.harness import FairseqLM

    _, data, checkpoint, _ = words
    with pytest.raises(BadInput):
        FairseqLM(path=str(checkpoint), data=str(data), length=0)
