"""fairseq's hub interface for checkpoints of this package."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
import sentencepiece
import torch
from conftest import describe
from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE, SentencepieceConfig

from alibi_fairseq import AlibiLanguageModel
from alibi_fairseq.errors import UserInputError


@pytest.fixture(scope="module")
def model(checkpoint, data_bin):
    folder = str(checkpoint.parent)
    name = checkpoint.name
    return AlibiLanguageModel.from_pretrained(folder, name, data_name_or_path=str(data_bin)).eval()


def test_batched_scores_match_model(model):
    sentences = ["w1 w2 w3 w4 w5 w6", "w7", "w8 w9 w1"]
    for sentence, hypothesis in zip(sentences, model.score(sentences), strict=True):
        tokens = model.encode(sentence)
        with torch.no_grad():
            start = tokens.new_tensor([[2, *tokens[:-1]]])  # </s> and the words
            scores = model.models[0](start)[0].log_softmax(dim=-1)[0]
        expected = scores.gather(1, tokens[:, None].long())[: len(tokens) - 1, 0]
        for result in (hypothesis, model.score(sentence)):
            word_scores = result["positional_scores"][: len(expected)]
            torch.testing.assert_close(word_scores, expected, rtol=0, atol=1e-5)


def test_sample_continues_past_training_length(model):
    text = model.sample("w1 w2 w3", beam=2, max_len_b=40, min_len=40)
    words = text.split()
    assert words[:3] == ["w1", "w2", "w3"]
    assert len(words) > 2 * 16  # trained at 16
    assert math.isfinite(model.score(text)["score"])


def test_newline_is_end_of_line_as_in_data(model):
    expected = torch.cat([model.encode("w1 w2"), model.encode(""), model.encode("w3")])
    assert expected.eq(model.src_dict.eos()).sum() == 3
    for text in ("w1 w2\n\nw3", "w1 w2\r\n\r\nw3"):
        assert torch.equal(model.encode(text), expected)
        assert torch.equal(model.score(text)["tokens"], expected[:-1])


@pytest.mark.parametrize("text", ["w1 w2", "w1 w2\n\nw3", "w1\n", "\nw1", ""])
def test_decode_inverts_encode(model, text):
    tokens = model.encode(text)
    assert model.decode(tokens) == text
    assert model.decode(tokens[:-1]) == text.removesuffix("\n")  # an unfinished last line


@pytest.fixture
def load(checkpoint, data_bin):
    """Return a function that loads the checkpoint with options. All paths are objects."""

    def load(**options):
        name = Path(checkpoint.name)
        return AlibiLanguageModel.from_pretrained(checkpoint.parent, name, data_bin, **options)

    return load


def test_option_replaces_that_of_checkpoint(load):
    hub = load(alibi_scale="4", generation_args={"beam": 3})
    assert hub.cfg.model.alibi_scale == "4"
    assert hub.cfg.generation.beam == 3


def test_unknown_option_is_rejected(load):
    with pytest.raises(UserInputError, match="'alibi_scales'.*Did you mean 'alibi_scale'"):
        load(alibi_scales="4")


def test_tokenizer_file_without_tokenizer_is_rejected(load):
    with pytest.raises(UserInputError, match="'gpt2_vocab_bpe', .* nor its text encoder"):
        load(gpt2_vocab_bpe="vocab.bpe")


def test_tokenizer_options_belong_to_named_tokenizer(load, tmp_path):
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nw1\n")
    hub = load(bpe="bert", bpe_vocab_file=str(vocabulary), bpe_cased=True)
    assert hub.apply_bpe("w1") == "w1"


def test_text_is_tokenized_by_wordpiece_of_manifest(checkpoint, data_bin, tmp_path):
    data = shutil.copytree(data_bin, tmp_path / "data")
    pieces = "[PAD] [UNK] [CLS] [SEP] w1 w ##2"
    (data / "vocab.txt").write_text(pieces.replace(" ", "\n") + "\n")
    describe(data)
    manifest = json.loads((data / "manifest.json").read_text())
    manifest["tokenizer"] = {"kind": "wordpiece", "files": ["vocab.txt"], "lower_case": True}
    (data / "manifest.json").write_text(json.dumps(manifest))
    hub = AlibiLanguageModel.from_pretrained(
        str(checkpoint.parent), checkpoint.name, data_name_or_path=str(data)
    )
    assert hub.apply_bpe("W1 w2") == "w1 w ##2"
    assert hub.remove_bpe("w1 w ##2") == "w1 w2"


def test_sample_decodes_byte_pieces(tmp_path):
    """Pieces are decoded like in sentencepiece, and special symbols like in fairseq."""
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("a naive fox jumps\n" * 50, encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus),
        model_prefix=str(tmp_path / "sp"),
        vocab_size=290,
        model_type="bpe",
        byte_fallback=True,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    bpe = SentencepieceBPE(SentencepieceConfig(sentencepiece_model=str(tmp_path / "sp.model")))
    for text in ("naïve", "€ x€ fox", "a naive fox"):
        assert bpe.decode(bpe.encode(text)) == bpe.sp.decode(bpe.sp.encode(text)) == text
    assert bpe.decode("na <0xC3> <0xAF> ve") == "naïve"
    assert bpe.decode("▁a <unk> <0xC3>") == "a<unk>\N{REPLACEMENT CHARACTER}"
