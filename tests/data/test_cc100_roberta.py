import json
import lzma
import random
from collections import Counter

import pytest
from fairseq.data import Dictionary, data_utils
from preparations import documents_file, sentences, train_byte_level_bpe
from process_control import files_of

from alibi_fairseq.data import binarization, cc100_roberta, shuffling
from alibi_fairseq.data.cc100_roberta import Cc100Roberta
from alibi_fairseq.data.pipeline import prepare_corpus
from alibi_fairseq.data.tokenization import SentencePiece
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.evaluation.split import load_dictionary, load_split
from alibi_fairseq.results.data_folder import DataFolder

SETTINGS = dict(vocab_size=350, valid_tokens=300, shards=3)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return documents_file(tmp_path_factory.mktemp("source") / "text.txt")


@pytest.fixture(scope="module")
def prepared(source, tmp_path_factory):
    out = tmp_path_factory.mktemp("prepared") / "out"
    manifest, done = prepare_corpus(Cc100Roberta([source], **SETTINGS), out, workers=2)
    assert done
    return out, manifest


def documents_of(path):
    return [text.strip("\n") for text in path.read_text(encoding="utf-8").strip().split("\n\n")]


def stored(folder, split, model):
    """Return the documents of a split as text, and the number of tokens of each."""
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    items = data_utils.load_indexed_dataset(str(folder / split), dictionary)
    documents = []
    for item in items:
        words = [dictionary[i] for i in item.tolist()]
        assert words[-2:] == ["</s>", "</s>"]
        lines = " ".join(words[:-2]).split(" </s> ")
        documents.append("\n".join(model._model.decode(line.split()) for line in lines))
    return documents, items.sizes


def test_cc100_holds_each_document_once(prepared, source):
    out, manifest = prepared
    data_bin = out / "data-bin"
    model = SentencePiece(data_bin / "sentencepiece.model")
    train = []
    sizes = []
    for name in ("shard00", "shard01", "shard02"):
        texts, lengths = stored(data_bin / name, "train", model)
        assert len(texts) > 60
        train += texts
        sizes += lengths.tolist()
        assert (data_bin / name / "valid.bin").exists() == (name == "shard00")
    valid, valid_sizes = stored(data_bin / "shard00", "valid", model)
    everything = documents_of(source)
    whole = valid[:-1]
    last = valid[-1]
    beginnings = [text for text in everything if text.startswith(last)]
    assert beginnings  # the last validation document ends with the line that reached 300 tokens
    assert sorted(train + whole + beginnings[:1]) == sorted(everything)
    assert train + whole != everything
    assert 300 <= valid_sizes.sum() < 300 + 40
    for split, texts, total in (("train", train, sum(sizes)), ("valid", valid, valid_sizes.sum())):
        text = "".join(document + "\n\n" for document in texts)
        assert manifest["splits"][split] == {
            "documents": len(texts),
            "lines": text.count("\n"),
            "words": len(text.split()),
            "bytes": len(text.encode()),
            "tokens": total,
            "unknown": 0,
        }


def test_each_shard_has_the_words_and_bytes_of_its_own_text(prepared):
    out, manifest = prepared
    model = SentencePiece(out / "data-bin" / "sentencepiece.model")
    for name in manifest["shards"]:
        shard = out / "data-bin" / name
        documents, _ = stored(shard, "train", model)
        text = "".join(document + "\n\n" for document in documents)
        split = load_split(DataFolder.open(shard), "train", load_dictionary(shard))
        words = len(text.split()) + text.count("\n")
        assert split.text_size == (words, len(text.encode()))


def test_fairseq_reads_one_shard_per_epoch(prepared):
    from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask

    out, manifest = prepared
    data = ":".join(str(out / "data-bin" / name) for name in manifest["shards"])
    config = LanguageModelingConfig(
        data=data,
        tokens_per_sample=64,
        dataset_impl=None,
        seed=1,
        batch_size=None,
        shorten_method="none",
        shorten_data_split_list="",
        use_plasma_view=False,
        plasma_path="",
    )
    task = LanguageModelingTask.setup_task(config)
    tokens = []
    for epoch in (1, 2, 3, 4):
        task.load_dataset("train", epoch=epoch)
        tokens.append(sum(task.dataset("train").sizes))
    assert sum(tokens[:3]) == manifest["splits"]["train"]["tokens"]
    assert tokens[3] == tokens[0] != tokens[1]
    task.load_dataset("valid", epoch=1)
    assert sum(task.dataset("valid").sizes) == manifest["splits"]["valid"]["tokens"]


@pytest.mark.ci
def test_packing_chunks_and_workers_keep_the_bytes(prepared, source, tmp_path, monkeypatch):
    packed = tmp_path / "text.txt.xz"
    packed.write_bytes(lzma.compress(source.read_bytes()))
    monkeypatch.setattr(shuffling, "CHUNK_BYTES", 3000)
    monkeypatch.setattr(binarization, "_PART_BYTES", (1000, 1000))
    for name, path in (("packed", packed), ("plain", source)):
        prepare_corpus(Cc100Roberta([path], **SETTINGS), tmp_path / name)
        assert files_of(tmp_path / name) == files_of(prepared[0])


