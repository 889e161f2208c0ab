#!/usr/bin/env python
"""Count how two-process training runs end when the machine is busy.

    python scripts/soak_exits.py [--runs 100] [--load 4] [--keep-groups]

Every run trains two updates with two processes joined by gloo, beside busy loops. The processes are
forked from one that has imported fairseq, so that a run takes seconds; they shut the interpreter down
as any command does. ``--keep-groups`` leaves the process groups to the interpreter, as fairseq does
without this plugin: some runs then end with SIGABRT although their training is done. Prints a JSON
object; the exit code is 1 if any process failed.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

BUSY = "import os; os.nice(15)\nwhile True: pass"
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--load", type=int, default=4, help="busy loops beside the runs")
    parser.add_argument("--keep-groups", action="store_true", help="do not destroy process groups")
    args = parser.parse_args()

    import fairseq_cli.train  # noqa: F401  (before the processes are forked)
    from commands import SHORT, make_data
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from tqdm import trange

    from alibi_fairseq import process_groups

    if args.keep_groups:
        atexit.unregister(process_groups.destroy_process_groups)
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(args.load)]
    began, ends, parent = time.monotonic(), Counter(), os.getpid()
    folder = tempfile.mkdtemp()
    try:
        data = make_data(Path(folder))
        flags = [data, *SHORT, "--max-update", 2, "--no-save", "--log-format", "none"]
        flags += ["--save-dir", folder]
        parser = options.get_training_parser()
        parsed = options.parse_args_and_arch(parser, [str(flag) for flag in flags])
        cfg = convert_namespace_to_omegaconf(parsed)
        progress = trange(args.runs, unit="run")
        for _ in progress:
            ends.update(run_two(cfg))
            progress.set_postfix(ends)
    finally:
        if os.getpid() == parent:  # the runs unwind these frames too
            for loop in loops:
                loop.kill()
            shutil.rmtree(folder)
    print(
        json.dumps(
            {
                "runs": args.runs,
                "load": args.load,
                "keep_groups": args.keep_groups,
                "ends": dict(ends),
                "seconds": round(time.monotonic() - began),
            }
        )
    )
    return int(set(ends) != {"0"})


def run_two(cfg) -> list[str]:
    """How the two processes of one run end: exit codes, or names of signals."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pids = [start(cfg, rank, port) for rank in range(2)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    return [signal.Signals(-code).name if code < 0 else str(code) for code in codes]


def start(cfg, rank: int, port: int) -> int:
    """Fork a process that trains and exits; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": 2, "RANK": rank}
    os.environ.update({name: str(value) for name, value in job.items()})
    from fairseq.distributed import utils
    from fairseq_cli import train

    utils.call_main(cfg, train.main)
    sys.exit(0)


if __name__ == "__main__":
    sys.exit(main())
