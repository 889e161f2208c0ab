"""Losses of ``alibi-fairseq eval`` on Hugging Face models, compared with other code."""

from __future__ import annotations

import copy
import json
import math
import shutil

import pytest
import torch
from folders import LENGTH, TEXT, add_own_code, byte_level_tokenizer, make_folder, unigram_tokenizer
from tokenizers import Tokenizer, models, pre_tokenizers
from trained import TRAIN_LENGTH
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedTokenizerFast,
)

from alibi_fairseq.cli import main
from alibi_fairseq.evaluation.windows import Span
from alibi_fairseq.huggingface.model_folder import ModelFolder
from alibi_fairseq.huggingface.text_file import (
    count_words_and_bytes,
    read_documents,
    split_documents,
    tokenize_documents,
)

pytest_plugins = ["evaluate_text"]


def tokens_of(folder, documents: list[str]) -> list[list[int]]:
    """Return the token IDs of each document."""
    tokenizer = ModelFolder.open(folder).tokenizer
    return [tokenizer.encode(part, add_special_tokens=False) for part in documents]


@torch.no_grad()
def naive_losses(
    folder, documents: list[list[int]], length: int, stride: int, first_input: int = 0, score_from=0
) -> list[float]:
    """Return the loss of each document in bits, with a pass in float64 for each token.

    A pass sees the whole window of the token, because the scores of some models depend on the
    number of inputs. With dynamic scaling they also depend on earlier passes, so the rotation is
    fresh.
    """
    is_dynamic = "dynamic" in (folder / "config.json").read_text()
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, trust_remote_code=True
    )
    model = model.double().eval()
    rotation = copy.deepcopy(model.model.rotary_emb) if is_dynamic else None
    sums = []
    for tokens in documents:
        inputs = [first_input, *tokens[:-1]]
        total = 0.0
        for position in range(score_from, len(tokens)):
            scored = score_from + (position - score_from) // stride * stride
            begin = max(0, scored + stride - length)
            window = inputs[begin : min(scored + stride, len(tokens))]
            if is_dynamic:
                model.model.rotary_emb = copy.deepcopy(rotation)
            logits = model(torch.tensor([window])).logits[0, position - begin]
            total -= logits.log_softmax(-1)[tokens[position]].item() / math.log(2)
        sums.append(total)
    return sums


@pytest.mark.ci
@pytest.mark.parametrize(
    "name",
    ["llama", "llama-dynamic", "gpt-neox", "bloom", "mpt", "falcon", "qwen2", "qwen3", "gemma2"],
)
def test_losses_equal_naive_float64(name, evaluate, tmp_path):
    folder = make_folder(tmp_path / name, name)
    documents = tokens_of(folder, [TEXT])
    records = evaluate(folder)
    cases = [(record.case.length, record.case.stride) for record in records]
    assert cases == [(8, 8), (8, 5), (48, 48), (48, 5)]
    for record in records:
        (expected,) = naive_losses(folder, documents, record.case.length, record.case.stride)
        assert record.values.tokens == len(documents[0]) > 48
        assert record.values.loss_bits == pytest.approx(expected / record.values.tokens, abs=1e-5)
        assert record.values.bytes == len(TEXT.encode())
        assert record.values.words == len(TEXT.split()) + TEXT.count("\n")
        assert record.series.train_length == (4 * LENGTH if name == "mpt" else LENGTH)


#: Model that keeps the frequencies of its longest text, like InternLM2.
DYNAMIC_CODE = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM


class DynamicConfig(LlamaConfig):
    model_type = "mine"


