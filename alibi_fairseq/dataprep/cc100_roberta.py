"""CC100+RoBERTa, or any other amount of text: shuffled, sharded, tokenised straight to binary data.

``alibi-fairseq prepare cc100-roberta``; see data-prep/cc100-roberta/README.md.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from alibi_fairseq.dataprep import shards as sharding
from alibi_fairseq.dataprep.documents import portions
from alibi_fairseq.dataprep.shuffle import KEYS, SortedRun, documents_between, write_runs
from alibi_fairseq.dataprep.sources import describe_sources, estimated_text_bytes, text_files
from alibi_fairseq.dataprep.tokenisers import (
    ByteLevelBpe,
    SentencePiece,
    Tokeniser,
    train_byte_level_bpe,
    train_sentencepiece,
)
from alibi_fairseq.dataprep.workspace import Workspace
from alibi_fairseq.errors import BadInput
from alibi_fairseq.files import check_disk, sha256_file
from alibi_fairseq.results import manifest as manifests

CORPUS = "cc100-roberta"
PAPER_BYTES = 461e9
SHARD = 4e9  # bytes of text in a shard

# Memory in GB (10^9 bytes): of this process with its libraries, and of each worker with its run or
# its part of a shard.
_OWN_MEMORY, _WORKER_MEMORY = 0.8, 0.35
_SAMPLE_PER_GB = 50_000_000  # bytes of text a tokeniser is trained on, per GB of memory
_BYTES_PER_TOKEN = 8  # more than any tokeniser here reaches; bounds the text set aside


def prepare(
    sources: list[str | os.PathLike],
    out: str | os.PathLike,
    *,
    seed: int = 1,
    tokenizer: str = "sentencepiece",
    vocabulary: int = 50_000,
    encoder_json: str | os.PathLike | None = None,
    vocab_bpe: str | os.PathLike | None = None,
    valid_tokens: int = 649_000,
    shards: int | None = None,
    memory: float = 4.0,
    workers: int = 1,
) -> tuple[dict, bool]:
    """Make ``OUT/data-bin/shard00``, ``shard01``, …

    Args:
        sources: files, folders and archives; documents are separated by empty lines.
        tokenizer: ``sentencepiece`` or ``byte-level-bpe``, trained on a sample of the text.
        vocabulary: dictionary entries of a trained tokeniser.
        encoder_json, vocab_bpe: GPT-2's files, instead of training.
        valid_tokens: the validation set ends with the line that reaches this many.
        shards: number of folders; one per 4 GB of text when it is None.
        memory: GB (10^9 bytes) for all processes together.

    Returns:
        The manifest, and whether there was anything to do.

    Raises:
        BadInput: what is wrong, in one sentence.
    """
    started = time.time()
    files = [file for source in sources for file in text_files(source)]
    if (encoder_json is None) != (vocab_bpe is None):
        raise BadInput("--encoder-json and --vocab-bpe belong together; give both or neither.")
    published = None
    if encoder_json is not None and vocab_bpe is not None:
        ByteLevelBpe(encoder_json, vocab_bpe)  # bad input shows before hours of work
        tokenizer, published = "byte-level-bpe", sha256_file(vocab_bpe)
    if memory < _OWN_MEMORY + _WORKER_MEMORY:
        raise BadInput(
            f"--memory {memory} is too little: one process needs "
            f"{_OWN_MEMORY + _WORKER_MEMORY:.2f} GB."
        )
    settings = {
        "sources": describe_sources(files),
        "seed": seed,
        "tokenizer": tokenizer,
        "vocabulary": published or vocabulary,
        "valid_tokens": valid_tokens,
        "shards": shards,
        "sample_bytes": round(memory * _SAMPLE_PER_GB) if encoder_json is None else None,
    }
    workspace = Workspace(out, settings)
    if manifest := workspace.finished():
        return manifest, False
    size = sum(map(estimated_text_bytes, files))
    check_disk(out, disk_needed(files), "The preparation")
    workers = min(workers, most_workers(memory))
    with workspace:
        runs, read = write_runs(portions(files), seed, workspace.work / "runs", workers, size)
        set_aside = int(KEYS * min(1.0, valid_tokens * _BYTES_PER_TOKEN / max(1, read["bytes"])))
        if set_aside > KEYS // 2:
            raise BadInput(
                f"The text has {read['bytes']:,} bytes; a validation set of {valid_tokens:,} "
                "tokens would take more than half of it; give more text or fewer --valid-tokens."
            )
        load, arguments = _tokeniser(
            workspace, runs, read["bytes"], settings, encoder_json, vocab_bpe, set_aside
        )
        tokeniser = load(*arguments)
        valid = workspace.step(
            "valid",
            lambda: sharding.write_validation(
                workspace.work / "valid", runs, tokeniser, valid_tokens, set_aside
            ),
        )
        parts = sharding.plan(valid.pop("next_key"), read["bytes"], shards, SHARD)
        folder = workspace.work / "parts"
        written = sharding.write_parts(parts, folder, runs, load, arguments, workers)
        names = sharding.join_parts(
            parts, folder, workspace.unfinished_data_bin, len(tokeniser.names) + 4, workers
        )
        dictionary = workspace.work / "dict.txt"
        tokeniser.write_dictionary(dictionary)
        for name in names:
            workspace.add(dictionary, name)
        sharding.move_validation(workspace.work / "valid", workspace.unfinished_data_bin / names[0])
        for file in tokeniser.files:
            workspace.add(file)
        of_that_size = is_of_that_size(read["bytes"])
        train = {k: sum(part[k] for part in written) for k in sharding.COUNTS}
        manifest = manifests.describe(
            workspace.unfinished_data_bin,
            corpus=CORPUS if of_that_size else manifests.other_name(sources[0]),
            identified_by="size alone" if of_that_size else None,
            splits={"train": train, "valid": valid},
            tokenizer=tokeniser.describe(),
            sources=[{"name": file.name, "bytes": file.stat().st_size} for file in files],
            settings=settings,
            seconds=time.time() - started,
            seed=seed,
            shards=names,
            replaced_documents=read["replaced"],
            throughput={
                "workers": workers,
                "text_mb": round(read["bytes"] / 1e6, 3),
                "reading_mb_per_core_second": _rate(read["bytes"], read["seconds"]),
                "tokenising_mb_per_core_second": _rate(
                    train["bytes"], sum(part["seconds"] for part in written)
                ),
            },
        )
        workspace.publish(manifest)
    return manifest, True


def most_workers(memory: float) -> int:
    """Processes that fit into ``memory`` GB (10^9 bytes), one at least."""
    return max(1, int((memory - _OWN_MEMORY) / _WORKER_MEMORY))


def is_of_that_size(text_bytes: float) -> bool:
    """Whether it may be the paper's text, which is not published; nothing but its size tells."""
    return text_bytes >= 0.9 * PAPER_BYTES


