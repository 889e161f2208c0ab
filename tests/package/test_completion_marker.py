"""Tests of completion markers, and of settings of unfinished work."""

from __future__ import annotations

import os

import pytest

from alibi_fairseq.completion_marker import (
    CompletionMarker,
    check_settings,
    read_json_if_present,
    write_settings,
)
from alibi_fairseq.errors import UserInputError


def test_marker_has_result_for_same_settings(tmp_path):
    path = tmp_path / "marker.json"
    assert CompletionMarker(path).result is None
    CompletionMarker(path, {"size": (1, 2)}).write({"value": 1})
    same = CompletionMarker(path, {"size": (1, 2)})
    assert same.holds()
    assert same.result == {"value": 1}
    assert not CompletionMarker(path, {"size": (1, 3)}).holds()


@pytest.mark.parametrize("changed", ["source", "output"])
def test_marker_holds_until_file_changes(tmp_path, changed):
    files = {name: tmp_path / name for name in ("source", "output")}
    for path in files.values():
        path.write_text("one")
    marker = CompletionMarker(tmp_path / "marker.json", {}, [files["source"]], [files["output"]])
    assert not marker.holds()
    marker.write()
    os.utime(files[changed], (1, 1))  # only looks newer
    assert marker.holds()
    files[changed].write_text("two")
    assert not marker.holds()
    files[changed].unlink()
    assert not marker.holds()


def test_marker_holds_in_moved_folder(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "model").write_text("weights")
    CompletionMarker(tmp_path / "old" / "marker.json", outputs=[tmp_path / "old" / "model"]).write()
    (tmp_path / "old").rename(tmp_path / "new")
    assert CompletionMarker(
        tmp_path / "new" / "marker.json", outputs=[tmp_path / "new" / "model"]
    ).holds()


def test_check_settings_rejects_other_settings(tmp_path):
    path = tmp_path / "settings.json"
    settings = {"seed": 1, "model": {"layers": 2}, "betas": (0.9, 0.98)}
    check_settings(read_json_if_present(path), settings, "It was begun", "stop")  # no settings yet
    write_settings(path, settings)
    check_settings(read_json_if_present(path), settings, "It was begun", "stop")
    for changes, difference in (
        ({"seed": 2}, r"It was begun with different settings \(seed: 1 there, 2 now\)\. stop$"),
        ({"model": {"layers": 3}}, r"\(model layers differs\)"),
        ({"model": None}, r"\(model differs\)"),
    ):
        with pytest.raises(UserInputError, match=difference):
            check_settings(read_json_if_present(path), settings | changes, "It was begun", "stop")
