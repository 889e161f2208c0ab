import pytest

from alibi_fairseq.data.pipeline import Workspace
from alibi_fairseq.errors import BadInput
from alibi_fairseq.results import manifest as manifests


def finish(workspace):
    folder = workspace.unfinished_data_bin
    folder.mkdir()
    (folder / "dict.txt").write_text("a 1\n")
    workspace.publish(
        manifests.describe(
            folder,
            corpus="books",
            identified_by=None,
            splits={"train": dict.fromkeys(manifests.COUNTS, 1)},
            tokenizer={"kind": "words"},
            sources=[],
            settings=workspace.settings,
            seconds=0.0,
        )
    )


def test_steps_are_done_once(tmp_path):
    calls = []
    for _ in range(2):
        with Workspace(tmp_path / "out", {"seed": 1}) as workspace:
            result = workspace.step("one", lambda: calls.append(1) or {"n": len(calls)})
        assert result == {"n": 1}


def test_finished_data_is_recognised_and_other_settings_are_refused(tmp_path):
    workspace = Workspace(tmp_path, {"seed": 1, "shards": None})
    assert workspace.finished() is None
    with workspace:
        finish(workspace)
    assert [p.name for p in tmp_path.iterdir()] == ["data-bin"]
    assert workspace.finished()["corpus"] == "books"
    with pytest.raises(BadInput, match="seed: 1 there, 2 now"):
        Workspace(tmp_path, {"seed": 2, "shards": None}).finished()


def test_unfinished_data_of_other_settings_is_refused(tmp_path):
    with Workspace(tmp_path, {"seed": 1}) as workspace:
        workspace.step("one", dict)
    with pytest.raises(BadInput, match="unfinished preparation with other settings"):  # noqa: SIM117
        with Workspace(tmp_path, {"seed": 2}):
            pass
    with Workspace(tmp_path, {"seed": 1}):  # and the refusal did not keep the lock
        pass


def test_two_processes_do_not_work_in_one_folder(tmp_path):
    with Workspace(tmp_path, {}), pytest.raises(BadInput, match="another preparation"):
        Workspace(tmp_path, {}).__enter__()


def test_bad_input_at_the_beginning_leaves_nothing(tmp_path):
    for out in (tmp_path / "new" / "out", tmp_path):
        with pytest.raises(BadInput), Workspace(out, {}):
            raise BadInput("wrong archive")
        assert not (out / "work").exists()
    assert not (tmp_path / "new" / "out").exists()


def test_data_of_somebody_else_is_not_touched(tmp_path):
    (tmp_path / "data-bin").mkdir()
    (tmp_path / "data-bin" / "train.bin").write_bytes(b"precious")
    with pytest.raises(BadInput, match=r"has no manifest\.json"):
        Workspace(tmp_path, {}).finished()
    assert (tmp_path / "data-bin" / "train.bin").read_bytes() == b"precious"
