"""The parts of the demonstration; ``.ci/run`` runs the whole."""

from __future__ import annotations

import subprocess
import sys

import pytest

from alibi_fairseq.demo import __main__ as demo
from alibi_fairseq.demo.corpus import split_text
from alibi_fairseq.demo.settings import task_flags
from alibi_fairseq.demo.steps import fairseq_command
from alibi_fairseq.errors import BadInput


def test_embedded_text_is_the_same_every_time_and_its_parts_share_no_stretch():
    splits = split_text(None)
    assert splits == split_text(None)
    sizes = {name: sum(map(len, lines)) for name, lines in splits.items()}
    assert sizes["train"] > 1_000_000
    assert 20_000 < sizes["valid"] < sizes["train"] / 10
    assert all(line and line == " ".join(line.split()) for line in splits["train"])


def test_own_text_is_read_from_a_folder_in_order(tmp_path):
    for number, name in enumerate(["b.txt", "a.md", "picture.png"]):
        lines = [f"file {number} line {line} of some text" for line in range(3000)]
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    splits = split_text(tmp_path)
    lines = [*splits["train"], *splits["valid"], *splits["test"]]
    assert lines[0].startswith("file 1") and lines[-1].startswith("file 0")
    assert len(lines) == 6000  # the picture is no text


@pytest.mark.parametrize("case", ["missing", "empty folder", "too short", "not text"])
def test_text_that_cannot_be_used_is_said_to_be(tmp_path, case):
    source = tmp_path / "text.txt"
    if case == "empty folder":
        source = tmp_path
    elif case == "too short":
        source.write_text("A line.\n")
    elif case == "not text":
        source.write_bytes(b"\xff\xfe" * 100_000)
    with pytest.raises(BadInput, match=str(source)):
        split_text(source)


def test_every_method_gets_one_task():
    for method in demo.PAPER_METHODS:
        for stage in ("train", "evaluate"):
            assert task_flags(method, stage).count("--task") == 1


def test_user_dir_is_set_for_every_tool_but_preprocess():
    assert "--user-dir" in fairseq_command("train", "data")
    assert "--user-dir" not in fairseq_command("preprocess")


def test_methods_by_name():
    assert demo.chosen_methods("alibi, sinusoidal,alibi") == ["alibi", "sinusoidal"]
    for names in ("alibi,sinusodial", "", ","):
        with pytest.raises(BadInput, match="--methods"):
            demo.chosen_methods(names)


def test_only_the_whole_demonstration_writes_to_the_committed_results():
    assert str(demo.parse([]).results) == "results/demo"
    assert str(demo.parse(["--methods", "all"]).results) == "results/demo-all"
    for flags in (["--quick"], ["--text", "book.txt"], ["--methods", "alibi"]):
        options = demo.parse(flags)
        assert options.results == options.work_dir / "results"


def test_bad_input_is_one_line_and_exit_code_2(tmp_path):
    command = [sys.executable, "-m", "alibi_fairseq.demo", "--text", str(tmp_path / "none.txt")]
    command += ["--work-dir", str(tmp_path / "work")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("demo.sh: error: ")
    assert not (tmp_path / "work").exists()