def test_cc100_uses_gpt2_files(source, tmp_path):
    encoder, merges = train_byte_level_bpe(sentences(7, 500), tmp_path / "bpe", 300).files
    corpus = Cc100Roberta([source], encoder_json=encoder, vocab_bpe=merges, **SETTINGS)
    manifest, _ = prepare_corpus(corpus, tmp_path / "out")
    assert manifest["tokenizer"]["kind"] == "byte-level-bpe"
    assert manifest["dictionary"]["entries"] == 300
    assert (tmp_path / "out" / "data-bin" / "vocab.bpe").exists()
    assert manifest["splits"]["train"]["unknown"] == 0
    # Another numbering of the same entries.
    numbers = json.loads(encoder.read_text())
    numbers["a"], numbers["b"] = numbers["b"], numbers["a"]
    encoder.write_text(json.dumps(numbers))
    with pytest.raises(UserInputError, match="encoder_json"):
        prepare_corpus(corpus, tmp_path / "out")


def test_excerpt_has_a_smaller_validation_set(source, tmp_path, monkeypatch):
    """The default of the whole text would be more than half of the excerpt."""
    monkeypatch.setattr(cc100_roberta, "_MIN_EXCERPT_BYTES", 0)
    excerpt = {"vocab_size": 350, "excerpt": 3000}
    manifest, _ = prepare_corpus(Cc100Roberta([source], **excerpt), tmp_path / "out")
    assert 300 <= manifest["splits"]["valid"]["tokens"] < 300 + 40
    assert manifest["splits"]["train"]["tokens"] > 2000
    with pytest.raises(UserInputError, match="validation set of 2,000 tokens would take"):
        prepare_corpus(Cc100Roberta([source], valid_tokens=2000, **excerpt), tmp_path / "more")


def test_validation_set_of_an_excerpt_is_found_in_its_own_part(source, tmp_path, monkeypatch):
    """Half of an excerpt does not fit into memory if the excerpt is large."""
    monkeypatch.setattr(cc100_roberta, "_MIN_EXCERPT_BYTES", 0)
    documents_between = cc100_roberta.documents_between
    sizes = []

    def recorded(chunks, low, high):
        documents = documents_between(chunks, low, high)
        if low == 0:
            sizes.append(sum(len(text) for _, text in documents))
        return documents

    monkeypatch.setattr(cc100_roberta, "documents_between", recorded)
    corpus = Cc100Roberta([source], vocab_size=350, excerpt=9000)
    manifest, _ = prepare_corpus(corpus, tmp_path / "out")
    splits = manifest["splits"]
    assert 0 < max(sizes) < 1.5 * cc100_roberta.BYTES_PER_TOKEN * 900
    half = cc100_roberta._MAX_VALIDATION_LIMIT
    monkeypatch.setattr(Cc100Roberta, "_validation_limit", lambda self, size: half)
    prepare_corpus(corpus, tmp_path / "half")
    assert max(sizes) > 0.4 * (splits["train"]["bytes"] + splits["valid"]["bytes"])
    assert files_of(tmp_path / "half") == files_of(tmp_path / "out")


def test_shard_ranges_cover_all_keys():
    for total, count in ((10**6, None), (10**9, 7), (461 * 10**9, None)):
        parts = cc100_roberta.shard_ranges(12345, total, count)
        assert parts[0][1] == 12345
        assert parts[-1][2] == shuffling.KEYS
        assert [low for _, low, _ in parts[1:]] == [high for _, _, high in parts[:-1]]
        per_shard = Counter(shard for shard, _, _ in parts)
        assert len(set(per_shard.values())) == 1
        assert len(per_shard) == (count or max(1, round(total / 4e9)))
        assert total / len(parts) <= 128_000_000


def test_validation_range_grows_for_scripts_of_three_bytes(tmp_path, monkeypatch):
    lines_from = cc100_roberta._lines_from
    samples = []

    def recorded(*arguments):
        samples.append(list(lines_from(*arguments)))
        return samples[-1]

    monkeypatch.setattr(cc100_roberta, "_lines_from", recorded)
    georgian = {ord("a") + number: chr(0x10D0 + number) for number in range(26)}
    words = [
        f"{first}{second}".translate(georgian) * 4 for first in "abcdef" for second in "ghijkl"
    ]
    rng = random.Random(1)
    documents = ["\n".join(rng.choices(words, k=40)) for _ in range(100)]
    source = tmp_path / "text.txt"
    source.write_text("\n\n".join(documents), encoding="utf-8")
    corpus = Cc100Roberta([source], vocab_size=500, valid_tokens=2000)
    manifest, _ = prepare_corpus(corpus, tmp_path / "out")
    assert 2000 <= manifest["splits"]["valid"]["tokens"] < 2010
    assert manifest["splits"]["valid"]["bytes"] > 8 * 2000
    # The second tokenizer was trained without the validation documents.
    assert len(samples) == 2
    train = manifest["splits"]["train"]
    assert len(samples[0]) > train["lines"] - train["documents"] >= len(samples[1])