def disk_needed(files: list[Path] | None) -> float:
    """Bytes that the preparation takes at its fullest moment, about; None: of the paper's text."""
    text = PAPER_BYTES if files is None else sum(map(estimated_text_bytes, files))
    # The runs hold the text once; two bytes per token are about half of it.
    return 1.6 * text


def _rate(count: int, seconds: float) -> float:
    return round(count / 1e6 / max(seconds, 1e-3), 3)


def _tokeniser(
    workspace: Workspace,
    runs: list[SortedRun],
    total: int,
    settings: dict,
    encoder_json: str | os.PathLike | None,
    vocab_bpe: str | os.PathLike | None,
    set_aside: int,
) -> tuple[type[Tokeniser], tuple]:
    if encoder_json is not None:
        return ByteLevelBpe, (str(encoder_json), str(vocab_bpe))
    # Documents with the highest keys: a random sample, and none that validation may take.
    share = min(1.0, settings["sample_bytes"] / total)
    lines = _lines(runs, max(set_aside, KEYS - int(KEYS * share)))
    if settings["tokenizer"] == "sentencepiece":
        model = workspace.work / "sentencepiece.model"
        if not model.exists():
            print("training sentencepiece …", flush=True)
            train_sentencepiece(lines, model, settings["vocabulary"])
        return SentencePiece, (str(model),)
    files = workspace.work / "encoder.json", workspace.work / "vocab.bpe"
    if not all(file.exists() for file in files):
        print("training a byte-level BPE …", flush=True)
        train_byte_level_bpe(lines, workspace.work, settings["vocabulary"])
    return ByteLevelBpe, tuple(map(str, files))


def _lines(runs: list[SortedRun], low: int, steps: int = 16) -> Iterator[str]:
    edges = [low + (KEYS - low) * step // steps for step in range(steps + 1)]
    for first, last in zip(edges, edges[1:]):
        for _, text in documents_between(runs, first, last):
            yield from text.decode().split("\n")[:-1]
