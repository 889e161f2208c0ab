"""Trainings of several processes: the arguments of torchrun, and ``python -m`` this module, which is torchrun
but for the exit code of a training that refuses its input.
"""

from __future__ import annotations

import sys

from ..errors import UserInputError

MODULE = "alibi_fairseq.runs.torchrun"
REFUSED = 2


def arguments(
    processes: int,
    nodes: int = 1,
    endpoint: str | None = None,
    name: str = "alibi",
    max_restarts: int = 0,
) -> list[str]:
    """The interpreter's arguments in front of a training's; none for one process.

    Args:
        processes: total over all nodes; each has one GPU, or shares the CPU.
        nodes: each runs the same command once.
        endpoint: HOST:PORT on the first node, where all nodes meet.
        name: the same on all nodes; two jobs with different names never mix.
    """
    if nodes < 1 or processes % nodes:
        raise UserInputError(f"{processes} processes cannot be spread evenly over {nodes} nodes.")
    if nodes > 1 and not endpoint:
        raise UserInputError(
            "With several nodes, --rdzv-endpoint HOST:PORT must name the first node and a free port."
        )
    if processes == 1:
        return []
    argv = ["-m", MODULE, f"--nnodes={nodes}", f"--nproc-per-node={processes // nodes}"]
    argv += [f"--max-restarts={max_restarts}"]
    if nodes == 1:
        return [*argv, "--standalone"]
    return [*argv, "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", f"--rdzv-id={name}"]


def main() -> None:
    """As ``torchrun``; exits with 2, without its report, if a process did so."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        run.main()
    except ChildFailedError as error:
        if REFUSED not in {failure.exitcode for failure in error.failures.values()}:
            raise
        sys.exit(REFUSED)


if __name__ == "__main__":
    main()
