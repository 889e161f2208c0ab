"""Steps that are done once: each leaves a stamp with its settings and is skipped while they hold."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import BadInput
from ..files import atomic_write
from ..launcher.progress import Progress

PACKAGE = Path(__file__).resolve().parent.parent


def once(stamp: Path, settings: dict, work: Callable[[], dict | None]) -> dict:
    """Run ``work`` unless it is done with the same settings; return what it returned.

    Args:
        stamp: JSON file that says the step is done.
        settings: all that the outcome depends on.
    """
    wanted = json.loads(json.dumps(settings))
    if stamp.is_file():
        kept = json.loads(stamp.read_text(encoding="utf-8"))
        if kept["settings"] == wanted:
            return kept["outcome"]
    outcome = work() or {}
    with atomic_write(stamp) as file:
        json.dump({"settings": wanted, "outcome": outcome}, file, indent=1)
    return outcome


def fairseq_command(tool: str, *arguments: object) -> list[str]:
    """``fairseq-TOOL --user-dir <this package> …``, run by this Python."""
    user_dir = [] if tool == "preprocess" else ["--user-dir", str(PACKAGE)]
    return [sys.executable, "-m", f"fairseq_cli.{tool}", *map(str, arguments), *user_dir]


def run(command: list[str], log: Path, progress: Progress | None = None) -> list[str]:
    """Run a command, keep what it prints in ``log``, and show its progress.

    Returns:
        The lines printed.

    Raises:
        BadInput: the command failed; names the log and its last line.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    lines = []
    with log.open("a", encoding="utf-8") as file:
        file.write("$ " + " ".join(command) + "\n")
        with _child(command) as process:
            for line in process.stdout:
                file.write(line)
                lines.append(line.rstrip("\n"))
                if progress is not None:
                    progress.see(line)
    if process.returncode != 0:
        last = next((line for line in reversed(lines) if line.strip()), "(nothing printed)")
        raise BadInput(f"A command failed, see {log}; its last words: {last.strip()}")
    return lines


@contextmanager
def _child(command: list[str]) -> Iterator[subprocess.Popen]:
    """A child that does not outlive us when the user presses Ctrl-C."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    try:
        yield process
        process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
