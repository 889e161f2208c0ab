import hashlib
import subprocess

import pytest
import torch
from fairseq.data import Dictionary
from results_documents import PROVENANCE

from alibi_fairseq import __version__
from alibi_fairseq.errors import FOLDER, UserInputError
from alibi_fairseq.results import provenance
from alibi_fairseq.results.data_hashes import (
    data_sha256_if_present,
    dictionary_sha256,
    symbols_sha256,
)
from alibi_fairseq.results.provenance import Provenance, merge_provenance


def data_folder(path, words=("the", "a b", "ü"), valid=b"\x01\x02"):
    """Create a data folder whose dictionary is written by fairseq."""
    path.mkdir()
    dictionary = Dictionary()
    for word in words:
        dictionary.add_symbol(word)
    dictionary.save(str(path / "dict.txt"))
    (path / "valid.bin").write_bytes(valid)
    (path / "valid.idx").write_bytes(b"index")
    return path, dictionary


def test_provenance_is_valid_and_has_command(tmp_path):
    folder, _ = data_folder(tmp_path / "bin")
    collected = provenance.collect_provenance(
        seconds=1.5, precision="bf16", seed=3, data=folder, splits=["valid"], command=["a", "b c"]
    )
    Provenance(**collected)
    assert collected["command"] == "a 'b c'"
    assert (collected["seed"], collected["precision"], collected["seconds"]) == (3, "bf16", 1.5)
    assert collected["data_sha256"] == hashlib.sha256(b"index\x01\x02").hexdigest()
    second, _ = data_folder(tmp_path / "two", valid=b"\x03")
    both = provenance.data_sha256(f"{folder}:{second}", ["valid"])
    assert both == hashlib.sha256(b"index\x01\x02index\x03").hexdigest()
    with pytest.raises(UserInputError, match="'test'"):
        provenance.data_sha256(folder, ["test"])
    assert collected["versions"]["fairseq"].startswith("fairseq")
    assert collected["hardware"]["cores"] >= 1
    assert collected["threads"] >= 1


def test_version_is_that_of_the_code(monkeypatch):
    monkeypatch.setattr(provenance, "installed_version", lambda distribution: "0.0.1")
    versions = provenance.collect_provenance(seconds=1.0)["versions"]
    assert versions["alibi_fairseq"] == __version__


def test_hardware_distinguishes_processors(monkeypatch):
    """Family and model differ between processors of one name. Instructions may be disabled."""
    cpu = (
        "processor : 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n"
        "model name\t: AMD EPYC\n\nprocessor : 1\nmodel : 99\n"
    )
    monkeypatch.setattr(provenance.Path, "read_text", lambda path: cpu)
    hardware = provenance._hardware()
    assert hardware["cpu"] == "AMD EPYC"
    assert hardware["cpu_vendor"] == "AuthenticAMD"
    assert hardware["cpu_family"] == "25"
    assert hardware["cpu_model"] == "17"
    assert hardware["cpu_capability"] == torch.backends.cpu.get_cpu_capability()


def test_own_command_reads_as_typed(monkeypatch):
    for program in ("/somewhere/alibi_fairseq/__main__.py", "/usr/bin/alibi-fairseq"):
        monkeypatch.setattr("sys.argv", [program, "eval", "--lengths", "64"])
        collected = provenance.collect_provenance(seconds=0)
        assert collected["command"] == "alibi-fairseq eval --lengths 64"
    assert collected["data_sha256"] is None
    assert collected["dictionary_sha256"] is None
    # Arguments that `alibi-fairseq train DATA` passes to fairseq.
    added = ["--user-dir", str(FOLDER)]
    monkeypatch.setattr("sys.argv", ["alibi-fairseq train", "data-bin", *added])
    assert provenance.collect_provenance(seconds=0)["command"] == "alibi-fairseq train data-bin"


def test_dictionary_hash_is_of_symbols_in_order(tmp_path):
    folder, dictionary = data_folder(tmp_path / "one")
    expected = symbols_sha256(dictionary.symbols[dictionary.nspecial :])
    assert dictionary_sha256(folder) == expected
    assert dictionary_sha256(folder / "dict.txt") == expected
    lines = (folder / "dict.txt").read_text().splitlines()
    (folder / "dict.txt").write_text("\n".join(f"{line.rsplit(' ', 1)[0]} 77" for line in lines))
    assert dictionary_sha256(folder) == expected  # other counts, same numbering
    (folder / "dict.txt").write_text("".join(f"{line} #fairseq:overwrite\n" for line in lines))
    assert dictionary_sha256(folder) == expected
    reordered, _ = data_folder(tmp_path / "two", words=("a b", "the", "ü"))
    assert dictionary_sha256(reordered) != expected


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", "-C", folder, *identity, *arguments], check=True, capture_output=True)


def test_git_state_follows_the_checkout(tmp_path, monkeypatch):
    package = tmp_path / "package"
    package.mkdir()
    monkeypatch.setattr(provenance, "_PACKAGE_FOLDER", package)
    unknown = {"git_commit": None, "git_clean": None}
    assert provenance.git_state() == unknown  # no repository at all
    git(tmp_path, "init")
    (package / "__init__.py").write_text("")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "a.md").write_text("")
    git(tmp_path, "add", "results")
    git(tmp_path, "commit", "-m", "Not ours")
    assert provenance.git_state() == unknown  # a copy inside another repository
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "Ours")
    assert provenance.git_state()["git_clean"] is True
    (tmp_path / "results" / "a.md").write_text("new results")
    (tmp_path / "book.txt").write_text("a user's own file")
    assert provenance.git_state()["git_clean"] is True
    (package / "new.py").write_text("")
    assert provenance.git_state()["git_clean"] is False
    assert len(provenance.git_state()["git_commit"]) == 40


def test_merged_parts_are_added_once():
    first = Provenance(
        **PROVENANCE | {"seconds": 1.0, "command": "first", "date": "2026-01-01T00:00:00Z"}
    )
    second = Provenance(**PROVENANCE | {"seconds": 2.5, "threads": 1})
    merged = merge_provenance([first, second])
    assert merged.seconds == 3.5
    assert merged.command.split("\n") == ["first", PROVENANCE["command"]]
    assert merged.date == PROVENANCE["date"]
    assert merged.threads is None
    assert merged.seed == 1
    assert merged.parts == [first, second]
    # Two steps of a run can write to one file.
    third = Provenance(**PROVENANCE | {"seconds": 4.0, "seed": 2})
    again = merge_provenance([merged, merged, third])
    assert [part.seconds for part in again.parts] == [1.0, 2.5, 4.0]
    assert again.seconds == 7.5
    assert again.seed is None


def test_hash_of_splits_follows_their_files(tmp_path):
    folder, _ = data_folder(tmp_path / "bin")
    before = data_sha256_if_present(folder, ["valid"])
    (folder / "valid.bin").write_bytes(b"\x01\x02\x03")
    assert before == hashlib.sha256(b"index\x01\x02").hexdigest()
    after = data_sha256_if_present(folder, ["valid"])
    assert after == hashlib.sha256(b"index\x01\x02\x03").hexdigest()
    assert data_sha256_if_present(folder, ["valid", "test"]) is None