class DynamicRotation(torch.nn.Module):
    def __init__(self, length):
        super().__init__()
        self.length = length
        self.longest = length
        self.register_buffer("inv_freq", torch.zeros(4), persistent=False)

    def forward(self, x, position_ids):
        self.longest = max(self.longest, int(position_ids.max()) + 1)
        base = 100.0 * (2.0 * self.longest / self.length - 1.0) ** (8 / 6)
        self.inv_freq = base ** (-torch.arange(0, 8, 2) / 8)
        angles = position_ids[..., None].float() * self.inv_freq
        angles = torch.cat([angles, angles], -1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


class DynamicModel(LlamaForCausalLM):
    config_class = DynamicConfig

    def __init__(self, config):
        super().__init__(config)
        self.model.rotary_emb = DynamicRotation(config.max_position_embeddings)
"""


@pytest.mark.ci
def test_dynamic_rotation_of_own_code_is_reset(evaluate, tmp_path):
    folder = make_folder(tmp_path / "model")
    (tokens,) = tokens_of(folder, [TEXT])
    add_own_code(folder, "modeling_dynamic", DYNAMIC_CODE, "DynamicConfig", "DynamicModel")
    records = evaluate(folder, lengths="48,16", trust_remote_code=True)
    assert {record.case.length for record in records} == {48, 16}
    for record in records:
        (expected,) = naive_losses(folder, [tokens], record.case.length, record.case.stride)
        assert record.values.loss_bits == pytest.approx(expected / len(tokens), abs=1e-5)


@pytest.mark.parametrize("score_from", [0, 7])
def test_documents_equal_naive_float64(evaluate, tmp_path, score_from):
    folder = make_folder(tmp_path / "model")
    parts = split_documents(TEXT, "empty-lines")
    assert "".join(parts) == TEXT
    assert len(parts) == 3
    documents = tokens_of(folder, parts)
    options = {"lengths": "8", "per_document": True, "score_to": "1000"}  # beyond the ends
    if score_from:
        options["score_from"] = str(score_from)
    records = evaluate(folder, **options)
    assert records
    for record in records:
        expected = naive_losses(folder, documents, 8, record.case.stride, score_from=score_from)
        sizes = [len(part) - score_from for part in documents]
        assert list(record.values.document_tokens) == sizes
        assert record.values.document_bits == pytest.approx(expected, abs=1e-3)
        assert (record.values.bytes == len(TEXT.encode())) is (score_from == 0)


def test_documents_are_one_span_without_score_from(evaluate, tmp_path):
    """Only the sums are per document."""
    folder = make_folder(tmp_path / "model")
    documents = tokens_of(folder, split_documents(TEXT, "empty-lines"))
    (whole,) = naive_losses(folder, [sum(documents, [])], 8, 8)
    (record,) = evaluate(folder, lengths="8", strides="full", per_document=True)
    assert sum(record.values.document_bits) == pytest.approx(whole, abs=1e-3)


TEXTS_WITH_DOCUMENTS = {
    "empty-lines": "\none\nmore\n\n\ntwo\n\n = three = \n",
    "titles": " = One = \n\ntext\n = = Section = = \n = Two = \ntext\n\n",
}


@pytest.mark.parametrize("boundary", TEXTS_WITH_DOCUMENTS)
def test_documents_do_not_depend_on_line_ends(boundary):
    text = TEXTS_WITH_DOCUMENTS[boundary]
    parts = split_documents(text, boundary)
    assert len(parts) == (4 if boundary == "empty-lines" else 2)
    windows_parts = [part.replace("\n", "\r\n") for part in parts]
    assert split_documents("".join(windows_parts), boundary) == windows_parts
    # Files with different line ends can be concatenated.
    assert split_documents("".join(windows_parts + parts), boundary)[-1] == parts[-1]


def test_scored_bytes_are_those_of_the_tokens(text, tmp_path):
    folder = ModelFolder.open(make_folder(tmp_path / "model"))
    file = tokenize_documents(read_documents(text, "empty-lines"), folder)

    def decode(first: int, end: int) -> str:
        return folder.tokenizer.decode(file.tokens[first:end])

    def uncut(first: int, end: int) -> Span:
        """Return a span at most as long that begins and ends between characters."""
        while decode(first, end).startswith("\N{REPLACEMENT CHARACTER}"):
            first += 1
        while decode(first, end).endswith("\N{REPLACEMENT CHARACTER}"):
            end -= 1
        return Span(0, first, end)

    last = len(file.tokens)
    for spans in ([uncut(0, 9)], [uncut(5, 30)], [uncut(2, 4), uncut(20, last)]):
        parts = [decode(first, end) for _, first, end in spans]
        assert all(parts)
        words = sum(count_words_and_bytes(part).words for part in parts)
        size = sum(count_words_and_bytes(part).bytes for part in parts)
        assert file.scored_text_size(spans) == (words, size)


@pytest.mark.parametrize("name", ["alibi", "alibi-adaptive", "rotary", "learned", "sinusoidal"])
def test_exported_model_equals_its_checkpoint(
    name, trained, sweep, evaluate, tmp_path, monkeypatch
):
    monkeypatch.setattr(
        "alibi_fairseq.huggingface.export.find_tokenizer_files", lambda *arguments: {}
    )
    folder = tmp_path / "exported"
    arguments = ["--data", str(trained.data), "--path", str(trained(name)), "--out", str(folder)]
    assert main(["export", *arguments]) == 0
    lengths = (16, TRAIN_LENGTH) if name == "learned" else (16, 4 * TRAIN_LENGTH)
    expected = sweep(name, out="ours", lengths=lengths, strides=("full", 5))
    text = shutil.copy(trained.folder / "valid", tmp_path / "valid.txt")
    records = evaluate(folder, texts=(text,), lengths=",".join(map(str, lengths)))
    for record, ours in zip(records, expected, strict=True):
        assert record.values.loss_bits == pytest.approx(ours.values.loss_bits, abs=1e-5)
        assert record.values.tokens == ours.values.tokens
        assert record.values.mean_context == ours.values.mean_context
        assert (record.case.length, record.case.stride) == (ours.case.length, ours.case.stride)
        assert record.series.train_length == ours.series.train_length
        assert record.series.method == ours.series.method


def test_bos_per_window_begins_every_window(evaluate, tmp_path):
    folder = make_folder(tmp_path / "model", "gpt-neox", unigram_tokenizer())
    (tokens,) = tokens_of(folder, [TEXT])
    windows = [tokens[begin : begin + 8] for begin in range(0, len(tokens), 8)]
    expected = sum(naive_losses(folder, windows, 8, 8))
    (record,) = evaluate(folder, lengths="8", strides="full", bos_per_window=True)
    assert record.values.loss_bits == pytest.approx(expected / len(tokens), abs=1e-5)
    assert record.reading.overrides == {"bos_per_window": True}
    (plain,) = evaluate(folder, out="plain", lengths="8", strides="full")
    assert abs(plain.values.loss_bits - record.values.loss_bits) > 1e-3


#: Overrides of a rotation, and the complete parameters that transformers is given instead.
ROTATIONS = {
    "linear": ({"rope_type": "linear", "factor": 4.0}, {"rope_theta": 500.0}),
    "yarn": (
        {"rope_type": "yarn", "factor": 4.0},
        {"rope_theta": 500.0, "original_max_position_embeddings": LENGTH},
    ),
    "proportional": (
        {"rope_type": "proportional", "factor": 4.0, "partial_rotary_factor": 0.5},
        {"rope_theta": 500.0},
    ),
    "base": ({"rope_theta": 20.0}, {"rope_type": "default"}),
}


@torch.no_grad()
@pytest.mark.parametrize("name", ROTATIONS)
def test_overridden_rotation_equals_transformers(name, evaluate, tmp_path):
    overrides, rest = ROTATIONS[name]
    folder = make_folder(
        tmp_path / "model", rope_parameters={"rope_type": "default", "rope_theta": 500.0}
    )
    config = AutoConfig.from_pretrained(folder, rope_parameters={**overrides, **rest})
    model = AutoModelForCausalLM.from_pretrained(folder, config=config).eval()
    (tokens,) = tokens_of(folder, [TEXT])
    window = torch.tensor([0, *tokens[:-1]])[None]
    scores = model(window).logits[0].double().log_softmax(-1)
    expected = -scores[range(len(tokens)), tokens].mean().item() / math.log(2)
    options = {"lengths": str(len(tokens)), "strides": "full"}
    (plain,) = evaluate(folder, out="plain", **options)
    given = json.dumps({"rope_parameters": overrides})
    (record,) = evaluate(folder, model_overrides=given, **options)
    assert abs(plain.values.loss_bits - expected) > 1e-3
    assert record.values.loss_bits == pytest.approx(expected, abs=1e-5)
    assert record.reading.overrides == {"rope_parameters": overrides}


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_is_close(precision, evaluate, tmp_path):
    folder = make_folder(tmp_path / "model", "gemma2")
    options = {"lengths": "16", "strides": "full"}
    (full,) = evaluate(folder, **options)
    (half,) = evaluate(folder, out="half", precision=precision, **options)
    assert 0 < abs(half.values.loss_bits - full.values.loss_bits) < 0.02


def test_unknown_tokens_have_no_size(evaluate, text, tmp_path):
    folder = make_folder(tmp_path / "model", "gpt-neox", unigram_tokenizer())
    (known,) = evaluate(folder, lengths="8", strides="full")
    text.write_text(TEXT + "\N{SNOWMAN}\n", encoding="utf-8")
    (unknown,) = evaluate(folder, out="unknown", lengths="8", strides="full")
    assert known.values.bits_per_byte
    assert unknown.values.bits_per_byte is None
    assert unknown.values.word_perplexity is None


WORDS = ["</s>", *TEXT.split()[:5]]


@pytest.mark.parametrize(
    "model",
    [
        models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="</s>"),
        models.Unigram([(word, -1.0) for word in WORDS], unk_id=0),
    ],
    ids=["word level", "unigram"],
)
@pytest.mark.parametrize("names", [{}, {"unk_token": "</s>"}])
def test_unknown_token_of_the_backend_is_found(names, model, text, tmp_path):
    backend = Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", **names)
    folder = ModelFolder.open(make_folder(tmp_path / "model", tokenizer=tokenizer))
    assert tokenize_documents(read_documents(text), folder).has_unknown


def test_byte_level_tokenizer_has_no_unknown_text(text, tmp_path):
    tokenizer = byte_level_tokenizer()
    tokenizer.unk_token = tokenizer.eos_token
    folder = ModelFolder.open(make_folder(tmp_path / "model", tokenizer=tokenizer))
    text.write_text(TEXT + tokenizer.eos_token, encoding="utf-8")
    assert not tokenize_documents(read_documents(text), folder).has_unknown


def test_documents_without_tokens_are_left_out(evaluate, text, tmp_path):
    vocabulary = {word: index for index, word in enumerate(["</s>", "<unk>", "the", "of"])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")
    folder = make_folder(tmp_path / "model", tokenizer=tokenizer)
    content = "the of the\n\n \n\nof the\n\n \n"
    text.write_text(content)
    options = {"lengths": "8", "strides": "full", "per_document": True, "score_to": "9"}
    (record,) = evaluate(folder, **options)
    assert record.values.document_tokens == (3, 2)
    assert record.values.bytes == len(content)
