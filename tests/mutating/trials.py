"""Tests in a process of their own, which has PyTorch and fairseq before it begins, and no more.

Nothing here imports this project: the process imports the copy that it is given.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path

import psutil

_PRELOADED = ["torch", "fairseq.trainer", "hydra.core", "pytest", "hypothesis", "transformers"]


#: Bytes that one process may hold: a change can make a list grow without end.
MEMORY = 4 * 2**30


class Trials:
    """Runs tests of one copy of the checkout, a process for each request."""

    def __init__(self, folder: Path):
        """``folder`` holds the copy, ``checkout``, and whatever the tests write."""
        self.folder = folder
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOADED)

    def run(self, tests: dict[str, list[str]], limit: int) -> str | None:
        """What noticed: the first test that fails, ``"time"``, ``"exit"``; None if nothing did.

        Args:
            tests: the tests of each file to run, in this order.
            limit: seconds. Those in which this process sleeps, as on a suspended machine, do
                not count.
        """
        return self._ask(_first_failure, limit, tests)

    def record(self, file: str, limit: int) -> dict:
        """Run all tests of a file: the seconds that each took which passed, and those before them.

        coverage.py's data of this process and those it starts are left in the folder.
        """
        answer = self._ask(_recorded, limit, file)
        if not isinstance(answer, dict):
            raise RuntimeError(f"the tests of {file} did not come to their end ({answer})")
        return answer

    def _ask(self, work, limit: int, *arguments):
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=_in_the_copy, args=(theirs, self.folder, work, arguments)
        )
        process.start()
        theirs.close()
        try:
            ours.recv()
        except EOFError:
            raise RuntimeError("the process that runs the tests did not begin") from None
        try:
            waited = (ours.poll(1) for _ in range(limit))
            return ours.recv() if any(waited) else "time"
        except EOFError:
            return "exit"
        finally:
            for child in _descendants(process.pid):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            process.kill()
            process.join()


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _in_the_copy(connection, folder: Path, work, arguments: tuple) -> None:
    checkout, here = folder / "checkout", Path(__file__).resolve().parents[2]
    os.setsid()
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY if hard < 0 else min(MEMORY, hard), hard))
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    os.chdir(checkout)
    output = os.open(folder / "output.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.path[:] = [str(checkout), *(p for p in sys.path if not Path(p).is_relative_to(here))]
    os.environ.update(PYTHONPATH=str(checkout), OMP_NUM_THREADS="1")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    connection.send("begun")
    connection.send(work(folder, *arguments))
    for child in _descendants(os.getpid()):
        child.send_signal(signal.SIGKILL)
    os._exit(0)


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.killpg(0, signal.SIGKILL)


def _pytest(folder: Path, file: str, plugin: object, *flags: str) -> int:
    import pytest

    common = ("-q", "-p", "no:cacheprovider", "--basetemp", str(folder / "tmp"))
    return int(pytest.main([file, *common, *flags], plugins=[plugin]))


class _Chosen:
    """Keeps these tests alone, in this order, and remembers the first that fails."""

    def __init__(self, tests: list[str]):
        self.order = {test: number for number, test in enumerate(tests)}
        self.failed: str | None = None

    def pytest_collection_modifyitems(self, items):
        chosen = [item for item in items if item.nodeid in self.order]
        items[:] = sorted(chosen, key=lambda item: self.order[item.nodeid])

    def pytest_collectreport(self, report):
        if report.failed:
            self.failed = self.failed or report.nodeid

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed = self.failed or report.nodeid


def _first_failure(folder: Path, tests: dict[str, list[str]]) -> str | None:
    for file, chosen in tests.items():
        plugin = _Chosen(chosen)
        code = _pytest(folder, file, plugin, "-x")
        if code not in (0, 5):  # 5: a change can make a test disappear, which nobody would notice
            return plugin.failed or file
    return None


class _Recorder:
    def __init__(self, coverage):
        self.coverage, self.failed = coverage, set()
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logstart(self, nodeid):
        self.coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if not report.passed:
            self.failed.add(report.nodeid)


def _recorded(folder: Path, file: str) -> dict:
    import coverage

    settings = folder / "coveragerc"
    settings.write_text(
        f"[run]\nparallel = true\ndata_file = {folder / 'coverage'}\n"
        f"source = {folder / 'checkout' / 'alibi_fairseq'}\ncontext = ${{PYTEST_CURRENT_TEST-}}\n"
        "disable_warnings = no-data-collected, module-not-measured, no-ctracer\n"
    )
    # Read by every Python that starts with the copy in PYTHONPATH.
    hook = f"import sys; sys.path.append({str(Path(coverage.__file__).parents[1])!r})\n"
    started = folder / "checkout" / "sitecustomize.py"
    started.write_text(f"{hook}import coverage\ncoverage.process_startup()\n")
    measured = coverage.Coverage(config_file=str(settings))
    os.environ["COVERAGE_PROCESS_START"] = str(settings)
    measured.start()
    recorder = _Recorder(measured)
    began = time.monotonic()
    try:
        _pytest(folder, file, recorder)
    finally:
        measured.stop()
        measured.save()
        started.unlink()
    start = time.monotonic() - began - sum(recorder.seconds.values())
    passed = {t: s for t, s in recorder.seconds.items() if t not in recorder.failed}
    return {"start": start, "seconds": passed}
