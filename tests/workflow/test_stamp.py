"""Stamps, claims and locks."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from alibi_fairseq.errors import BadInput
from alibi_fairseq.workflow import Claim, Stamp, locked, once


def test_a_function_runs_once_for_the_same_settings(tmp_path):
    calls = []

    def work():
        calls.append(1)
        return {"value": len(calls)}

    path = tmp_path / "stamp.json"
    assert once(Stamp(path, {"size": (1, 2)}), work) == {"value": 1}
    assert once(Stamp(path, {"size": (1, 2)}), work) == {"value": 1}
    assert once(Stamp(path, {"size": (1, 3)}), work) == {"value": 2}


def test_a_function_that_fails_is_not_done(tmp_path):
    stamp = Stamp(tmp_path / "stamp.json")
    with pytest.raises(ZeroDivisionError):
        once(stamp, lambda: {"value": 1 // 0})
    assert not stamp.path.exists() and stamp.result is None


@pytest.mark.parametrize("changed", ["source", "output"])
def test_a_stamp_holds_until_a_file_changes(tmp_path, changed):
    files = {name: tmp_path / name for name in ("source", "output")}
    for path in files.values():
        path.write_text("one")
    stamp = Stamp(tmp_path / "stamp.json", {}, [files["source"]], [files["output"]])
    assert not stamp.holds()
    stamp.write()
    os.utime(files[changed], (1, 1))  # only looks newer
    assert stamp.holds()
    files[changed].write_text("two")
    assert not stamp.holds()
    files[changed].unlink()
    assert not stamp.holds()


def test_a_folder_may_be_moved_with_its_stamp(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "model").write_text("weights")
    Stamp(tmp_path / "old" / "stamp.json", outputs=[tmp_path / "old" / "model"]).write()
    (tmp_path / "old").rename(tmp_path / "new")
    assert Stamp(tmp_path / "new" / "stamp.json", outputs=[tmp_path / "new" / "model"]).holds()


def test_a_claim_refuses_other_settings(tmp_path):
    Claim(tmp_path / "claim.json", {"seed": 1, "model": {"layers": 2}}).write()
    Claim(tmp_path / "claim.json", {"seed": 1, "model": {"layers": 2}}).check(
        "It was begun", "stop"
    )
    for settings, difference in (
        ({"seed": 2, "model": {"layers": 2}}, r"It was begun .*\(seed: 1 there, 2 now\); stop\."),
        ({"seed": 1, "model": {"layers": 3}}, r"\(model differs\)"),
        ({"seed": 1}, r"\(model differs\)"),
    ):
        with pytest.raises(BadInput, match=difference):
            Claim(tmp_path / "claim.json", settings).check("It was begun", "stop")


def test_a_lock_keeps_other_processes_out_until_it_is_released(tmp_path):
    program = (
        "import sys; from alibi_fairseq.workflow import locked\nwith locked(sys.argv[1]): pass"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "new")]
    with locked(tmp_path / "new"):
        done = subprocess.run(command, capture_output=True, text=True)
        assert "BadInput: Another process is working in" in done.stderr
    with locked(tmp_path / "new"):
        pass


def test_a_folder_that_cannot_be_created_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(BadInput, match=r"--out .*file: cannot create it"),
        locked(tmp_path / "file", "--out"),
    ):
        pass
