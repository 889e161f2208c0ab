"""Launcher of trainings with several processes or with restarts.

``python -m alibi_fairseq.experiment.torchrun`` is torchrun, except that it exits with 2 if a
training rejects its input, and with 75 if a signal stopped the training early, even one that only
the processes of another node received.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from ..errors import BAD_INPUT, EXIT_CODE_FILE, UserInputError

MODULE = "alibi_fairseq.experiment.torchrun"


def launcher_flags(
    processes: int,
    nodes: int = 1,
    endpoint: str | None = None,
    name: str = "alibi",
    max_restarts: int = 0,
) -> list[str]:
    """Return the interpreter arguments before a training command.

    There are none for one process without restarts, which needs no torchrun.

    Args:
        processes: number of processes across all nodes. Each has one GPU, or shares the CPU.
        nodes: number of nodes. Each runs the same command once.
        endpoint: HOST:PORT on the first node, where all nodes meet.
        name: job name, the same on all nodes. Jobs with different names never mix.
        max_restarts: number of restarts after a failure.

    Raises:
        UserInputError: the processes cannot be divided among the nodes, or the endpoint is missing.
    """
    if nodes < 1 or processes % nodes:
        raise UserInputError(
            f"{processes} processes cannot be divided evenly among {nodes} nodes. "
            "Use a multiple of the number of nodes."
        )
    if nodes > 1 and not endpoint:
        raise UserInputError(
            f"--nodes {nodes} requires a meeting point. "
            "Pass --rdzv-endpoint HOST:PORT with the first node and a free port."
        )
    if processes == 1 and max_restarts == 0:
        return []
    flags = ["-m", MODULE, f"--nnodes={nodes}", f"--nproc-per-node={processes // nodes}"]
    flags.append(f"--max-restarts={max_restarts}")
    if nodes == 1:
        flags.append("--standalone")
    else:
        flags += ["--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", f"--rdzv-id={name}"]
    return flags


def main() -> None:
    """Run torchrun; exit with the code of a training that rejects its input or is stopped early."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    with tempfile.TemporaryDirectory() as folder:
        exit_code_file = Path(folder) / "exit-code"
        os.environ[EXIT_CODE_FILE] = str(exit_code_file)  # inherited by the workers
        try:
            run.main()
        except ChildFailedError as error:
            exit_codes = {failure.exitcode for failure in error.failures.values()}
            if BAD_INPUT not in exit_codes:
                raise
            sys.exit(BAD_INPUT)
        if exit_code_file.is_file():
            sys.exit(int(exit_code_file.read_text()))


if __name__ == "__main__":
    main()
