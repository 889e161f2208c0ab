import fcntl
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from commands import ROOT

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.files import atomic_folder, atomic_write, locked, read_yaml


def test_write_leaves_one_complete_file(tmp_path):
    target = tmp_path / "new folder" / "a.txt"
    with atomic_write(target) as stream:
        stream.write("ä\n")
        assert not target.exists()
    assert target.read_bytes() == "ä\n".encode()
    assert list(target.parent.iterdir()) == [target]


def test_failed_write_keeps_old_file(tmp_path):
    target = tmp_path / "a.bin"
    target.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), atomic_write(target, "wb") as stream:
        stream.write(b"half")
        raise KeyboardInterrupt
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_write_keeps_umask_and_symbolic_link(tmp_path):
    plain = tmp_path / "plain"
    link = tmp_path / "link"
    plain.write_text("old")
    mode = os.stat(plain).st_mode
    link.symlink_to(plain)
    with atomic_write(link) as stream:
        stream.write("new")
    assert link.is_symlink()
    assert plain.read_text() == "new"
    assert os.stat(plain).st_mode == mode


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_only_regular_file_is_replaced(tmp_path, make):
    make(tmp_path / "there")
    with pytest.raises(UserInputError, match="there"), atomic_write(tmp_path / "there") as stream:
        stream.write("new")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert not (tmp_path / "there").is_file()


_HAMMER = """
import os, sys, time
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.files import locked
folder, end = sys.argv[1], time.monotonic() + float(sys.argv[2])
held = overlapped = 0
while time.monotonic() < end:
    try:
        with locked(f"{folder}/lock", "--out", "test"):
            held += 1
            try:
                open(f"{folder}/inside", "x").close()
            except FileExistsError:
                overlapped += 1
                continue
            os.unlink(f"{folder}/inside")
    except UserInputError:
        pass
print(held, overlapped)
"""


@pytest.mark.ci
def test_lock_has_one_holder(tmp_path):
    command = [sys.executable, "-c", _HAMMER, tmp_path, "2"]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(4)
    ]
    counts = [tuple(map(int, process.communicate()[0].split())) for process in processes]
    assert sum(held for held, _ in counts) > 100
    assert not sum(overlapped for _, overlapped in counts)
    assert not list(tmp_path.iterdir())


_KILLED = """
import os, signal, sys
from alibi_fairseq.files import atomic_folder, atomic_write, locked
folder = sys.argv[1]
with locked(f"{folder}/.r.json.lock", "--out", "test"):
    with atomic_write(f"{folder}/figure.png") as file, atomic_folder(f"{folder}/model") as model:
        (model / "weights").write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_leftovers_of_killed_writer_are_removed(tmp_path):
    subprocess.run([sys.executable, "-c", _KILLED, tmp_path], cwd=ROOT, check=False)
    assert len(list(tmp_path.iterdir())) == 3
    with locked(tmp_path / ".r.json.lock", "--out", "test"):
        with atomic_write(tmp_path / "figure.png") as file:
            file.write("whole")
            with atomic_write(tmp_path / "figure.png"):
                pass  # a second writer leaves the file of the first alone
        with atomic_folder(tmp_path / "model"):
            pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figure.png", "model"]
    assert (tmp_path / "figure.png").read_text() == "whole"


@pytest.mark.parametrize(("module", "function"), [(fcntl, "flock"), (os, "replace")])
def test_second_writer_leaves_the_file_of_the_first(tmp_path, monkeypatch, module, function):
    """It writes before the first one has locked its file, and before it renames it."""
    target = tmp_path / "a.txt"
    interrupt(monkeypatch, module, function, lambda: write_text(target, "second"))
    write_text(target, "first")
    assert target.read_text() == "first"
    assert list(tmp_path.iterdir()) == [target]


def test_second_writer_leaves_the_folder_of_the_first(tmp_path, monkeypatch):
    target = tmp_path / "model"
    interrupt(monkeypatch, fcntl, "flock", lambda: write_folder(target, "second"))
    write_folder(target, "first")
    assert (target / "weights").read_text() == "first"
    assert list(tmp_path.iterdir()) == [target]


def interrupt(monkeypatch, module, name, work):
    """Let the first call of a function begin with some work."""
    function = getattr(module, name)

    def interrupted(*args):
        monkeypatch.setattr(module, name, function)
        work()
        return function(*args)

    monkeypatch.setattr(module, name, interrupted)


def write_text(path, text):
    with atomic_write(path) as stream:
        stream.write(text)


def write_folder(path, text):
    with atomic_folder(path, replaces=True) as folder:
        (folder / "weights").write_text(text)


def test_concurrent_writers_of_one_file(tmp_path):
    def write_often(text):
        for _ in range(50):
            write_text(tmp_path / "a.txt", text)

    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(write_often, text) for text in "abcd"]
    for writer in writers:
        writer.result()
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_folder_with_an_error_leaves_no_new_parents(tmp_path):
    (tmp_path / "kept").mkdir()
    for path in ("kept/new/model", "new/model"):
        with pytest.raises(ZeroDivisionError), atomic_folder(tmp_path / path):
            raise ZeroDivisionError
    assert [path.name for path in tmp_path.rglob("*")] == ["kept"]


def test_lock_on_full_disk_is_removed(tmp_path):
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); "
    limit += "import signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    program = limit + "from alibi_fairseq.files import locked\n"
    program += "with locked(sys.argv[1], '--out', 'test'): print('held')"
    command = [sys.executable, "-c", program, tmp_path / "lock"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "held\n", done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "the key 'a' appears again in line 3"),
        ("a:\n  b: 1\n  b: 1\n", "the key 'b' appears again in line 3"),
        ("a: [", "while parsing"),
    ],
)
def test_invalid_yaml_is_rejected(tmp_path, text, message):
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(UserInputError, match=f"a.yaml: {message}"):
        read_yaml(path)


def test_yaml_keeps_merged_keys_and_quoted_text(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("""
a: {inner: &inner {<<: &base {x: 1, y: -2_000}, y: 0}}
b: {<<: *inner, x: '0777'}
1: +5
""")
    assert read_yaml(path) == {
        "a": {"inner": {"x": 1, "y": 0}},
        "b": {"x": "0777", "y": 0},
        1: 5,
    }
