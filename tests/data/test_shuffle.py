import random

import numpy as np
import pytest

from alibi_fairseq.data import documents, shuffle
from alibi_fairseq.data.documents import portions
from alibi_fairseq.data.shuffle import KEYS, documents_between, write_runs


@pytest.fixture
def files(tmp_path):
    paths = []
    for file in range(3):
        paths.append(tmp_path / f"{file}.txt")
        paths[-1].write_text(
            "".join(f"file {file} document {n}\n" + "more\n" * (n % 4) + "\n" for n in range(400))
        )
    return paths


def shuffled(files, folder, seed=1, workers=1):
    runs, sums = write_runs(portions(files), seed, folder, workers, 1)
    return documents_between(runs, 0, KEYS), runs, sums


def test_every_document_is_there_once(files, tmp_path):
    found, _, sums = shuffled(files, tmp_path / "runs")
    texts = [text.decode() for _, text in found]
    assert sorted(texts) == sorted(
        f"file {file} document {n}\n" + "more\n" * (n % 4) for file in range(3) for n in range(400)
    )
    assert sums["documents"] == 1200
    assert sums["bytes"] == sum(map(len, texts))


def test_order_depends_on_the_seed_alone(files, tmp_path, monkeypatch):
    first, runs, _ = shuffled(files, tmp_path / "a")
    assert len(runs) == 3
    monkeypatch.setattr(documents, "PORTION", 3000)
    monkeypatch.setattr(shuffle, "RUN", 1000)
    again, runs, _ = shuffled(files, tmp_path / "b")
    assert len(runs) > 20
    assert again == first
    assert shuffled(files, tmp_path / "c", seed=2)[0] != first


def test_order_is_a_uniform_shuffle(files, tmp_path):
    found, _, _ = shuffled(files, tmp_path / "runs")
    place = {text: position for position, (_, text) in enumerate(found)}
    order = [place[text] for text in sorted(place)]
    # Neighbours in the input are as far apart as in a random permutation (a third of the length).
    assert np.abs(np.diff(order)).mean() == pytest.approx(400, rel=0.1)
    keys = np.array([key for key, _ in found], dtype=np.float64) / KEYS
    assert (
        np.abs(keys - (np.arange(1200) + 0.5) / 1200).max() < 0.06
    )  # Kolmogorov-Smirnov, p < 1e-3


def test_intervals_of_keys_partition_the_documents(files, tmp_path):
    found, runs, _ = shuffled(files, tmp_path / "runs")
    cuts = sorted(random.Random(0).choices([key for key, _ in found], k=9))
    edges = [0, *cuts, KEYS]
    joined = [pair for a, b in zip(edges, edges[1:]) for pair in documents_between(runs, a, b)]
    assert joined == found


def test_an_interrupted_portion_resumes_where_it_stopped(files, tmp_path, monkeypatch):
    monkeypatch.setattr(shuffle, "RUN", 1000)
    whole, _, sums = shuffled(files, tmp_path / "whole")
    shuffled(files, tmp_path / "runs")
    records = sorted((tmp_path / "runs").glob("00001-*.run.json"))
    assert len(records) > 3
    for record in records[2:]:  # as if it had been killed after two runs of the second file
        record.unlink()
    kept = [path.stat().st_mtime_ns for path in records[:2]]
    again, _, again_sums = shuffled(files, tmp_path / "runs")
    assert again == whole
    assert again_sums["documents"] == sums["documents"] == 1200
    assert [path.stat().st_mtime_ns for path in records[:2]] == kept
